"""How much memory a network needs at its peak: what stays, and what is alive while each op runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gnnperf.graph import ComputationGraph, Edge, Node, TensorSpec
from gnnperf.hardware import Device, Software

# kMinBlockSize in c10/cuda/CUDACachingAllocator: every allocation is rounded up to a multiple of it. What the
# allocator keeps beyond that (segments of 2 MiB and more, fragmentation) is left out, and so is the CUDA context.
GPU_BLOCK_BYTES = 512


def peak_memory_bytes(graph: ComputationGraph, device: Device | None = None, software: Software | None = None) -> int:
    """The most bytes that a network holds at once.

    Parameters, buffers and inputs stay from the first op to the last. What an op writes lives until its last reader
    has run, and at least while the op itself runs; what the network returns lives to the end. What is handed to a
    module lives until the module returns, because the call in Python holds its arguments, unless a compiler removed
    the call. An op in place allocates nothing. Copies of weights that autocast makes stay until it ends. Scratch memory
    of libraries, such as the workspace of a convolution, is left out.

    Args:
        graph: The network.
        device: Where it runs: the allocator of a GPU rounds every tensor up to ``GPU_BLOCK_BYTES``. By default bytes
            are counted as they are.
        software: What runs it: without fused attention the matrix of scores takes memory. By default as each node
            says, and not compiled.

    Returns:
        Bytes.
    """
    block = GPU_BLOCK_BYTES if device is not None and device.kind == "gpu" else 1
    storages = _storages(graph, block, held=software is None or not software.compiled)
    freed: dict[int, int] = defaultdict(int)
    for storage in storages:
        freed[storage.last_use] += storage.bytes
    allocated: dict[int, int] = defaultdict(int)
    for storage in storages:
        allocated[storage.first_use] += storage.bytes
    fixed = [graph.parameter_bytes, graph.buffer_bytes, *(tensor.bytes for tensor in graph.inputs)]
    live = peak = sum(_rounded(size, block) for size in fixed)
    attention = None if software is None else software.attention
    for position, node in enumerate(graph.nodes):
        live += allocated[position]
        peak = max(peak, live + _scratch_bytes(node, attention))
        live -= freed[position]
    return peak


@dataclass
class _Storage:
    """Memory that an op allocates: its results, and what later ops write over them in place."""

    bytes: int
    first_use: int
    last_use: int
    specs: set[tuple[tuple[int, ...], str]] = field(default_factory=set)


def _storages(graph: ComputationGraph, block: int, held: bool) -> list[_Storage]:
    """All memory that the ops allocate, each with the positions of the first and the last op that needs it."""
    readers = _last_readers(graph)
    held_until = _held_until(graph) if held else readers
    incoming: dict[int, list[Edge]] = defaultdict(list)
    for edge in graph.edges:
        incoming[edge.target].append(edge)
    end = len(graph.nodes)
    of_node: dict[int, _Storage] = {}
    for position, node in enumerate(graph.nodes):
        last_use = held_until.get(position, position)
        overwritten = _overwritten(node, position, incoming[position], of_node, readers)
        if overwritten is not None:
            overwritten.last_use = max(overwritten.last_use, last_use)
            overwritten.specs |= _specs(node.outputs)
            of_node[position] = overwritten
        elif not _writes_what_stays(node):
            size = sum(_rounded(tensor.bytes, block) for tensor in node.outputs)
            is_cached_cast = any(tensor.kind == "parameter" for tensor in node.outputs)
            of_node[position] = _Storage(size, position, end if is_cached_cast else last_use, _specs(node.outputs))
    storages = list({id(storage): storage for storage in of_node.values()}.values())
    _keep_outputs(graph, storages, of_node, readers)
    return storages


def _last_readers(graph: ComputationGraph) -> dict[int, int]:
    """For every node that is read, the position of its last reader."""
    last: dict[int, int] = {}
    for edge in graph.edges:
        last[edge.source] = max(last.get(edge.source, 0), edge.target)
    return last


def _held_until(graph: ComputationGraph) -> dict[int, int]:
    """For every node that is read, the position of the last op that runs while some call holds its results.

    A call is of the outermost module that holds the reader and not the writer.
    """
    paths = [node.module.split(".") if node.module else [] for node in graph.nodes]
    returns = _returns(paths)
    last: dict[int, int] = {}
    for edge in graph.edges:
        source, target = paths[edge.source], paths[edge.target]
        common = next((d for d, (a, b) in enumerate(zip(source, target, strict=False)) if a != b), len(source))
        is_handed_over = common < len(target) and graph.nodes[edge.target].phase == "forward"
        end = returns[edge.target][common] if is_handed_over else edge.target
        last[edge.source] = max(last.get(edge.source, 0), end)
    return last


def _returns(paths: Sequence[Sequence[str]]) -> list[list[int]]:
    """For every node and every module on its path, the position of the last op before that module returns."""
    returns: list[list[int]] = [[] for _ in paths]
    for position in reversed(range(len(paths))):
        following = paths[position + 1] if position + 1 < len(paths) else []
        is_same = True
        for depth, name in enumerate(paths[position]):
            is_same = is_same and depth < len(following) and following[depth] == name
            returns[position].append(returns[position + 1][depth] if is_same else position)
    return returns


def _overwritten(
    node: Node, position: int, incoming: Iterable[Edge], of_node: dict[int, _Storage], readers: dict[int, int]
) -> _Storage | None:
    """The memory that a node in place writes into, if an op before it allocated that.

    The graph says that the node is in place, not on which operand: it is one as large as the result that nobody reads
    afterwards, since later readers get it from this node. Of several, the largest: the rest may be what is copied.
    """
    if not node.attributes.get("in_place"):
        return None
    written = _specs(node.outputs)
    candidates = [
        of_node[edge.source]
        for edge in incoming
        if edge.source in of_node
        and readers[edge.source] == position
        and (edge.tensor.shape, edge.tensor.dtype) in written
    ]
    return max(candidates, key=lambda storage: storage.bytes, default=None)


def _writes_what_stays(node: Node) -> bool:
    """Whether a node writes in place into an input, a parameter or a buffer of the network."""
    return bool(node.attributes.get("in_place")) and any(tensor.kind != "activation" for tensor in node.outputs)


def _keep_outputs(
    graph: ComputationGraph, storages: list[_Storage], of_node: dict[int, _Storage], readers: dict[int, int]
) -> None:
    """Let what the network returns live to the end.

    The graph lists the shapes of its outputs, not who wrote them: first come results that nobody reads, from the last
    op on, then those that somebody does read. Where an output is a view of another shape, all results without a
    reader stay.
    """
    end = len(graph.nodes)
    unread = [of_node[position] for position in range(end) if position in of_node and position not in readers]
    pending = [(tensor.shape, tensor.dtype) for tensor in graph.outputs if tensor.kind == "activation"]
    for storage in [*reversed(unread), *reversed(storages)]:
        if storage.last_use < end and (match := next((spec for spec in pending if spec in storage.specs), None)):
            pending.remove(match)
            storage.last_use = end
    if pending:
        for storage in unread:
            storage.last_use = end


def _scratch_bytes(node: Node, attention: str | None) -> int:
    """What decomposed attention holds besides its results: the scores, and their softmax."""
    if node.op != "attention" or (attention or node.attributes.get("attention_implementation", "fused")) == "fused":
        return 0
    query, key = node.inputs[:2]
    scores = TensorSpec((*query.shape[:-1], key.shape[-2]), query.dtype)
    return 2 * scores.bytes


def _specs(tensors: Iterable[TensorSpec]) -> set[tuple[tuple[int, ...], str]]:
    return {(tensor.shape, tensor.dtype) for tensor in tensors}


def _rounded(size: int, block: int) -> int:
    return -(-size // block) * block
