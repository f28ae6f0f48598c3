"""The registry of cost rules: what an op computes and moves, from its shapes alone.

One multiply-add is 2 FLOPs, everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gnnperf.graph import ComputationGraph, Node

OP_CLASSES = (
    "conv",
    "matmul",
    "attention",
    "recurrent",
    "elementwise",
    "normalization",
    "softmax",
    "reduction",
    "pooling",
    "movement",
    "gather",
    "sort",
    "unknown",
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a node costs on any device.

    Attributes:
        flops: Floating point (or integer) operations; a multiply-add is two.
        bytes_read: Bytes of all operands, parameters included.
        bytes_written: Bytes of all results.
        parameter_bytes: The part of ``bytes_read`` that is weights.
        op_class: One of ``OP_CLASSES``.
        matrix: Whether matrix units (tensor cores) can run it.
        known: False where no rule exists and only the bytes are counted.
        kernels: Number of kernels that an eager framework launches for it.
    """

    flops: float
    bytes_read: float
    bytes_written: float
    parameter_bytes: float
    op_class: str
    matrix: bool = False
    known: bool = True
    kernels: int = 1

    @property
    def bytes(self) -> float:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


Rule = Callable[[Node], Cost]
_RULES: dict[str, Rule] = {}


def register(*ops: str) -> Callable[[Rule], Rule]:
    """Make a function of a node the cost rule of ``ops``.

    Raises:
        ValueError: If one of them already has a rule.
    """

    def add(rule: Rule) -> Rule:
        for op in ops:
            if op in _RULES:
                raise ValueError(f"op {op!r} already has a cost rule: {_RULES[op].__name__}")
            _RULES[op] = rule
        return rule

    return add


def has_rule(op: str) -> bool:
    """Whether ``op`` has a cost rule."""
    return op in _RULES


def moved(
    node: Node,
    op_class: str,
    flops: float = 0.0,
    *,
    read: float | None = None,
    written: float | None = None,
    matrix: bool = False,
    kernels: int = 1,
) -> Cost:
    """The cost of a node that reads each operand and writes each result once, unless told otherwise."""
    return Cost(
        flops=float(flops),
        bytes_read=float(sum(t.bytes for t in node.inputs) if read is None else read),
        bytes_written=float(sum(t.bytes for t in node.outputs) if written is None else written),
        parameter_bytes=float(sum(t.bytes for t in node.inputs if t.kind == "parameter")),
        op_class=op_class,
        matrix=matrix,
        kernels=kernels,
    )


def node_cost(node: Node, attention_implementation: str | None = None) -> Cost:
    """The cost of ``node``; an op without a rule is priced by its bytes and marked as not known.

    Args:
        node: Any node.
        attention_implementation: How the software runs attention; by default as the node says. No software fuses
            what the node says is decomposed.

    Raises:
        ValueError: If the operands or attributes do not fit the op, naming the node.
    """
    rule = _RULES.get(node.op)
    if rule is None:
        cost = moved(node, "unknown")
        return Cost(0.0, cost.bytes_read, cost.bytes_written, cost.parameter_bytes, "unknown", known=False)
    if node.op in ("attention", "attention_backward") and attention_implementation == "decomposed":
        attributes = {**node.attributes, "attention_implementation": attention_implementation}
        node = Node(node.name, node.op, node.inputs, node.outputs, attributes, {}, node.phase, node.module)
    try:
        cost = rule(node)
        sizes = (cost.flops, cost.bytes_read, cost.bytes_written, cost.parameter_bytes, float(cost.kernels))
    except Exception as error:  # whatever a rule trips over, it is the operands and attributes that do not fit
        raise ValueError(f"node {node.name!r} ({node.op}) lacks what its cost depends on: {error!r}") from error
    if not all(0 <= size < math.inf for size in sizes):
        raise ValueError(f"node {node.name!r} ({node.op}) would cost less than nothing or without bounds: {cost}")
    return cost


def unknown_ops(graph: ComputationGraph) -> dict[str, int]:
    """Ops of ``graph`` without a cost rule and how often each occurs."""
    counts: dict[str, int] = {}
    for node in graph.nodes:
        if not has_rule(node.op):
            counts[node.op] = counts.get(node.op, 0) + 1
    return counts
