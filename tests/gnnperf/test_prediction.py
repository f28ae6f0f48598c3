import gc
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnperf import prediction
from gnnperf.cost.registry import node_cost
from gnnperf.cost.roofline import graph_roofline_ms
from gnnperf.graph import ComputationGraph, Node, TensorSpec
from gnnperf.hardware import Software, load_device
from gnnperf.memory import peak_memory_bytes
from gnnperf.model import Ensemble, PerformanceModel
from gnnperf.prediction import NODE_COLUMNS, Prediction, predict
from gnnperf.training import model_config
from gnnperf.weights import LoadedModel

CARD = """
kind: gpu
units: 60
clock_hz: 1.5e9
vector_flops_per_s: {fp32: 1.2e13}
memory_bandwidth_bytes_per_s: 4.0e11
memory_bytes: 1000000
"""


@pytest.fixture
def card(tmp_path):
    path = tmp_path / "my-card.yaml"
    path.write_text(CARD)
    return path


@pytest.fixture
def physics(facts):
    """A model that has learned nothing, and predicts rooflines."""
    return LoadedModel(Ensemble([PerformanceModel(model_config(width=16, embedding=4))]).eval(), facts)


def test_one_device_gives_one_prediction(small_graph, weights_folder):
    p = predict(small_graph, "rtx-4090", weights=weights_folder)
    assert isinstance(p, Prediction)
    assert p.device == load_device("rtx-4090")
    assert p.software == Software()
    assert p.total_ms > 0 and p.samples_per_s == pytest.approx(2e3 / p.total_ms)
    assert p.interval_ms == pytest.approx((p.total_ms * math.exp(-0.2), p.total_ms * math.exp(0.3)))
    assert p.peak_memory_bytes == peak_memory_bytes(small_graph, p.device, p.software)
    assert (p.unknown_ops, p.zero_shot, p.warnings, p.fits) == ({}, False, (), True)


def test_several_devices_give_a_list_in_their_order(small_graph, weights_folder, card):
    devices = ["t4", card, load_device("rtx-4090"), str(card)]
    many = predict(small_graph, devices, weights=weights_folder)
    assert [p.device.id for p in many] == ["t4", "my-card", "rtx-4090", "my-card"]
    for device, together in zip(devices, many, strict=True):
        alone = predict(small_graph, device, weights=weights_folder)
        assert together.total_ms == pytest.approx(alone.total_ms, rel=1e-5)
        assert np.allclose(together.node_times_ms, alone.node_times_ms, rtol=1e-5)
    assert predict(small_graph, [], weights=weights_folder) == []


def test_the_trunk_runs_once_for_all_devices(small_graph, physics, monkeypatch):
    calls = []
    encode = physics.model.encode
    monkeypatch.setattr(physics.model, "encode", lambda data: calls.append(1) or encode(data))
    predict(small_graph, ["t4", "rtx-4090", "l4"], weights=physics)
    assert len(calls) == 1


def test_nodes_are_the_graph_and_add_up(small_graph, weights_folder):
    p = predict(small_graph, "t4", Software(version="1.13"), weights=weights_folder)
    nodes = p.nodes
    assert tuple(nodes.columns) == NODE_COLUMNS
    assert list(nodes["node"]) == [*(node.name for node in small_graph.nodes), "(overhead)"]
    assert list(nodes["module"])[:2] == ["stem", "blocks.0.conv"]
    assert nodes["output_shape"][0] == (2, 8, 16, 16)
    assert math.fsum(nodes["time_ms"]) == pytest.approx(p.total_ms, rel=1e-12)
    assert nodes["time_ms"].iloc[-1] == p.overhead_ms != 0
    costs = [node_cost(node) for node in small_graph.nodes]
    assert list(nodes["flops"])[:-1] == [cost.flops for cost in costs]
    assert list(nodes["bytes"])[:-1] == [cost.bytes for cost in costs]
    assert not nodes.isna().any().any()
    assert p.nodes is nodes


def test_without_learning_the_total_is_the_roofline(small_graph, physics):
    device, software = load_device("rtx-4090"), Software()
    p = predict(small_graph, device, software, weights=physics)
    assert p.total_ms == pytest.approx(graph_roofline_ms(small_graph, device, software), rel=1e-5)


