"""Learn from a few traces how a graph grows with its batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

from gnnperf.graph import Allocation, Attribute, ComputationGraph, Edge, Node, TensorSpec

Tracer = Callable[[int], ComputationGraph]
# A batch above those at which code often changes its way: a slice of ten, ``cdist`` above 25 rows.
_LARGE_BATCH = 64


class _MismatchError(Exception):
    """The traces are not the same network at several batch sizes."""


def learn_batch_scaling(graph: ComputationGraph, trace: Tracer) -> ComputationGraph:
    """Learn how every dimension of ``graph`` grows with the batch, from traces at other batch sizes.

    Batch 1 is tried first, because views there become copies elsewhere; the graph says from which size on it holds,
    or why it cannot be rescaled. A larger batch is tried always, because code may take another way there; what changes
    only beyond ``max(64, 2 * batch)``, or between the batches that were tried, goes unseen. A network that fills a
    cache when it first runs is traced again: what counts is how it runs from then on.

    Args:
        graph: The trace at the batch size that was asked for.
        trace: Traces the same network at another batch size; raises ValueError where it does not run.
    """
    if not any(tensor.shape[:1] == (graph.batch_size,) for tensor in graph.inputs):
        return replace(graph, rescale_error="no input has the batch as its first dimension")
    large = max(_LARGE_BATCH, 2 * graph.batch_size)
    at = cache(partial(_traced, trace))
    problem, settled = "", False
    for size in [size for size in (1, 2) if size < graph.batch_size] + [large]:
        try:
            learned = _fitted(graph, at(size))
            if learned is None and not settled:
                graph, settled = at(graph.batch_size), True
                learned = _fitted(graph, at(size))
            if learned is None:
                raise _MismatchError(f"it runs other ops at batch {size}")
            if size < large:
                _check_against(learned, at(large))
            elif learned.warnings or not all(_proportional(t, learned.batch_size) for t in _tensors_of(learned)):
                _check_against(learned, at(3 * large))  # beyond both: between them, rounding hides a wrong slope
            return replace(learned, smallest_batch_size=min(size, graph.batch_size))
        except _MismatchError as mismatch:
            problem = str(mismatch)
    return replace(graph, rescale_error=problem)


def _traced(trace: Tracer, batch_size: int) -> ComputationGraph:
    try:
        return trace(batch_size)
    except ValueError as error:
        raise _MismatchError(f"it does not run at batch {batch_size} ({error})") from error


def _check_against(learned: ComputationGraph, third: ComputationGraph) -> None:
    """See whether what was learned from two traces gives a third."""
    try:
        same = learned.rescale(third.batch_size).content_hash == third.content_hash
    except ValueError:  # a size that 64 bits do not count
        same = False
    if not same:
        other = [node.op for node in learned.nodes] != [node.op for node in third.nodes]
        raise _MismatchError(f"it runs other ops at batch {third.batch_size}" if other else "its sizes grow unevenly")


def _tensors_of(graph: ComputationGraph) -> Iterator[TensorSpec]:
    for node in graph.nodes:
        yield from (*node.inputs, *node.outputs)


def _proportional(tensor: TensorSpec, batch_size: int) -> bool:
    return all(k == 0 or size == k * batch_size for size, k in zip(tensor.shape, tensor.batch_slope, strict=False))


def _fitted(graph: ComputationGraph, other: ComputationGraph) -> ComputationGraph | None:
    """``graph`` with the growth read off ``other``; None where the two differ in more than sizes."""
    extra = other.batch_size - graph.batch_size
    if len(graph.nodes) != len(other.nodes) or len(graph.edges) != len(other.edges):
        return None
    try:
        return replace(
            graph,
            nodes=tuple(_node(a, b, extra) for a, b in zip(graph.nodes, other.nodes, strict=True)),
            edges=tuple(_edge(a, b, extra) for a, b in zip(graph.edges, other.edges, strict=True)),
            inputs=_tensors(graph.inputs, other.inputs, extra),
            outputs=_tensors(graph.outputs, other.outputs, extra),
            allocations=_allocations(graph, other, extra),
        )
    except _MismatchError:
        return None


def _node(node: Node, other: Node, extra: int) -> Node:
    if node.op != other.op or node.attributes.keys() != other.attributes.keys():
        raise _MismatchError
    slopes = {
        key: _attribute_slope(value, other.attributes[key], extra)
        for key, value in node.attributes.items()
        if value != other.attributes[key]
    }
    return replace(
        node,
        inputs=_tensors(node.inputs, other.inputs, extra),
        outputs=_tensors(node.outputs, other.outputs, extra),
        attribute_slopes=slopes,
    )


def _allocations(graph: ComputationGraph, other: ComputationGraph, extra: int) -> tuple[Allocation, ...]:
    """Their growth; none at all where the two runs did not hold the same."""
    pairs = list(zip(graph.allocations, other.allocations, strict=False))
    same = all((a.first, a.last, a.is_gradient) == (b.first, b.last, b.is_gradient) for a, b in pairs)
    if not same or len(graph.allocations) != len(other.allocations):
        return ()
    return tuple(replace(a, bytes_slope=(b.bytes - a.bytes) / extra) if a != b else a for a, b in pairs)


def _attribute_slope(value: Attribute, other: Attribute, extra: int) -> float:
    if type(value) is int and type(other) is int:
        return (other - value) / extra
    raise _MismatchError


def _edge(edge: Edge, other: Edge, extra: int) -> Edge:
    if (edge.source, edge.target) != (other.source, other.target):
        raise _MismatchError
    return Edge(edge.source, edge.target, _tensor(edge.tensor, other.tensor, extra))


def _tensors(tensors: tuple[TensorSpec, ...], others: tuple[TensorSpec, ...], extra: int) -> tuple[TensorSpec, ...]:
    if len(tensors) != len(others):
        raise _MismatchError
    return tuple(_tensor(a, b, extra) for a, b in zip(tensors, others, strict=True))


def _tensor(tensor: TensorSpec, other: TensorSpec, extra: int) -> TensorSpec:
    if (len(tensor.shape), tensor.dtype, tensor.kind) != (len(other.shape), other.dtype, other.kind):
        raise _MismatchError
    # A dimension of size 1 has no stride worth the name: how memory is walked shows at the larger size.
    larger = other if extra > 0 else tensor
    if tensor.shape == other.shape:
        return replace(tensor, broadcast=larger.broadcast, layout=larger.layout)
    slope = tuple((b - a) / extra for a, b in zip(tensor.shape, other.shape, strict=True))
    return replace(tensor, batch_slope=slope, broadcast=larger.broadcast, layout=larger.layout)
