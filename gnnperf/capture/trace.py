"""Run a module on tensors without data and write down every op that it dispatches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gnnperf.capture import aten, composites, data_dependent, execution
from gnnperf.capture.autocast import Autocast
from gnnperf.capture.execution import convert, tensors
from gnnperf.capture.interception import Op, suspended
from gnnperf.capture.layouts import copies_input, layout
from gnnperf.capture.module_path import ModulePath
from gnnperf.capture.storages import Storages
from gnnperf.graph import Allocation, Attribute, Edge, Node, TensorSpec


class Trace(TorchDispatchMode):
    """Records nodes and edges while it is active.

    A tensor is known by its storage: views share it, so they cost nothing and vanish, and a write through any view
    makes the writer the source of all that is read afterwards.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.warnings: dict[str, None] = {}
        self.phase = "forward"
        self.autocast = Autocast()
        self.path = ModulePath()
        self._writer: dict[int, int] = {}
        self._kind: dict[int, str] = {}
        self._experts: dict[int, int] = {}
        self._storages = Storages()
        self._written_by: list[list[int]] = []
        self._place_of: dict[int, str] = {}

    def label(self, tensors: Iterable[torch.Tensor], kind: str) -> None:
        """Say that ``tensors`` existed before the trace, as parameters, constants or inputs."""
        for tensor in tensors:
            self._kind[self._key(tensor)] = kind

    def spec(self, tensor: torch.Tensor) -> TensorSpec:
        """What the graph keeps of ``tensor``."""
        key = self._key(tensor)
        kind = self._kind.get(key) or ("activation" if key in self._writer else "constant")
        strides = zip(tensor.stride(), tensor.shape, strict=True) if tensor.layout is torch.strided else ()
        broadcast = tuple(dim for dim, (stride, size) in enumerate(strides) if stride == 0 and size > 1)
        dtype = str(tensor.dtype).removeprefix("torch.")
        return TensorSpec(tuple(tensor.shape), dtype, kind, broadcast, layout(tensor))

    def relabel(self, tensors: Iterable[torch.Tensor], kind: str) -> None:
        """Say what the results in ``tensors`` turned out to be, in the nodes that wrote them and the edges from there.

        Readers that are nodes already keep what they saw.
        """
        for tensor in tensors:
            self._kind[key := self._key(tensor)] = kind
            if (writer := self._writer.get(key)) is not None:
                node, keys = self.nodes[writer], self._written_by[writer]
                outputs = [replace(t, kind=kind) if k == key else t for t, k in zip(node.outputs, keys, strict=True)]
                self.nodes[writer] = replace(node, outputs=tuple(outputs))

    @property
    def allocations(self) -> list[Allocation]:
        """The memory of results until now; what is still held counts to the end."""
        return [
            Allocation(first, last, size, is_gradient=self._kind.get(key) == "gradient")
            for key, size, first, last in self._storages.lives()
        ]

    def experts(self, tensor: torch.Tensor) -> int:
        """Number of experts among which the routing behind ``tensor`` chooses; 0 if there is none."""
        return self._experts.get(self._key(tensor), 0)

    def warn(self, message: str) -> None:
        """Keep ``message`` for the user, with the place."""
        self.warnings[f"{self.path.current or 'the network'}: {message}"] = None

    def intercept(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Cast the operands as autocast would; make composites one node."""
        args, kwargs = self.autocast(op, args, kwargs)
        op, args, kwargs = composites.as_on_cuda(op, args, kwargs)
        composite = composites.build(op, args, kwargs)
        return op(*args, **kwargs) if composite is None else composite.record(self)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would guard every op from being compiled; what runs in here is called from code that is not."""
        return False

    def __torch_dispatch__(self, op: Op, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run one ATen op on shapes and record it, unless it is a view or does no work."""
        info = aten.describe(op)
        kwargs = kwargs or {}
        if info.name not in data_dependent.READ_VALUES:
            args, kwargs = self._on_one_device(args, kwargs)
        known = {self._key(t) for t in tensors((args, kwargs))}
        with suspended():
            returned = execution.run(self, op, info, args, kwargs)
        results = tensors((returned,))
        for tensor in results:
            if tensor.is_meta:
                self._storages.take(tensor)
        if info.views or info.name in aten.NOT_OPS:
            return returned
        bound = {**dict(zip(info.arguments, args, strict=False)), **kwargs}
        written = tensors([bound.get(info.arguments[i]) for i in info.written])
        reads = tensors([v for k, v in bound.items() if not (info.overwritten and self._is_written(info, k))])
        fresh = [t for t in results if self._key(t) not in known]
        outputs = fresh or written
        if outputs and not self._copies_onto_itself(info, args):
            name, reads, attributes = aten.canonical(info, args, kwargs, reads, outputs)
            if not fresh:
                attributes["in_place"] = True
            self.record(name, reads, outputs, attributes, written)
        return returned

    def _copies_onto_itself(self, info: aten.OpInfo, args: tuple[Any, ...]) -> bool:
        """Whether this is the write-back of ``x[i] += 1``, which torch skips."""
        return (
            info.name == "copy"
            and len(info.written) == 1
            and isinstance(args[1], torch.Tensor)
            and self._key(args[0]) == self._key(args[1])
            and _is_same_memory(args[0], args[1])
        )

    @staticmethod
    def _is_written(info: aten.OpInfo, argument: str) -> bool:
        return any(info.arguments[i] == argument for i in info.written)

    def record(
        self,
        op: str,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        attributes: dict[str, Attribute],
        written: Iterable[torch.Tensor] = (),
    ) -> None:
        """Add a node and the edges from whoever wrote what it depends on."""
        position = len(self.nodes)
        specs = tuple(self.spec(t) for t in inputs)
        weights = [spec.kind == "parameter" for spec in specs]
        if op == "matmul" and len(specs) > 1 and weights[1]:
            op = "linear"
        for tensor in dict.fromkeys((*inputs, *written)):
            if (source := self._writer.get(self._key(tensor))) is not None:
                self.edges.append(Edge(source, position, self.spec(tensor)))
        if inputs and copies_input(op, inputs[0]):
            attributes["copies_input"] = True
        self._tag_routing(op, inputs, outputs, attributes)
        for tensor in (*outputs, *written):
            self._writer[self._key(tensor)] = position
        if op == "cast" and weights == [True]:  # a cast weight is still a weight
            self.label(outputs, "parameter")
        produced = tuple(self.spec(t) for t in outputs)
        self.nodes.append(
            Node(f"{op}_{position}", op, specs, produced, attributes, phase=self.phase, module=self._place())
        )
        self._written_by.append([self._key(t) for t in outputs])
        self._storages.tick()

    def _place(self) -> str:
        """Path of the module that an op belongs to; in the backward pass, of the one whose forward it differentiates.

        Autograd numbers its nodes as the forward makes them, before the op itself is dispatched.
        """
        running = torch._C._current_autograd_node()
        if running is not None and not self.path.current:
            return self._place_of.get(running._sequence_nr(), "")
        self._place_of.setdefault(torch._C._autograd._get_sequence_nr() - 1, self.path.current)
        return self.path.current

    def _tag_routing(
        self, op: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor], attributes: dict[str, Attribute]
    ) -> None:
        experts = max((self.experts(t) for t in inputs), default=0)
        axes = attributes.get("axes")
        if op in ("topk", "argmax") and isinstance(axes, list) and inputs[0].dim():
            experts = inputs[0].shape[axes[0]]
        if experts:
            self._experts.update((self._key(t), experts) for t in outputs if not t.is_floating_point())

    def _key(self, tensor: torch.Tensor) -> int:
        return self._storages.key(tensor)

    def _on_one_device(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Take constants that the module made on the CPU along to ``meta`` where they meet its tensors."""
        if len({t.device.type for t in tensors((args, kwargs))}) < 2:
            return args, kwargs

        def move(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.device.type == "meta":
                return tensor
            moved = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            self._storages.identify(moved, tensor)  # what is written to one is read from the other
            return moved

        return convert(args, move), convert(kwargs, move)


def _is_same_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors of one storage are the same view of it, as after ``x[i] += 1``."""
    return (x.dtype, x.shape, x.stride(), x.storage_offset()) == (y.dtype, y.shape, y.stride(), y.storage_offset())
