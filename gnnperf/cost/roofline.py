"""The least time that a device needs for a node: Williams et al., "Roofline", CACM 2009, plus a launch."""

from __future__ import annotations

from gnnperf.cost.registry import Cost, node_cost
from gnnperf.graph import ComputationGraph, Node
from gnnperf.hardware import Device, Software

# Start of an empty kernel on a GPU, and of an op in a framework's CPU thread pool; the orders of magnitude that are
# commonly measured. What really is lost between nodes is learned.
LAUNCH_MS = {"gpu": 0.003, "accelerator": 0.003, "cpu": 0.003}

_COMPUTE_PRECISION = {"float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "int8": "int8", "uint8": "int8"}


def compute_precision(node: Node, graph_precision: str, matrix: bool) -> str:
    """The precision in which a node computes: that of its first floating operand, tf32 where the graph allows it."""
    operands = node.inputs or node.outputs
    dtype = next((t.dtype for t in operands if "float" in t.dtype), operands[0].dtype if operands else "float32")
    precision = _COMPUTE_PRECISION.get(dtype, "fp32")
    if precision == "int8" and not matrix:
        return "fp32"
    return "tf32" if precision == "fp32" and matrix and graph_precision == "tf32" else precision


def roofline_ms(cost: Cost, precision: str, device: Device) -> float:
    """Milliseconds of one node: the longer of computing and moving bytes, and a launch for every kernel."""
    compute_ms = 1e3 * cost.flops / device.peak_flops_per_s(precision, cost.matrix)
    memory_ms = 1e3 * cost.bytes / device.memory_bandwidth_bytes_per_s
    return max(compute_ms, memory_ms) + cost.kernels * LAUNCH_MS[device.kind]


def graph_roofline_ms(graph: ComputationGraph, device: Device, software: Software) -> float:
    """Milliseconds of all nodes one after the other."""
    total_ms = 0.0
    for node in graph.nodes:
        cost = node_cost(node, software.attention)
        total_ms += roofline_ms(cost, compute_precision(node, graph.precision, cost.matrix), device)
    return total_ms
