"""How much memory a network needs at its peak: what stays, and what is alive while each op runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gnnperf.graph import ComputationGraph, Edge, Node, TensorSpec
from gnnperf.hardware import Device, Software

# kMinBlockSize in c10/cuda/CUDACachingAllocator: every allocation is rounded up to a multiple of it. What the
# allocator keeps beyond that (segments of 2 MiB and more, fragmentation) is left out, and so is the CUDA context.
GPU_BLOCK_BYTES = 512


def peak_memory_bytes(graph: ComputationGraph, device: Device | None = None, software: Software | None = None) -> int:
    """The most bytes that a network, or a training step, holds at once.

    Parameters, buffers, inputs and the optimizer's state stay from the first op to the last. What ops allocate lives
    for as long as Python and autograd held it when the network was captured, local variables included. Of compiled
    networks, and of graphs that were not captured from torch, results live until their last reader has run, and what
    the network returns and the gradients of parameters live to the end. Scratch memory of libraries, such as the
    workspace of a convolution or of a recurrent layer, is left out.

    Args:
        graph: The network.
        device: Where it runs: the allocator of a GPU rounds every tensor up to ``GPU_BLOCK_BYTES``. By default bytes
            are counted as they are.
        software: What runs it: without fused attention the matrix of scores takes memory. By default as each node
            says, and not compiled.

    Returns:
        Bytes.
    """
    return sum(memory_parts_bytes(graph, device, software).values())


def memory_parts_bytes(
    graph: ComputationGraph, device: Device | None = None, software: Software | None = None
) -> dict[str, int]:
    """What takes the room when most of it is taken, in bytes: the parts add up to ``peak_memory_bytes``.

    Returns:
        Bytes by ``parameters``, ``buffers``, ``inputs``, ``optimizer state``, ``gradients`` and ``activations``.
    """
    block = GPU_BLOCK_BYTES if device is not None and device.kind == "gpu" else 1
    fixed = {
        "parameters": graph.parameter_bytes,
        "buffers": graph.buffer_bytes,
        "inputs": sum(_rounded(tensor.bytes, block) for tensor in graph.inputs),
        "optimizer state": graph.optimizer_state_bytes,
    }
    allocated: dict[int, list[_Storage]] = defaultdict(list)
    freed: dict[int, list[_Storage]] = defaultdict(list)
    attention = None if software is None else software.attention
    compiled = software is not None and software.compiled
    for storage in [*_storages(graph, block, compiled), *_kept_scores(graph, attention, block)]:
        allocated[storage.first_use].append(storage)
        freed[storage.last_use].append(storage)
    live = peak = {"gradients": 0, "activations": 0}
    for position, node in enumerate(graph.nodes):
        live = _changed(live, allocated[position], 1)
        scratch = _scratch_bytes(node, attention) + _optimizer_scratch_bytes(node, device)
        if sum(live.values()) + scratch > sum(peak.values()):
            peak = {**live, "activations": live["activations"] + scratch}
        live = _changed(live, freed[position], -1)
    return {**{name: _rounded(size, block) for name, size in fixed.items()}, **peak}


def _changed(live: dict[str, int], storages: Iterable[_Storage], sign: int) -> dict[str, int]:
    changed = dict(live)
    for storage in storages:
        changed["gradients" if storage.is_gradient else "activations"] += sign * storage.bytes
    return changed


def largest_batch_size(graph: ComputationGraph, device: Device, software: Software | None = None) -> int:
    """The largest batch whose peak memory the device has, by search over rescaled graphs; 0 if not even one fits.

    Raises:
        ValueError: If the graph cannot be rescaled.
    """

    def fits(batch_size: int) -> bool:
        return peak_memory_bytes(graph.rescale(batch_size), device, software) <= device.memory_bytes

    if not fits(least := graph.smallest_batch_size):
        return 0
    most = 2 * least
    while fits(most):
        least, most = most, 2 * most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least


@dataclass
class _Storage:
    """Memory of one result of an op, and of what later ops write over it in place."""

    bytes: int
    first_use: int
    last_use: int
    is_gradient: bool = False
    specs: set[tuple[tuple[int, ...], str]] = field(default_factory=set)


def _storages(graph: ComputationGraph, block: int, compiled: bool) -> list[_Storage]:
    """All memory that the ops allocate, each with the positions of the first and the last op that needs it."""
    if compiled or not graph.allocations:
        return _until_read(graph, block)
    return [_Storage(_rounded(a.bytes, block), a.first, a.last, a.is_gradient) for a in graph.allocations]


def _until_read(graph: ComputationGraph, block: int) -> list[_Storage]:
    """Results that live until their last reader has run, as a compiler arranges it."""
    incoming: dict[int, list[tuple[Edge, int]]] = defaultdict(list)
    readers: dict[tuple[int, int], int] = {}
    results = [_result(graph.nodes[edge.source], edge) for edge in graph.edges]
    for edge, result in zip(graph.edges, results, strict=True):
        incoming[edge.target].append((edge, result))
        readers[edge.source, result] = max(readers.get((edge.source, result), 0), edge.target)
    end = len(graph.nodes)
    # What autocast casts stays for the backward pass to read, but not after it.
    casts_end = end if graph.mode == "inference" else 0
    of_result: dict[tuple[int, int], _Storage] = {}
    for position, node in enumerate(graph.nodes):
        overwritten = _overwritten(node, position, incoming[position], of_result, readers)
        for number, tensor in enumerate(node.outputs):
            last_use = readers.get((position, number), position)
            spec = (tensor.shape, tensor.dtype)
            if overwritten is not None:
                overwritten.last_use = max(overwritten.last_use, last_use)
                overwritten.specs.add(spec)
                of_result[position, number] = overwritten
            elif not _writes_what_stays(node):
                if tensor.kind == "gradient":
                    last_use = end
                elif tensor.kind == "parameter":
                    last_use = max(last_use, casts_end)
                size = _rounded(tensor.bytes, block)
                is_gradient = tensor.kind == "gradient"
                of_result[position, number] = _Storage(size, position, last_use, is_gradient, {spec})
    storages = list({id(storage): storage for storage in of_result.values()}.values())
    _keep_outputs(graph, storages, of_result, readers)
    return storages


def _result(node: Node, edge: Edge) -> int:
    """Which result of ``node`` flows along an edge that leaves it; a view of it may have another shape."""
    if len(node.outputs) < 2:
        return 0
    tensor = edge.tensor
    tests = (
        lambda t: (t.shape, t.dtype) == (tensor.shape, tensor.dtype),
        lambda t: (t.bytes, t.dtype) == (tensor.bytes, tensor.dtype),
        lambda t: t.dtype == tensor.dtype and t.bytes >= tensor.bytes,
    )
    for test in tests:
        for number, output in enumerate(node.outputs):
            if test(output):
                return number
    return 0


def _overwritten(
    node: Node,
    position: int,
    incoming: Iterable[tuple[Edge, int]],
    of_result: dict[tuple[int, int], _Storage],
    readers: dict[tuple[int, int], int],
) -> _Storage | None:
    """The memory that a node in place writes into, if an op before it allocated that.

    The graph says that the node is in place, not on which operand: it is one as large as the result that nobody reads
    afterwards, since later readers get it from this node. Of several, the largest: the rest may be what is copied.
    """
    if not node.attributes.get("in_place"):
        return None
    written = _specs(node.outputs)
    candidates = [
        of_result[edge.source, result]
        for edge, result in incoming
        if (edge.source, result) in of_result
        and readers[edge.source, result] == position
        and (edge.tensor.shape, edge.tensor.dtype) in written
    ]
    return max(candidates, key=lambda storage: storage.bytes, default=None)


def _writes_what_stays(node: Node) -> bool:
    """Whether a node writes in place into what is there from the start: an input, a parameter, a buffer, state."""
    stays = ("input", "parameter", "constant", "state")
    return bool(node.attributes.get("in_place")) and any(tensor.kind in stays for tensor in node.outputs)


def _keep_outputs(
    graph: ComputationGraph,
    storages: list[_Storage],
    of_result: dict[tuple[int, int], _Storage],
    readers: dict[tuple[int, int], int],
) -> None:
    """Let what the network returns live to the end.

    The graph lists the shapes of its outputs, not who wrote them: first come results that nobody reads, from the last
    op on, then those that somebody does read. Where an output is a view of another shape, all results without a
    reader stay.
    """
    end = len(graph.nodes)
    forward = {i for i, node in enumerate(graph.nodes) if node.phase == "forward"}
    unread = [s for (i, number), s in of_result.items() if i in forward and (i, number) not in readers]
    pending = [(tensor.shape, tensor.dtype) for tensor in graph.outputs if tensor.kind == "activation"]
    read = [s for s in storages if s.first_use in forward]
    for storage in [*reversed(unread), *reversed(read)]:
        if storage.last_use < end and (match := next((spec for spec in pending if spec in storage.specs), None)):
            pending.remove(match)
            storage.last_use = end
    if pending and graph.mode == "inference":
        for storage in unread:
            storage.last_use = end


def _kept_scores(graph: ComputationGraph, attention: str | None, block: int) -> Iterator[_Storage]:
    """The softmax of the scores that decomposed attention keeps for its backward pass."""
    for edge in graph.edges:
        source, target = graph.nodes[edge.source], graph.nodes[edge.target]
        if (source.op, target.op) == ("attention", "attention_backward"):
            yield _Storage(_rounded(_scratch_bytes(source, attention) // 2, block), edge.source, edge.target)


def _scratch_bytes(node: Node, attention: str | None) -> int:
    """What decomposed attention holds besides its results: the scores, and their softmax."""
    if node.op not in ("attention", "attention_backward"):
        return 0
    if "decomposed" not in (attention, node.attributes.get("attention_implementation")):
        return 0
    query, key = node.inputs[:2] if node.op == "attention" else node.inputs[1:3]
    return 2 * TensorSpec((*query.shape[:-1], key.shape[-2]), query.dtype).bytes


def _optimizer_scratch_bytes(node: Node, device: Device | None) -> int:
    """Temporaries of an update: of all parameters on GPUs, of one at a time elsewhere."""
    key = "multi_tensor_scratch_bytes" if device is not None and device.kind == "gpu" else "loop_scratch_bytes"
    size = node.attributes.get(key, 0)
    return size if isinstance(size, int) else 0


def _specs(tensors: Iterable[TensorSpec]) -> set[tuple[tuple[int, ...], str]]:
    return {(tensor.shape, tensor.dtype) for tensor in tensors}


def _rounded(size: int, block: int) -> int:
    return -(-size // block) * block
