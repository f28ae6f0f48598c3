"""The computation graph: nodes are ops, edges are the tensors that flow between them."""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import networkx as nx

FORMAT_VERSION = 1
MODES = ("inference", "training")
PHASES = ("forward", "loss", "backward", "optimizer")
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "amp", "amp_bf16")
LAYOUTS = ("row_major", "channels_last", "permuted")
TENSOR_KINDS = ("activation", "parameter", "constant", "input")

ITEM_BYTES: dict[str, float] = {
    "complex128": 16,
    "complex64": 8,
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "int4": 0.5,
    "uint4": 0.5,
}

# Values that files leave out.
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "broadcast": ((),),
    "batch_slope": ((),),
    "layout": ("row_major",),
    "attributes": ({},),
    "attribute_slopes": ({},),
}

Attribute = bool | int | float | str | list[int]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor without its data.

    Attributes:
        shape: Size of every dimension.
        dtype: Name as torch spells it, such as ``float32``.
        kind: Where it comes from: ``activation``, ``parameter``, ``constant`` (buffers and literals) or ``input``.
        broadcast: Dimensions that repeat the same memory (stride 0), which therefore cost no bytes.
        layout: In which order the dimensions lie in memory: ``row_major`` (the last is innermost), ``channels_last``
            (images or volumes whose channels are innermost), or ``permuted`` (any other).
        batch_slope: For every dimension, how much it grows with one more sample; empty if none does.
    """

    shape: tuple[int, ...]
    dtype: str
    kind: str = "activation"
    broadcast: tuple[int, ...] = ()
    layout: str = "row_major"
    batch_slope: tuple[float, ...] = ()

    @property
    def elements(self) -> int:
        """Number of elements that a reader sees."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Distinct bytes in memory behind the tensor."""
        stored = math.prod(size for dim, size in enumerate(self.shape) if dim not in self.broadcast or size == 0)
        return math.ceil(stored * ITEM_BYTES[self.dtype])

    def rescale(self, extra_samples: int) -> TensorSpec:
        """The same tensor with ``extra_samples`` more samples in the batch."""
        if not self.batch_slope:
            return self
        shape = tuple(_grow(s, k, extra_samples) for s, k in zip(self.shape, self.batch_slope, strict=True))
        return replace(self, shape=shape)