def test_equal_nodes_take_equal_times(small_graph, weights_folder):
    nodes = predict(small_graph, "t4", weights=weights_folder).nodes
    convolutions = nodes[nodes["module"].isin(["blocks.0.conv", "blocks.1.conv", "blocks.2.conv"])]
    assert len(convolutions) == 3
    assert (convolutions["time_ms"] > 0).all()


def test_a_device_without_measurements_is_zero_shot(small_graph, weights_folder, tmp_path):
    p = predict(small_graph, "t4", weights=weights_folder)
    assert p.zero_shot
    assert p.interval_ms == pytest.approx((p.total_ms * math.exp(-0.7), p.total_ms * math.exp(0.8)))
    (tmp_path / "rtx-4090.yaml").write_text(CARD)
    assert predict(small_graph, tmp_path / "rtx-4090.yaml", weights=weights_folder).zero_shot


def test_unknown_ops_are_priced_by_their_bytes_and_named(weights_folder):
    x = TensorSpec((1000, 1000), "float32")
    nodes = (Node("a", "frobnicate", (x,), (x,)), Node("b", "relu", (x,), (x,)), Node("c", "frobnicate", (x,), (x,)))
    p = predict(ComputationGraph("odd", nodes, ()), "t4", weights=weights_folder)
    assert p.unknown_ops == {"frobnicate": 2}
    assert "priced by their bytes alone: frobnicate (2)" in p.warnings[0]
    assert (p.nodes["time_ms"][:3] > 0).all()
    assert p.nodes["bytes"][0] == 8e6


def test_warnings_tell_of_memory_of_assumptions_and_of_ops_never_seen(small_graph, physics, card):
    physics.facts["training_ops"] = ["conv", "linear", "add", "relu"]
    graph = replace(small_graph, warnings=("the network: assumed so",), parameter_bytes=3 * 2**30)
    p = predict(graph, card, weights=physics)
    assert not p.fits
    assert p.warnings == (
        "the network: assumed so",
        "no measured network had these ops, so their times rest on physics: batch_norm, reduce_mean",
        "my-card: it needs 3.0 GiB of memory, the device has 0.0 GiB, so 3.0 GiB are missing (parameters 3.0)",
    )


def test_wrong_arguments_are_named(small_graph, physics):
    with pytest.raises(ValueError, match=r"predict takes a graph .* not Linear"):
        predict(torch.nn.Linear(1, 1), "t4", weights=physics)
    with pytest.raises(ValueError, match=r"software must be a gnnperf.Software, not str"):
        predict(small_graph, "t4", "torch", weights=physics)
    with pytest.raises(ValueError, match="unknown device 'rtx-4091': did you mean rtx-4090"):
        predict(small_graph, ["t4", "rtx-4091"], weights=physics)
    with pytest.raises(ValueError, match="a device is an id or a file, not None"):
        predict(small_graph, None, weights=physics)
    with pytest.raises(ValueError, match="runs no ops"):
        predict(ComputationGraph("empty", (), ()), "t4", weights=physics)


def test_tensors_are_kept_as_long_as_the_graph(small_graph, physics):
    gc.collect()
    graph = replace(small_graph)
    predict(graph, "t4", weights=physics)
    assert prediction._data(graph) is prediction._data(graph)
    kept = len(prediction._tensors)
    del graph
    gc.collect()
    assert len(prediction._tensors) == kept - 1


def test_one_more_device_costs_neither_a_conversion_nor_another_pass_of_messages(small_graph, physics, monkeypatch):
    converted, encoded = [], []
    convert, encode = prediction.graph_data, physics.model.encode
    monkeypatch.setattr(prediction, "graph_data", lambda graph: converted.append(graph) or convert(graph))
    monkeypatch.setattr(physics.model, "encode", lambda data: encoded.append(data) or encode(data))
    graph = replace(small_graph)
    assert len(predict(graph, ["t4", "rtx-4090", "l4"], weights=physics)) == 3
    assert (len(converted), len(encoded)) == (1, 1)
    predict(graph, "a10", weights=physics)
    assert len(converted) == 1


def test_the_package_keeps_its_functions():
    import gnnperf.capture

    assert gnnperf.capture.__name__ == "capture" and callable(gnnperf.capture)
    assert gnnperf.predict is predict
    assert "predict" in dir(gnnperf)
    assert gnnperf.devices()["t4"] == load_device("t4")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = gnnperf.nonsense
