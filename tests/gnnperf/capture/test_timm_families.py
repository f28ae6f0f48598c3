"""One small architecture of every timm family: captured whole, with the FLOPs that torch counts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

from gnnperf import networks
from gnnperf.capture import capture, capture_owned
from gnnperf.cost import node_cost, unknown_ops
from gnnperf.graph import Node

FAMILIES = json.loads((Path(__file__).parents[2] / "data/timm_families.json").read_text())
# Ops that torch.utils.flop_counter has formulas for. Biases, which it leaves out, are taken off.
COUNTED = ("conv", "conv_transpose", "linear", "matmul", "attention")


def recurrent_products(node: Node) -> int:
    """The counter sees a recurrent layer as a product with each of its matrices at every step of every sample."""
    steps = node.inputs[0].shape[0] * node.inputs[0].shape[1]
    return sum(2 * steps * t.elements for t in node.inputs if t.kind == "parameter" and len(t.shape) == 2)


# Where our count of the ops above and the counter's differ: the op that explains it and the FLOPs to add for it.
EXCEPTIONS = {
    "sequencer": ("lstm", recurrent_products),  # one LSTM node here; addmm of every step there
}


def products(node: Node) -> float:
    """FLOPs without a bias's additions and, where attention is decomposed, the softmax of its scores."""
    if node.op == "attention":
        node = replace(node, attributes={**node.attributes, "attention_implementation": "fused"})
    bias = node.op != "attention" and len(node.inputs) > 2
    return node_cost(node).flops - (node.outputs[0].elements if bias else 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str) -> None:
    batch_size = 2
    model = networks.build(f"timm:{FAMILIES[family]}", batch_size=batch_size)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.module.requires_grad_(False)
        model.module(*model.example_inputs)
    graph = capture_owned(model.module, model.example_inputs, "inference", "fp32", family)

    graph.validate()
    assert unknown_ops(graph) == {} and graph.warnings == () and graph.rescale_error == ""
    assert graph.parameter_count == sum(p.numel() for p in model.module.parameters())
    ours = sum(products(node) for node in graph.nodes if node.op in COUNTED)
    if family in EXCEPTIONS:
        op, flops = EXCEPTIONS[family]
        ours += sum(flops(node) for node in graph.nodes if node.op == op)
    assert ours == counter.get_total_flops()
    written = {edge.target for edge in graph.edges}
    starts = [node for i, node in enumerate(graph.nodes) if i not in written]
    assert all({t.kind for t in node.inputs} <= {"input", "parameter", "constant"} for node in starts)


def test_every_exception_is_needed() -> None:
    assert set(EXCEPTIONS) <= set(FAMILIES)


@pytest.mark.parametrize("family", ["byoanet", "convnext", "gcvit", "levit", "naflexvit", "swin_transformer_v2"])
def test_rescaled_families_equal_a_trace(family: str) -> None:
    def captured(batch_size: int):
        model = networks.build(f"timm:{FAMILIES[family]}", batch_size=batch_size)
        return capture_owned(model.module, model.example_inputs, "inference", "fp32", family)

    assert captured(2).rescale(5).content_hash == captured(5).content_hash


@pytest.mark.parametrize("family", ["resnet", "vision_transformer", "efficientnet", "convnext"])
def test_results_have_the_shapes_of_a_real_run(family: str) -> None:
    module = timm.create_model(FAMILIES[family]).eval()
    seen: dict[str, tuple[int, ...]] = {}
    for path, part in module.named_modules():
        if isinstance(part, torch.nn.Conv2d | torch.nn.Linear):
            part.register_forward_hook(lambda _, args, out, path=path: seen.update({path: tuple(out.shape)}))
    x = torch.randn(2, 3, 160, 160)
    with torch.no_grad():
        out = module(x)
    real = dict(seen)
    graph = capture(module, x)
    assert [t.shape for t in graph.outputs] == [tuple(out.shape)]
    assert {n.module: n.outputs[0].shape for n in graph.nodes if n.op in ("conv", "linear")} == real
