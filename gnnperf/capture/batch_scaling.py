"""Learn from two traces how a graph grows with its batch."""

from __future__ import annotations

from dataclasses import replace

from gnnperf.graph import Attribute, ComputationGraph, Edge, Node, TensorSpec


class _Mismatch(Exception):
    """The two traces are not the same network at two batch sizes."""


def learn_batch_scaling(graph: ComputationGraph, larger: ComputationGraph) -> ComputationGraph:
    """``graph`` with the growth of every dimension with the batch, read off ``larger``, the same network's trace at
    another batch size. Where the two differ in more than sizes, the graph says why it cannot be rescaled."""
    extra = larger.batch_size - graph.batch_size
    try:
        if len(graph.nodes) != len(larger.nodes) or len(graph.edges) != len(larger.edges):
            raise _Mismatch(f"it runs other ops at batch {larger.batch_size}")
        return replace(
            graph,
            nodes=tuple(_node(a, b, extra) for a, b in zip(graph.nodes, larger.nodes, strict=True)),
            edges=tuple(_edge(a, b, extra) for a, b in zip(graph.edges, larger.edges, strict=True)),
            inputs=_tensors(graph.inputs, larger.inputs, extra),
            outputs=_tensors(graph.outputs, larger.outputs, extra),
        )
    except _Mismatch as mismatch:
        return replace(graph, rescale_error=str(mismatch))


def _node(node: Node, larger: Node, extra: int) -> Node:
    if node.op != larger.op or node.attributes.keys() != larger.attributes.keys():
        raise _Mismatch(f"it runs {larger.op!r} instead of {node.op!r} at another batch size")
    slopes: dict[str, float] = {}
    for key, value in node.attributes.items():
        other = larger.attributes[key]
        if value != other:
            slopes[key] = _attribute_slope(node, key, value, other, extra)
    return replace(
        node,
        inputs=_tensors(node.inputs, larger.inputs, extra),
        outputs=_tensors(node.outputs, larger.outputs, extra),
        attribute_slopes=slopes,
    )


def _attribute_slope(node: Node, key: str, value: Attribute, other: Attribute, extra: int) -> float:
    if isinstance(value, int) and isinstance(other, int) and not isinstance(value, bool):
        return (other - value) / extra
    raise _Mismatch(f"attribute {key!r} of {node.name!r} changes with the batch")


def _edge(edge: Edge, larger: Edge, extra: int) -> Edge:
    if (edge.source, edge.target) != (larger.source, larger.target):
        raise _Mismatch("its tensors flow otherwise at another batch size")
    return Edge(edge.source, edge.target, _tensor(edge.tensor, larger.tensor, extra))


def _tensors(tensors: tuple[TensorSpec, ...], larger: tuple[TensorSpec, ...], extra: int) -> tuple[TensorSpec, ...]:
    if len(tensors) != len(larger):
        raise _Mismatch("an op has other operands at another batch size")
    return tuple(_tensor(a, b, extra) for a, b in zip(tensors, larger, strict=True))


def _tensor(tensor: TensorSpec, larger: TensorSpec, extra: int) -> TensorSpec:
    if tensor.shape == larger.shape:
        return tensor
    if len(tensor.shape) != len(larger.shape) or tensor.dtype != larger.dtype:
        raise _Mismatch("a tensor has another rank or type at another batch size")
    slope = tuple((b - a) / extra for a, b in zip(tensor.shape, larger.shape, strict=True))
    # A dimension of size 1 has no stride worth the name: what repeats memory shows at the larger size.
    return replace(tensor, batch_slope=slope, broadcast=larger.broadcast)
