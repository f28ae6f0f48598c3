"""What a compiler saves: ops that share a kernel pass their results on in registers, not through memory.

The rules are those of torch's Inductor in outline (Ansel et al., "PyTorch 2", ASPLOS 2024): products, convolutions and
attention stay calls of libraries; what works element by element joins the kernel of what it reads, reductions join
where the same elements are walked, and whatever only one kernel reads is computed inside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gnnperf.cost.registry import OP_CLASSES, Cost, node_cost
from gnnperf.graph import ComputationGraph, Node
from gnnperf.hardware import Software

# How an op walks its elements: one by one, along rows that become one number, or over windows of elements that must
# be in memory before it starts.
_WALKS = {
    "elementwise": "pointwise",
    "movement": "pointwise",
    "normalization": "reduction",
    "softmax": "reduction",
    "reduction": "reduction",
    "pooling": "windows",
}
assert _WALKS.keys() <= set(OP_CLASSES)
_POINTWISE_GATHERS = ("gather", "embedding")
# Scans, transforms and counts are kernels of their own.
_ALONE = ("cumsum", "cumprod", "bincount", "fft", "optimizer_step")


@dataclass(slots=True)
class _Kernel:
    """Nodes that run together.

    Attributes:
        depth: More than that of every kernel it reads from.
        elements: How many the kernel walks.
        reduces: Whether some op in it reduces them.
        nodes: Positions, in order.
    """

    depth: int
    elements: int
    reduces: bool
    nodes: list[int]


def kernel_numbers(graph: ComputationGraph) -> list[int]:
    """The kernel of every node when the graph is compiled: nodes with equal numbers share one."""
    return _numbers(graph, [node_cost(node, "fused") for node in graph.nodes])


def fused_costs(graph: ComputationGraph, eager: Sequence[Cost], kernels: Sequence[int]) -> list[Cost]:
    """The costs of the nodes of a compiled graph.

    A kernel reads a tensor once, writes what others read or nobody does, and is launched once, for its first node.
    Copies for the sake of a layout are not made, because the compiler lays tensors out as their readers want them.

    Args:
        graph: The graph.
        eager: The cost of every node on its own.
        kernels: From ``kernel_numbers``.
    """
    read_inside: dict[int, float] = defaultdict(float)
    leaves, read = set(), set()
    unread: dict[tuple[int, int], float] = {}
    for edge in graph.edges:
        source, target = edge.source, edge.target
        read.add(source)
        if kernels[source] == kernels[target]:
            read_inside[target] += edge.tensor.bytes
            continue
        leaves.add(source)
        left = unread.get((source, kernels[target]), eager[source].bytes_written)
        again = max(0.0, edge.tensor.bytes - left)
        read_inside[target] += again
        unread[source, kernels[target]] = left - (edge.tensor.bytes - again)
    launched: set[int] = set()
    costs = []
    for position, (node, kernel, cost) in enumerate(zip(graph.nodes, kernels, eager, strict=True)):
        plain = _without_copies(node, cost)
        fusible = _walk(node, cost) is not None
        costs.append(
            replace(
                plain,
                bytes_read=max(0.0, plain.bytes_read - read_inside[position]) if fusible else plain.bytes_read,
                bytes_written=plain.bytes_written if position in leaves or position not in read else 0.0,
                kernels=(0 if kernel in launched else 1) if fusible else plain.kernels,
            )
        )
        launched.add(kernel)
    return costs


def software_costs(graph: ComputationGraph, software: Software) -> list[Cost]:
    """The cost of every node as ``software`` runs it: with its attention, fused if it compiles.

    Raises:
        ValueError: As ``gnnperf.cost.registry.node_cost``.
    """
    eager = [node_cost(node, software.attention) for node in graph.nodes]
    return fused_costs(graph, eager, _numbers(graph, eager)) if software.compiled else eager


def _walk(node: Node, cost: Cost) -> str | None:
    """How ``node`` walks its elements; None if it is a kernel of its own."""
    op = node.op.removesuffix("_backward")
    if op in _ALONE or not cost.known:
        return None
    if op == "batch_norm" and op == node.op and not node.attributes.get("training", False):
        return "pointwise"
    return "pointwise" if node.op in _POINTWISE_GATHERS else _WALKS.get(cost.op_class)


def _numbers(graph: ComputationGraph, costs: Sequence[Cost]) -> list[int]:
    return _Fusion(graph, costs).numbers()


class _Fusion:
    def __init__(self, graph: ComputationGraph, costs: Sequence[Cost]) -> None:
        self._nodes = graph.nodes
        self._walks = [_walk(node, cost) for node, cost in zip(graph.nodes, costs, strict=True)]
        self._results = [node.outputs[0].elements if node.outputs else 0 for node in graph.nodes]
        self._sources: dict[int, set[int]] = defaultdict(set)
        self._readers: dict[int, set[int]] = defaultdict(set)
        for edge in graph.edges:
            self._sources[edge.target].add(edge.source)
            self._readers[edge.source].add(edge.target)
        self._kernels: list[_Kernel] = []

    def numbers(self) -> list[int]:
        """The kernel of every node, numbered by its first node."""
        for position in range(len(self._nodes)):
            self._place(position)
        for kernel in sorted({id(k): k for k in self._kernels}.values(), key=lambda k: -k.nodes[-1]):
            self._sink(kernel)
        return [kernel.nodes[0] for kernel in self._kernels]

    def _place(self, position: int) -> None:
        """Let a node join the deepest kernels that it reads, if it fits all of them; so no kernel waits for itself."""
        sources = self._sources[position]
        depth = max((self._kernels[s].depth for s in sources), default=0)
        deepest = [s for s in sources if self._kernels[s].depth == depth]
        if deepest and all(self._joins(s, self._kernels[s], position) for s in deepest):
            kernel = self._merged({id(self._kernels[s]): self._kernels[s] for s in deepest}.values())
            kernel.nodes.append(position)
            kernel.elements = max(kernel.elements, self._elements(position))
            kernel.reduces |= self._walks[position] == "reduction"
        else:
            kernel = _Kernel(depth + 1, self._elements(position), self._walks[position] == "reduction", [position])
        self._kernels.append(kernel)

    def _merged(self, kernels: Iterable[_Kernel]) -> _Kernel:
        first, *others = sorted(kernels, key=lambda kernel: kernel.nodes[0])
        for other in others:
            first.nodes = sorted([*first.nodes, *other.nodes])
            first.depth = max(first.depth, other.depth)
            first.elements = max(first.elements, other.elements)
            first.reduces |= other.reduces
            for node in other.nodes:
                self._kernels[node] = first
        return first

    def _sink(self, kernel: _Kernel) -> None:
        """Compute a kernel inside the only one that reads it."""
        pairs = [(u, v) for u in kernel.nodes for v in self._readers[u] if self._kernels[v] is not kernel]
        if not pairs or len({id(self._kernels[v]) for _, v in pairs}) > 1:
            return
        reader = self._kernels[pairs[0][1]]
        if kernel.reduces and reader.reduces and kernel.elements != reader.elements:
            return
        if all(self._joins(u, kernel, v) for u, v in pairs):
            self._merged([kernel, reader])

    def _elements(self, position: int) -> int:
        node = self._nodes[position]
        reads = self._walks[position] == "reduction" and bool(node.inputs)
        return max(node.inputs[0].elements, self._results[position]) if reads else self._results[position]

    def _joins(self, source: int, kernel: _Kernel, reader: int) -> bool:
        """Whether ``reader`` can run in the kernel of ``source``, which it reads."""
        walk, written = self._walks[reader], self._walks[source]
        if written is None or walk not in ("pointwise", "reduction"):
            return False
        elements = self._elements(reader)
        if walk == "reduction":
            return elements == kernel.elements and not (kernel.reduces and self._reduces_otherwise(source, reader))
        if kernel.reduces:
            return elements in (kernel.elements, self._results[source])
        return elements == kernel.elements or len(self._readers[source]) == 1

    def _reduces_otherwise(self, source: int, reader: int) -> bool:
        """Whether a reduction that follows another walks other rows than that."""
        rows = [self._nodes[n].outputs[0].shape[-1:] for n in (source, reader)]
        return rows[0] != rows[1] or not self._keeps_shape(reader)

    def _keeps_shape(self, position: int) -> bool:
        node = self._nodes[position]
        return bool(node.inputs) and node.inputs[0].elements == self._results[position]


def _without_copies(node: Node, cost: Cost) -> Cost:
    """The cost where operands lie as the op wants them."""
    op = node.op
    if op == "layer_norm" and node.inputs[0].layout != "row_major":
        straight = replace(node.inputs[0], layout="row_major")
        return node_cost(replace(node, inputs=(straight, *node.inputs[1:])))
    if not node.attributes.get("copies_input"):
        return cost
    return node_cost(replace(node, attributes={**node.attributes, "copies_input": False}))
