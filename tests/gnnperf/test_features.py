import math
from dataclasses import replace

import pytest
import torch

import gnnperf.features as features
from gnnperf.capture import capture
from gnnperf.features import (
    COST_COLUMNS,
    DEVICE_FEATURES,
    EDGE_FEATURES,
    NODE_FEATURES,
    OPS,
    SIZE_COLUMNS,
    SOFTWARE_FEATURES,
    device_features,
    device_rates,
    graph_data,
    software_features,
)
from gnnperf.graph import PRECISIONS as GRAPH_PRECISIONS
from gnnperf.graph import ComputationGraph
from gnnperf.hardware import PRECISIONS, Link, Software, catalogue, load_device
from gnnperf.model import PerformanceModel, Rows
from gnnperf.training import model_config


class Attention(torch.nn.Module):
    """Three equal residual blocks of attention and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(6)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(scope="module")
def blocks() -> ComputationGraph:
    return capture(Attention().eval(), torch.zeros(2, 8, 32))


@pytest.fixture(scope="module")
def convolution() -> ComputationGraph:
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        torch.nn.Conv2d(16, 16, 5, padding=4, dilation=2, groups=16),
        torch.nn.ReLU(),
    )
    return capture(layers.eval(), torch.zeros(4, 8, 32, 32))


def _column(data, name):
    return data.x[:, NODE_FEATURES.index(name)]


def _undo_log(value):
    return math.expm1(10 * value)


def test_a_convolution_by_hand(convolution):
    data = graph_data(convolution)
    first, second, relu = range(3)
    assert [OPS[op] for op in data.op] == ["conv", "conv", "relu"]
    outputs = 4 * 16 * 16 * 16
    read, written = 4 * (4 * 8 * 32 * 32 + 16 * 8 * 9), 4 * outputs
    cost = dict(zip(COST_COLUMNS, data.cost[first, 0].tolist(), strict=True))
    assert cost == {"flops": 2 * outputs * 8 * 9, "bytes_read": read, "bytes_written": written, "kernels": 1}
    by_hand = {"log_flops": cost["flops"], "log_bytes_read": read, "log_bytes_written": written, "log_depth": 72}
    by_hand |= {"log_rows": 4 * 16 * 16, "log_columns": 16, "log_window": 9, "log_stride": 4, "log_channels": 16}
    for name, expected in by_hand.items():
        assert _undo_log(_column(data, name)[first].item()) == pytest.approx(expected, rel=1e-4), name
    flags = ("depthwise", "grouped", "dilated", "columns_of_8", "columns_of_64", "depth_of_8", "transposed")
    assert [[_column(data, flag)[node].item() for flag in flags] for node in (first, second)] == [
        [0, 0, 0, 1, 0, 1, 0],
        [1, 0, 1, 0, 0, 0, 0],
    ]
    assert data.matrix.tolist()[first] and not data.matrix.tolist()[relu]
    sizes = dict(zip(SIZE_COLUMNS, data.sizes[first].tolist(), strict=True))
    assert sizes["tiles"] == 4 * 16 * 16 / 128 and sizes["elements"] == outputs
    assert sizes["parameter_bytes"] == 4 * 16 * 8 * 9 and sizes["input_bytes"] == 4 * 4 * 8 * 32 * 32


def test_edges_go_both_ways(convolution):
    data = graph_data(convolution)
    pairs = list(zip(*data.edge_index.tolist(), data.edge_reversed.tolist(), strict=True))
    assert pairs == [(0, 1, False), (1, 2, False), (1, 0, True), (2, 1, True)]
    assert data.edge_attr.shape == (4, len(EDGE_FEATURES))
    assert data.edge_attr[:, EDGE_FEATURES.index("next")].tolist() == [1, 1, 1, 1]
    assert data.edge_attr[0, EDGE_FEATURES.index("share_of_written")] == 1


def test_shapes_and_finite_numbers(blocks):
    data = graph_data(blocks)
    classes = len(data.count)
    assert data.num_nodes == classes
    assert data.x.shape == (classes, len(NODE_FEATURES)) and data.sizes.shape == (classes, len(SIZE_COLUMNS))
    assert data.cost.shape == (classes, 2, len(COST_COLUMNS)) and data.cost.dtype == torch.float64
    assert torch.isfinite(data.x).all() and torch.isfinite(data.edge_attr).all()
    assert data.edge_index.max() < classes


def test_repeated_blocks_are_folded_and_counted(blocks):
    data = graph_data(blocks)
    assert data.count.sum() == len(blocks.nodes) == len(data.node_class)
    assert data.num_nodes < 0.8 * len(blocks.nodes)
    assert torch.bincount(data.node_class).tolist() == data.count.tolist()
    for node, number in zip(blocks.nodes, data.node_class.tolist(), strict=True):
        assert OPS[data.op[number]] == node.op


def test_attention_has_a_cost_of_its_own_where_it_is_decomposed(blocks):
    data = graph_data(blocks)
    fused, decomposed = data.cost[:, 0], data.cost[:, 1]
    attention = data.op == OPS.index("attention")
    assert (decomposed[attention, 2] > fused[attention, 2]).all()  # it writes the big matrix
    assert (decomposed[~attention] == fused[~attention]).all()


@pytest.mark.parametrize("layers", range(features.FOLD_DEPTH + 1))
def test_folding_changes_no_prediction(blocks, convolution, monkeypatch, layers):
    torch.manual_seed(1)
    model = PerformanceModel(model_config(width=16, layers=layers, embedding=4)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    device = load_device("rtx-4090")
    rows = Rows(
        torch.tensor([0]),
        device_features(device)[None],
        device_rates(device)[None],
        software_features(Software())[None],
        torch.tensor([False]),
    )
    for graph in (blocks, convolution):
        folded = graph_data(graph)
        with monkeypatch.context() as patch:
            unfolded_nodes = (torch.arange(len(graph.nodes)).numpy(), list(range(len(graph.nodes))))
            patch.setattr(features, "fold", lambda *_, result=unfolded_nodes: result)
            unfolded = graph_data(graph)
        assert unfolded.num_nodes == len(graph.nodes)
        with torch.no_grad():
            short, long = model(folded, rows), model(unfolded, rows)
        torch.testing.assert_close(short.total_ms, long.total_ms, rtol=2e-5, atol=0)
        torch.testing.assert_close(short.node_ms[folded.node_class], long.node_ms, rtol=2e-5, atol=0)


def test_a_graph_without_ops_is_an_error():
    with pytest.raises(ValueError, match="'nothing' runs no ops"):
        graph_data(ComputationGraph("nothing", (), ()))


def test_an_op_outside_of_the_vocabulary_is_unknown(convolution, monkeypatch):
    monkeypatch.delitem(features.nodes._OP_INDEX, "relu")
    assert OPS[graph_data(convolution).op[-1]] == "unknown"


@pytest.mark.parametrize("device", catalogue().values(), ids=lambda device: device.id)
def test_devices_are_described_by_finite_numbers_near_one(device):
    values = device_features(device)
    assert values.shape == (len(DEVICE_FEATURES),)
    assert torch.isfinite(values).all() and values.abs().max() < 6
    rates = device_rates(device)
    assert rates.shape == (2 * len(PRECISIONS) + 4,) and rates.dtype == torch.float64 and (rates > 0).all()


def test_prices_buses_and_links_are_no_features():
    device = load_device("i9-10940x")
    bare = replace(
        device,
        list_price_usd=None,
        memory_bus_bits=None,
        memory_transfer_rate_per_s=None,
        base_clock_hz=None,
        peer_link=Link("NVLink", 1e11, 1e-6),
        link=Link("PCIe", 1e10, 1e-6),
    )
    assert torch.equal(device_features(device), device_features(bare))
    assert torch.equal(device_rates(device), device_rates(bare))


def test_rates_are_those_of_the_spec_sheet():
    device = load_device("rtx-4090")
    rates = device_rates(device).tolist()
    position = PRECISIONS.index("fp16")
    assert rates[position] == device.peak_flops_per_s("fp16", False)
    assert rates[len(PRECISIONS) + position] == device.peak_flops_per_s("fp16", True)
    assert rates[-4] == device.memory_bandwidth_bytes_per_s and rates[-2] == device.units


def test_software_is_described():
    old = dict(zip(SOFTWARE_FEATURES, software_features(Software("torch", "1.12")).tolist(), strict=True))
    new = dict(
        zip(SOFTWARE_FEATURES, software_features(Software("torch", "2.9", True, "channels_last")).tolist(), strict=True)
    )
    assert old["decomposed_attention"] == 1 and old["since_2"] == old["compiled"] == old["channels_last"] == 0
    assert new["decomposed_attention"] == 0 and new["since_2"] == new["compiled"] == new["channels_last"] == 1
    assert old["release"] < 0 < new["release"] and old["torch"] == new["torch"] == 1


@pytest.mark.parametrize("precision", GRAPH_PRECISIONS)
def test_every_precision_has_features(precision):
    graph = capture(torch.nn.Linear(8, 8), torch.zeros(4, 8), precision=precision)
    data = graph_data(graph)
    assert torch.isfinite(data.x).all()
    expected = {"amp": "fp16", "amp_bf16": "bf16"}.get(precision, precision)
    linear = int((data.op == OPS.index("linear")).nonzero()[0])
    assert PRECISIONS[data.precision[linear]] == expected
