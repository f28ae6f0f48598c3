"""In which layout torch's Inductor runs the convolutions of a network on a GPU."""

from __future__ import annotations

from collections import defaultdict

from gnnperf.cost.registry import Cost
from gnnperf.graph import ComputationGraph, Node

# How long convolutions of a kind take channels last, as a share of channels first, and how many other ops are too
# many: ``GraphLowering.decide_layout_opt`` in torch/_inductor/graph.py of torch 2.14.
_CHANNELS_LAST_SHARE = {"grouped": 1.358, "default": 0.823, "narrowing": 0.725, "small": 0.783}
_MOST_OPS_PER_CONVOLUTION = 300


def compiles_to_channels_last(graph: ComputationGraph, costs: list[Cost]) -> bool:
    """Whether Inductor lays out images channels last on a GPU; on CPUs it does so wherever there is a convolution.

    Args:
        graph: A network.
        costs: Of its nodes.
    """
    convolutions = [
        (node, cost) for node, cost in zip(graph.nodes, costs, strict=True) if node.op in ("conv", "conv_transpose")
    ]
    forward = sum(node.phase == "forward" for node in graph.nodes)
    if not convolutions or forward >= _MOST_OPS_PER_CONVOLUTION * len(convolutions):
        return False
    flops: dict[str, float] = defaultdict(float)
    for node, cost in convolutions:
        flops[_kind(node)] += cost.flops
    if graph.mode == "training":
        small = set(flops) == {"small"}
        return not small and not flops.keys() & {"grouped", "narrowing"}
    return sum(_CHANNELS_LAST_SHARE[kind] * value for kind, value in flops.items()) <= sum(flops.values())


def _kind(node: Node) -> str:
    weight = node.inputs[1].shape
    groups = node.attributes.get("groups", 1)
    if isinstance(groups, int) and groups > 1 and weight[1] > 1:
        return "grouped"
    if weight[0] <= 64 and weight[1] <= 64:
        return "small"
    return "narrowing" if 2 * weight[0] <= weight[1] and weight[2] > 1 else "default"
