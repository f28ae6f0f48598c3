"""The computation graph: nodes are ops, edges are the tensors that flow between them."""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gnnperf.graph.validation import MAX_INTEGER, problems
from gnnperf.graph.vocabulary import ITEM_BYTES

if TYPE_CHECKING:
    import networkx as nx

Attribute = bool | int | float | str | list[int]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor without its data.

    Attributes:
        shape: Size of every dimension.
        dtype: Name as torch spells it, such as ``float32``.
        kind: What it is: ``activation``, ``parameter``, ``constant`` (buffers and literals), ``input``, ``gradient``
            (of a parameter, once it is complete) or ``state`` (of the optimizer).
        broadcast: Dimensions that repeat the same memory (stride 0), which therefore cost no bytes.
        layout: In which order the dimensions lie in memory: ``row_major`` (the last is innermost), ``channels_last``
            (images or volumes whose channels are innermost), ``permuted`` (another order, the last still innermost) or
            ``transposed`` (another dimension is innermost).
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
        if not self.broadcast:
            return math.ceil(math.prod(self.shape) * ITEM_BYTES[self.dtype])
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


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that a run takes and gives back.

    Attributes:
        first: Position of the node that is first to need it.
        last: Position of the last node that ran before it was given back; the last of all where it stays.
        bytes: Its size.
        bytes_slope: How much that grows with one more sample.
        is_gradient: Whether it holds the gradient of a parameter.
    """

    first: int
    last: int
    bytes: int
    bytes_slope: float = 0.0
    is_gradient: bool = False

    def rescale(self, extra_samples: int) -> Allocation:
        """The same memory with ``extra_samples`` more samples in the batch."""
        return replace(self, bytes=_grow(self.bytes, self.bytes_slope, extra_samples))


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
        optimizer_state_bytes: Bytes that the optimizer keeps from step to step, such as moments.
        allocations: The memory of results as the run held it, views, saved tensors and local variables included; empty
            where that was not seen.
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
    optimizer_state_bytes: int = 0
    allocations: tuple[Allocation, ...] = ()
    warnings: tuple[str, ...] = ()
    rescale_error: str = ""
    smallest_batch_size: int = 1

    def validate(self) -> None:
        """Check the graph's own consistency.

        Raises:
            ValueError: With the first inconsistency found.
        """
        for problem in problems(self):
            raise ValueError(f"graph {self.name!r}: {problem}")

    def rescale(self, batch_size: int) -> ComputationGraph:
        """The graph that a trace at another batch size would give.

        A captured graph was checked against traces at a few batches, one of at least 64. What code does only beyond
        them or between them, such as another algorithm above a thousand rows, is not known: where that matters, capture
        at the batch itself.

        Raises:
            ValueError: If ``batch_size`` is not a positive integer of 64 bits, the graph does not scale with its batch,
                or a tensor would be larger than 64 bits count.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch size must be a positive integer, not {batch_size!r}")
        if batch_size > MAX_INTEGER:
            raise ValueError(f"batch size {reprlib.repr(batch_size)} is larger than 64 bits")
        if batch_size == self.batch_size:
            return self
        if problem := self.rescale_problem(batch_size):
            raise ValueError(
                f"graph {self.name!r} cannot be rescaled from batch {self.batch_size} to {batch_size}: "
                f"{problem}; capture it again at that batch size"
            )
        extra = batch_size - self.batch_size
        rescaled = replace(
            self,
            nodes=tuple(node.rescale(extra) for node in self.nodes),
            edges=tuple(replace(edge, tensor=edge.tensor.rescale(extra)) for edge in self.edges),
            inputs=tuple(t.rescale(extra) for t in self.inputs),
            outputs=tuple(t.rescale(extra) for t in self.outputs),
            allocations=tuple(a.rescale(extra) for a in self.allocations),
            batch_size=batch_size,
        )
        for problem in problems(rescaled):
            raise ValueError(f"graph {self.name!r} cannot be rescaled to batch {batch_size}: {problem}")
        return rescaled

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

    @cached_property
    def structure_hash(self) -> str:
        """SHA-256 of the forward ops and their shapes: equal for a network in every precision, in training as well."""
        content = [
            (n.op, [t.shape for t in n.inputs], [t.shape for t in n.outputs], _without_mode(n.attributes))
            for n in self.nodes
            if n.phase == "forward" and n.op not in ("cast", "dropout")
        ]
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
        from gnnperf.graph.json_format import to_json

        return to_json(self)

    def save(self, path: str | Path) -> None:
        """Write the graph as JSON."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> ComputationGraph:
        """Read a graph that ``save`` wrote.

        Raises:
            ValueError: If the file is not such a graph, with what is wrong in it.
        """
        from gnnperf.graph.json_format import load

        return load(path)

    @staticmethod
    def from_json(text: str, path: str) -> ComputationGraph:
        """Read what ``to_json`` wrote; ``path`` is where it comes from, for messages.

        Raises:
            ValueError: If it is not such a graph, with what is wrong in it.
        """
        from gnnperf.graph.json_format import from_json

        return from_json(text, path)


def _grow(value: int, slope: float, extra_samples: int) -> int:
    grown = value + slope * extra_samples
    return max(0, round(grown)) if abs(grown) < math.inf else MAX_INTEGER + 1  # what validation refuses


def _tensors(tensors: tuple[TensorSpec, ...]) -> list[tuple[object, ...]]:
    """What of ``tensors`` decides costs; a dimension of size 1 repeats nothing."""
    return [
        (t.shape, t.dtype, t.kind == "parameter", t.layout, [dim for dim in t.broadcast if t.shape[dim] != 1])
        for t in tensors
    ]


def _without_mode(attributes: dict[str, Attribute]) -> list[tuple[str, Attribute]]:
    return sorted((key, value) for key, value in attributes.items() if key not in ("training", "in_place"))
