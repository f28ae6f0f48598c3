"""What makes a graph consistent in itself."""

from __future__ import annotations

from collections.abc import Iterator
from reprlib import repr as short
from typing import TYPE_CHECKING

from gnnperf.graph.vocabulary import COUNTS, ITEM_BYTES, LAYOUTS, MODES, PHASES, PRECISIONS, TENSOR_KINDS

if TYPE_CHECKING:
    from gnnperf.graph.computation_graph import ComputationGraph, Node, TensorSpec

MAX_INTEGER = (1 << 63) - 1  # frameworks count in signed 64 bits


def problems(graph: ComputationGraph) -> Iterator[str]:
    """Every inconsistency of a graph, found one by one."""
    if not graph.name.isprintable():
        yield f"its name has a line break or another control character: {short(graph.name)}"
    if graph.mode not in MODES:
        yield f"mode {graph.mode!r} is not one of {', '.join(MODES)}"
    if graph.precision not in PRECISIONS:
        yield f"precision {graph.precision!r} is not one of {', '.join(PRECISIONS)}"
    if min(graph.batch_size, graph.smallest_batch_size) < 1:
        yield f"batch size {min(graph.batch_size, graph.smallest_batch_size)} is not positive"
    if min(graph.parameter_count, graph.parameter_bytes, graph.buffer_bytes, graph.optimizer_state_bytes) < 0:
        yield "a parameter, buffer or optimizer state size is negative"
    seen: set[str] = set()
    for node in graph.nodes:
        if node.name in seen:
            yield f"two nodes are named {node.name!r}"
        seen.add(node.name)
        for key, text in (("name", node.name), ("op", node.op), ("module", node.module)):
            if not text.isprintable():
                yield f"the {key} of node {node.name!r} has a line break or another control character: {short(text)}"
        if not node.op:
            yield f"node {node.name!r} has no op"
        if node.phase not in PHASES:
            yield f"node {node.name!r} has the unknown phase {node.phase!r}"
        yield from (f"node {node.name!r}: {p}" for p in _attribute_problems(node))
        if any(type(node.attributes.get(key, 0)) is not int for key in node.attribute_slopes):
            yield f"node {node.name!r} scales an attribute that is no integer"
        if stray := node.attribute_slopes.keys() - node.attributes.keys():
            yield f"node {node.name!r} scales attributes that it lacks: {', '.join(sorted(stray))}"
        for tensor in (*node.inputs, *node.outputs):
            yield from (f"node {node.name!r}: {p}" for p in _tensor_problems(tensor))
    for edge in graph.edges:
        if not 0 <= edge.source < edge.target < len(graph.nodes):
            yield f"edge {edge.source} -> {edge.target} does not point forward to an existing node"
        yield from (f"edge {edge.source} -> {edge.target}: {p}" for p in _tensor_problems(edge.tensor))
    for allocation in graph.allocations:
        if not 0 <= allocation.first <= allocation.last < len(graph.nodes) or allocation.bytes < 0:
            yield f"memory of {allocation.bytes} bytes from node {allocation.first} to {allocation.last} cannot be"
    for tensor in (*graph.inputs, *graph.outputs):
        yield from (f"graph input or output: {p}" for p in _tensor_problems(tensor))


def _attribute_problems(node: Node) -> Iterator[str]:
    for key, value in node.attributes.items():
        if key in COUNTS and (isinstance(value, bool | str | list) or value < 0):
            yield f"attribute {key!r} is {short(value)}, not a count of zero or more"
        if key == "gradients" and type(value) is not list:
            yield f"attribute {key!r} is {short(value)}, not a list of operands"
        numbers = value if isinstance(value, list) else [value]
        if any(isinstance(number, int) and not -MAX_INTEGER <= number <= MAX_INTEGER for number in numbers):
            yield f"attribute {key!r} is {short(value)}, which is larger than 64 bits"


def _tensor_problems(tensor: TensorSpec) -> Iterator[str]:
    if tensor.dtype not in ITEM_BYTES:
        yield f"unknown dtype {tensor.dtype!r}"
    if tensor.kind not in TENSOR_KINDS:
        yield f"unknown tensor kind {tensor.kind!r}"
    if tensor.layout not in LAYOUTS:
        yield f"unknown layout {tensor.layout!r}"
    if any(type(size) is not int or not 0 <= size <= MAX_INTEGER for size in tensor.shape):
        yield f"shape {short(list(tensor.shape))} has a size that is not a non-negative 64-bit integer"
    elif tensor.elements > MAX_INTEGER:
        yield f"shape {short(list(tensor.shape))} has more elements than a 64-bit integer counts"
    if any(not 0 <= dim < len(tensor.shape) for dim in tensor.broadcast):
        yield f"broadcast dimensions {list(tensor.broadcast)} lie outside of shape {list(tensor.shape)}"
    if tensor.batch_slope and len(tensor.batch_slope) != len(tensor.shape):
        yield f"{len(tensor.batch_slope)} batch slopes for {len(tensor.shape)} dimensions"
