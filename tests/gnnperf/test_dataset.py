import math
from dataclasses import replace

import pytest
import torch

import gnnperf.graph_store as graph_store
from gnnperf.aggregates import node_table
from gnnperf.dataset import build_dataset, parameter_counts_agree
from gnnperf.features import COST_COLUMNS
from gnnperf.graph_store import GraphStore, Network

pytest.importorskip("timm")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def vit(record):
    return replace(record, network="timm:test_vit", family="vision_transformer", image_size=160, batch_size=8)


def test_records_are_joined_with_the_graphs_of_their_networks(vit, cache):
    rows = [vit, replace(vit, batch_size=3), replace(vit, device="rtx-3090"), replace(vit, time_ms=7.0, batch_size=3)]
    dataset = build_dataset(rows, cache)
    assert len(dataset.graphs) == 2
    assert [s.record for s in dataset.samples] == rows
    assert [s.graph for s in dataset.samples] == [0, 1, 0, 1]
    assert len({s.structure for s in dataset.samples}) == 1
    assert not dataset.skipped
    flops = [(g.count.double() @ g.cost[:, 0, COST_COLUMNS.index("flops")]).item() for g in dataset.graphs]
    assert flops[0] == pytest.approx(flops[1] * 8 / 3, rel=1e-3)


def test_what_cannot_be_joined_is_counted_by_reason(vit, cache):
    rows = [
        vit,
        replace(vit, status="timeout", time_ms=math.nan),
        replace(vit, network="timm:no_such_network"),
        replace(vit, parameter_count=10_000_000),
    ]
    dataset = build_dataset(rows, cache)
    assert [s.record for s in dataset.samples] == [vit]
    assert dataset.skipped == {
        "status timeout": 1,
        "cannot be captured: timm:no_such_network is unknown: nothing known has a similar name": 1,
        "other parameter count than the network built": 1,
    }


def test_sizes_and_attention_of_a_record_reach_its_graph_and_software(vit, cache):
    pytest.importorskip("transformers")
    short = replace(vit, network="hf:pythia-14m", image_size=0, dims="seq=16")
    eager = replace(short, attention="decomposed")
    dataset = build_dataset([short, eager, replace(short, dims="seq=32")], cache)
    assert [(s.record.dims, s.graph) for s in dataset.samples] == [("seq=16", 0), ("seq=16", 0), ("seq=32", 1)]
    fused, decomposed = (node_table(dataset, sample) for sample in dataset.samples[:2])
    assert decomposed.bytes.sum() > fused.bytes.sum()


def test_fields_at_their_defaults_do_not_change_the_name_of_a_file():
    assert Network("timm:test_vit", 160, "inference", "fp32").digest == "30477efb74fa977292a4df2d"
    assert Network("timm:test_vit", 160, "inference", "fp32", dims="seq=8").digest != "30477efb74fa977292a4df2d"


def test_a_training_step_has_a_graph_of_its_own_and_the_structure_of_its_network(vit, cache):
    step = replace(vit, mode="training", optimizer="momentum", precision="amp")
    dataset = build_dataset([vit, step], cache)
    assert len(dataset.graphs) == 2 and len({s.structure for s in dataset.samples}) == 1
    forward, whole = dataset.graphs
    assert forward.phase.unique().tolist() == [0] and whole.phase.unique().tolist() == [0, 1, 2, 3]


def test_the_second_time_comes_from_the_cache(vit, cache, monkeypatch):
    first = build_dataset([vit], cache)
    monkeypatch.setattr(graph_store, "_capture", lambda *_: pytest.fail("captured again"))
    second = build_dataset([vit, replace(vit, batch_size=5)], cache)  # another batch size comes from the same graph
    for key, value in first.graphs[0].to_dict().items():
        assert torch.equal(second.graphs[0][key], value) if isinstance(value, torch.Tensor) else True, key
    assert len(second.graphs) == 2


def test_a_cache_that_cannot_be_written_is_no_failed_capture(vit, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(graph_store, "replace_whole", fail)
    with pytest.raises(OSError, match="No space left on device"):
        build_dataset([vit], tmp_path)


def test_workers_change_nothing(vit, tmp_path, cache):
    rows = [vit, replace(vit, network="timm:test_resnet")]
    alone, together = build_dataset(rows, cache), build_dataset(rows, tmp_path, workers=2)
    assert alone.samples == together.samples
    assert all(torch.equal(a.x, b.x) for a, b in zip(alone.graphs, together.graphs, strict=True))


def test_networks_with_equal_graphs_share_tensors(vit, cache):
    rows = [replace(vit, network=f"timm:{name}", image_size=64) for name in ("resnet18", "gluon_resnet18_v1b")]
    dataset = build_dataset([rows[0], replace(rows[0], reparameterized=True)], cache)
    assert len(dataset.graphs) == 1 and len(dataset.samples) == 2


def test_folded_and_unfolded_networks_have_graphs_of_their_own(vit, cache):
    unfolded = replace(vit, network="timm:repghostnet_050", image_size=64)
    dataset = build_dataset([unfolded, replace(unfolded, reparameterized=True)], cache)
    assert len(dataset.graphs) == 2
    nodes = [int(graph.count.sum()) for graph in dataset.graphs]
    assert nodes[1] < nodes[0]


def test_a_network_that_does_not_scale_is_captured_at_each_batch_size(vit, cache, monkeypatch):
    network = Network("timm:test_vit", 160, "inference", "fp32")
    store = GraphStore(cache)
    captured = store.graph(network, 4)
    stiff = replace(captured, rescale_error="its shapes do not grow with the batch")
    sizes = []

    def capture(network, model):
        sizes.append(len(model.example_inputs[0]))
        return captured.rescale(sizes[-1])

    monkeypatch.setattr(graph_store, "_capture", capture)
    monkeypatch.setattr(GraphStore, "_captured", lambda self, network: stiff)
    assert store.graph(network, 6).batch_size == 6
    assert sizes == [6]


def test_parameter_counts_agree_within_a_percent_or_rounding():
    assert parameter_counts_agree(25_560_000, 25_557_032)
    assert not parameter_counts_agree(25_560_000, 25_100_000)
    assert parameter_counts_agree(370_000, 374_900)  # given as 0.37 million
    assert not parameter_counts_agree(370_000, 380_000)