@dataclass(frozen=True, slots=True)
class Node:
    """One op as the framework runs it.

    Attributes:
        name: Unique within the graph.
        op: Canonical op type, the same for torch and ONNX (see ``gnnperf.cost``).
        inputs: Tensor operands in their positional order.
        outputs: Tensor results.
        attributes: What besides the shapes decides the cost: strides, groups, axes and so on.
        attribute_slopes: For the attributes that change with the batch, their growth by sample.
        phase: One of ``PHASES``.
        module: Dotted path of the module that ran the op; empty at the root.
    """

    name: str
    op: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    attribute_slopes: dict[str, float] = field(default_factory=dict)
    phase: str = "forward"
    module: str = ""

    def rescale(self, extra_samples: int) -> Node:
        """The same node with ``extra_samples`` more samples in the batch."""
        attributes = dict(self.attributes)
        for key, slope in self.attribute_slopes.items():
            attributes[key] = _grow(int(attributes[key]), slope, extra_samples)  # type: ignore[arg-type]
        return replace(
            self,
            inputs=tuple(t.rescale(extra_samples) for t in self.inputs),
            outputs=tuple(t.rescale(extra_samples) for t in self.outputs),
            attributes=attributes,
        )


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor that node ``source`` wrote and node ``target`` depends on; both are positions in the node list."""

    source: int
    target: int
    tensor: TensorSpec


@dataclass(frozen=True)
class ComputationGraph:
    """A network as the sequence of ops that it runs and the tensors between them.

    Nodes stand in execution order, so every edge points forward.

    Attributes:
        name: What the network is called, for people.
        nodes: The ops.
        edges: The tensors between ops.
        inputs: What the caller feeds.
        outputs: What the caller gets back.
        mode: ``inference`` or ``training``.
        precision: One of ``PRECISIONS``.
        batch_size: Size of the leading dimension of the first input.
        parameter_count: Number of parameters, shared ones counted once.
        parameter_bytes: Their bytes.
        buffer_bytes: Bytes of buffers such as running statistics.
        warnings: What was assumed while the graph was made.
        rescale_error: Why the graph cannot be rescaled; empty when it can.
        smallest_batch_size: Where it can, the smallest batch for which it runs the same ops.
    """

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    mode: str = "inference"
    precision: str = "fp32"
    batch_size: int = 1
    parameter_count: int = 0
    parameter_bytes: int = 0
    buffer_bytes: int = 0
    warnings: tuple[str, ...] = ()
    rescale_error: str = ""
    smallest_batch_size: int = 1

    def validate(self) -> None:
        """Check the graph's own consistency.

        Raises:
            ValueError: With the first inconsistency found.
        """
        for problem in self._problems():
            raise ValueError(f"graph {self.name!r}: {problem}")

    def _problems(self) -> Iterator[str]:
        if self.mode not in MODES:
            yield f"mode {self.mode!r} is not one of {', '.join(MODES)}"
        if self.precision not in PRECISIONS:
            yield f"precision {self.precision!r} is not one of {', '.join(PRECISIONS)}"
        if min(self.batch_size, self.smallest_batch_size) < 1:
            yield f"batch size {min(self.batch_size, self.smallest_batch_size)} is not positive"
        if min(self.parameter_count, self.parameter_bytes, self.buffer_bytes) < 0:
            yield "a parameter or buffer size is negative"
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                yield f"two nodes are named {node.name!r}"
            seen.add(node.name)
            if not node.op:
                yield f"node {node.name!r} has no op"
            if node.phase not in PHASES:
                yield f"node {node.name!r} has the unknown phase {node.phase!r}"
            if any(type(node.attributes.get(key, 0)) is not int for key in node.attribute_slopes):
                yield f"node {node.name!r} scales an attribute that is no integer"
            if stray := node.attribute_slopes.keys() - node.attributes.keys():
                yield f"node {node.name!r} scales attributes that it lacks: {', '.join(sorted(stray))}"
            for tensor in (*node.inputs, *node.outputs):
                yield from (f"node {node.name!r}: {p}" for p in _tensor_problems(tensor))
        for edge in self.edges:
            if not 0 <= edge.source < edge.target < len(self.nodes):
                yield f"edge {edge.source} -> {edge.target} does not point forward to an existing node"
            yield from (f"edge {edge.source} -> {edge.target}: {p}" for p in _tensor_problems(edge.tensor))
        for tensor in (*self.inputs, *self.outputs):
            yield from (f"graph input or output: {p}" for p in _tensor_problems(tensor))

    def rescale(self, batch_size: int) -> ComputationGraph:
        """The graph that a trace at another batch size would give.

        Raises:
            ValueError: If ``batch_size`` is not a positive integer or the graph does not scale with its batch.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch size must be a positive integer, not {batch_size!r}")
        if batch_size == self.batch_size:
            return self
        if problem := self.rescale_problem(batch_size):
            raise ValueError(
                f"graph {self.name!r} cannot be rescaled from batch {self.batch_size} to {batch_size}: "
                f"{problem}; capture it again at that batch size"
            )
        extra = batch_size - self.batch_size
        return replace(
            self,
            nodes=tuple(node.rescale(extra) for node in self.nodes),
            edges=tuple(replace(edge, tensor=edge.tensor.rescale(extra)) for edge in self.edges),
            inputs=tuple(t.rescale(extra) for t in self.inputs),
            outputs=tuple(t.rescale(extra) for t in self.outputs),
            batch_size=batch_size,
        )

    def rescale_problem(self, batch_size: int) -> str:
        """Why the graph cannot be rescaled to ``batch_size``; empty when it can."""
        if batch_size == self.batch_size:
            return ""
        if not self.rescale_error and batch_size < self.smallest_batch_size:
            return f"below batch {self.smallest_batch_size} it runs other ops"
        return self.rescale_error

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of everything that decides the cost: equal for equal networks whatever their names."""
        content = (
            [
                (n.op, _tensors(n.inputs), _tensors(n.outputs), sorted(n.attributes.items()), n.phase)
                for n in self.nodes
            ],
            [(e.source, e.target, _tensors((e.tensor,))) for e in self.edges],
            self.mode,
            self.precision,
        )
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def to_networkx(self) -> nx.MultiDiGraph:
        """A networkx multigraph: node ids are positions, attributes are the fields of ``Node`` and ``TensorSpec``."""
        import networkx as nx

        graph: nx.MultiDiGraph = nx.MultiDiGraph(
            name=self.name, mode=self.mode, precision=self.precision, batch_size=self.batch_size
        )
        for position, node in enumerate(self.nodes):
            graph.add_node(position, **{key: getattr(node, key) for key in Node.__slots__})
        for edge in self.edges:
            tensor = edge.tensor
            graph.add_edge(edge.source, edge.target, shape=tensor.shape, dtype=tensor.dtype, bytes=tensor.bytes)
        return graph

    def to_json(self) -> str:
        """The graph as one line of JSON."""
        content = {"gnnperf_graph": FORMAT_VERSION, **_plain(self)}
        return json.dumps(content, separators=(",", ":"))

    def save(self, path: str | Path) -> None:
        """Write the graph as JSON."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> ComputationGraph:
        """Read a graph that ``save`` wrote.

        Raises:
            ValueError: If the file is not such a graph, with what is wrong in it.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"), str(path))
        except OSError as error:
            raise ValueError(f"cannot read graph file {str(path)!r}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"{str(path)!r} is not a graph saved by gnnperf: not valid JSON ({error})") from error

    @classmethod
    def from_json(cls, text: str, path: str) -> ComputationGraph:
        """Read what ``to_json`` wrote; ``path`` is where it comes from, for messages.

        Raises:
            ValueError: If it is not such a graph, with what is wrong in it.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{str(path)!r} is not a graph saved by gnnperf: not valid JSON ({error})") from error
        if not isinstance(content, dict) or "gnnperf_graph" not in content:
            raise ValueError(f"{str(path)!r} is not a graph saved by gnnperf: the key 'gnnperf_graph' is missing")
        version = content.pop("gnnperf_graph")
        if version != FORMAT_VERSION:
            raise ValueError(
                f"{str(path)!r} has graph format {version!r}, this gnnperf reads {FORMAT_VERSION}: capture it again"
            )
        try:
            graph = _from_json(content)
            graph.validate()
        except KeyError as error:
            raise ValueError(f"{str(path)!r} is damaged: the key {error} is missing") from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"{str(path)!r} is damaged: {error}") from error
        return graph


