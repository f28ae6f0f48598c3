import pytest
import torch
from torch_geometric.data import Batch
from torch_geometric.utils import scatter

from gnnperf.batches import rows_of
from gnnperf.features import device_rates
from gnnperf.hardware import load_device
from gnnperf.model import PAIR_FEATURES, Ensemble, PerformanceModel
from gnnperf.training import model_config

POSITIONS = [0, 1, 2, 30, 31, 53]


@pytest.fixture
def model() -> PerformanceModel:
    torch.manual_seed(0)
    model = PerformanceModel(model_config(width=16, layers=2, embedding=4)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def _batch(dataset, positions):
    samples = [dataset.samples[p] for p in positions]
    graphs = sorted({s.graph for s in samples})
    batch = Batch.from_data_list([dataset.graphs[g] for g in graphs], exclude_keys=["node_class"])
    return batch, rows_of([s.record for s in samples], [graphs.index(s.graph) for s in samples])


def test_before_training_the_prediction_is_the_roofline_with_launches(toy_dataset):
    model = PerformanceModel(model_config(width=16, layers=2)).eval()
    batch, rows = _batch(toy_dataset, POSITIONS)
    with torch.no_grad():
        times = model(batch, rows)
    for position, total_ms in zip(POSITIONS, times.total_ms.tolist(), strict=True):
        record = toy_dataset.samples[position].record
        factor = 2 if load_device(record.device).kind == "cpu" else 3
        assert total_ms == pytest.approx(record.time_ms / factor, rel=1e-5)
    assert (times.log_ratio == 0).all() and (times.overhead_ms == 0).all()


def test_nodes_and_overhead_add_up_to_the_total(toy_dataset, model):
    batch, rows = _batch(toy_dataset, POSITIONS)
    with torch.no_grad():
        times = model(batch, rows)
    sums = torch.zeros(len(POSITIONS)).index_add(0, times.row, batch.count[times.node] * times.node_ms)
    torch.testing.assert_close(sums + times.overhead_ms, times.total_ms)
    assert (times.node_ms > 0).all() and (times.overhead_ms != 0).all()


def test_company_in_a_batch_changes_nothing(toy_dataset, model):
    with torch.no_grad():
        together = model(*_batch(toy_dataset, POSITIONS)).total_ms
        alone = torch.cat([model(*_batch(toy_dataset, [p])).total_ms for p in POSITIONS])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=0)


def test_one_graph_needs_no_batch(toy_dataset, model):
    sample = toy_dataset.samples[0]
    with torch.no_grad():
        alone = model(toy_dataset.graphs[sample.graph], rows_of([sample.record], [0])).total_ms
        batched = model(*_batch(toy_dataset, [0])).total_ms
    torch.testing.assert_close(alone, batched)


def test_the_trunk_knows_no_device(toy_dataset, model):
    batch, rows = _batch(toy_dataset, [0, 1, 2])  # one graph on three devices
    with torch.no_grad():
        states = model.encode(batch)
        assert states.shape == (batch.num_nodes, 16)
        torch.testing.assert_close(model.predict(states, batch, rows).total_ms, model(batch, rows).total_ms)


def test_a_device_twice_as_fast_halves_the_rooflines(toy_dataset):
    model = PerformanceModel(model_config(width=16, layers=1)).eval()
    batch, rows = _batch(toy_dataset, [0])
    slow = device_rates(load_device(toy_dataset.samples[0].record.device))
    fast = slow.clone()
    fast[:-3] *= 2
    fast[-3] /= 2  # milliseconds of a launch
    rows.rates = fast[None]
    with torch.no_grad():
        half = model(batch, rows).total_ms
        rows.rates = slow[None]
        torch.testing.assert_close(2 * half, model(batch, rows).total_ms)


def test_every_parameter_learns(toy_dataset, model):
    model.train()
    model(*_batch(toy_dataset, POSITIONS)).total_ms.log().sum().backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]


@pytest.mark.parametrize("sizes", [{"layers": 0}, {"embedding": 0}, {"dropout": 0.0}, {"width": 8, "layers": 1}])
def test_other_sizes_work(toy_dataset, sizes):
    model = PerformanceModel(model_config(**sizes))
    model.train()
    model(*_batch(toy_dataset, POSITIONS)).total_ms.sum().backward()
    assert model.head_pair.in_features == PAIR_FEATURES


def test_an_ensemble_predicts_the_mean_of_its_members_and_its_nodes_add_up(toy_dataset):
    members = [PerformanceModel(model_config(width=16, layers=1)).eval() for _ in range(3)]
    for member in members:
        torch.nn.init.normal_(member.head[-1].weight, std=0.5)
    batch, rows = _batch(toy_dataset, POSITIONS)
    with torch.no_grad():
        together = Ensemble(members)(batch, rows)
        alone = torch.stack([member(batch, rows).total_ms for member in members])
    assert alone.std(dim=0).min() > 0
    torch.testing.assert_close(together.total_ms, alone.mean(dim=0))
    nodes_ms = scatter(batch.count[together.node] * together.node_ms, together.row, dim_size=len(POSITIONS))
    torch.testing.assert_close(nodes_ms + together.overhead_ms, together.total_ms)