def _grow(value: int, slope: float, extra_samples: int) -> int:
    return max(0, round(value + slope * extra_samples))


def _tensors(tensors: tuple[TensorSpec, ...]) -> list[tuple[object, ...]]:
    """What of ``tensors`` decides costs; a dimension of size 1 repeats nothing."""
    return [
        (t.shape, t.dtype, t.kind == "parameter", t.layout, [dim for dim in t.broadcast if t.shape[dim] != 1])
        for t in tensors
    ]


def _tensor_problems(tensor: TensorSpec) -> Iterator[str]:
    if tensor.dtype not in ITEM_BYTES:
        yield f"unknown dtype {tensor.dtype!r}"
    if tensor.kind not in TENSOR_KINDS:
        yield f"unknown tensor kind {tensor.kind!r}"
    if tensor.layout not in LAYOUTS:
        yield f"unknown layout {tensor.layout!r}"
    if any(type(size) is not int or not 0 <= size < 1 << 63 for size in tensor.shape):
        yield f"shape {list(tensor.shape)} has a size that is not a non-negative 64-bit integer"
    if any(not 0 <= dim < len(tensor.shape) for dim in tensor.broadcast):
        yield f"broadcast dimensions {list(tensor.broadcast)} lie outside of shape {list(tensor.shape)}"
    if tensor.batch_slope and len(tensor.batch_slope) != len(tensor.shape):
        yield f"{len(tensor.batch_slope)} batch slopes for {len(tensor.shape)} dimensions"


def _plain(value: Any) -> Any:
    """Plain values for JSON; empty optional fields are left out, so that files stay small."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, TensorSpec | Node | Edge | ComputationGraph):
        content = {f.name: getattr(value, f.name) for f in fields(value)}
        return {key: _plain(item) for key, item in content.items() if item not in _DEFAULTS.get(key, ())}
    return value


def _from_json(content: dict[str, Any]) -> ComputationGraph:
    read: dict[str, Any] = {key: _read_tensors(content[key]) for key in ("inputs", "outputs")}
    read["nodes"] = tuple(_read_node(node) for node in content["nodes"])
    read["edges"] = tuple(_typed(Edge(**{**e, "tensor": _read_tensors([e["tensor"]])[0]})) for e in content["edges"])
    read["warnings"] = tuple(content["warnings"])
    return _typed(ComputationGraph(**{**content, **read}))


def _read_node(node: dict[str, Any]) -> Node:
    return _typed(Node(**{**node, "inputs": _read_tensors(node["inputs"]), "outputs": _read_tensors(node["outputs"])}))


def _read_tensors(tensors: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(_typed(TensorSpec(**{key: _tuple(item) for key, item in tensor.items()})) for tensor in tensors)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_integer(value: Any) -> bool:
    return type(value) is int


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_attribute(value: Any) -> bool:
    return isinstance(value, bool | str) or _is_number(value) or (type(value) is list and all(map(_is_integer, value)))


# What a file may hold in a field of the given type; the other types are built by the reader itself.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: type(value) is str,
    "int": _is_integer,
    "tuple[int, ...]": lambda value: type(value) is tuple and all(map(_is_integer, value)),
    "tuple[float, ...]": lambda value: type(value) is tuple and all(map(_is_number, value)),
    "tuple[str, ...]": lambda value: all(type(item) is str for item in value),
    "dict[str, float]": lambda value: type(value) is dict and all(map(_is_number, value.values())),
    "dict[str, Attribute]": lambda value: type(value) is dict and all(map(_is_attribute, value.values())),
}
_Read = TypeVar("_Read", TensorSpec, Node, Edge, ComputationGraph)


def _typed(value: _Read) -> _Read:
    """``value`` itself, if its fields are of their types."""
    for item in fields(value):
        check = _CHECKS.get(str(item.type))
        if check is not None and not check(getattr(value, item.name)):
            raise ValueError(f"{item.name} is {reprlib.repr(getattr(value, item.name))}, not {item.type}")
    return value
