"""Run a module on tensors without data and write down every op that it dispatches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gnnperf.capture import aten, composites, data_dependent, shape_rules
from gnnperf.capture.autocast import Autocast
from gnnperf.capture.interception import Op
from gnnperf.graph import Attribute, Edge, Node, TensorSpec

_FALLBACK_LIMIT_BYTES = 1 << 30


class Trace(TorchDispatchMode):
    """Records nodes and edges while it is active.

    A tensor is known by its storage: views share it, so they cost nothing and vanish, and a write through any view
    makes the writer the source of all that is read afterwards. Storages are kept alive, so none is taken for another.

    Args:
        autocast: Casts to apply, or None outside of mixed precision.
    """

    def __init__(self, autocast: Autocast | None = None) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.warnings: dict[str, None] = {}
        self.phase = "forward"
        self._autocast = autocast
        self._modules: list[str] = []
        self._writer: dict[int, int] = {}
        self._kind: dict[int, str] = {}
        self._experts: dict[int, int] = {}
        self._alive: dict[int, torch.UntypedStorage] = {}

    @property
    def module(self) -> str:
        """Dotted path of the module that runs now."""
        return self._modules[-1] if self._modules else ""

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
        return TensorSpec(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), kind, broadcast)

    @contextmanager
    def follow(self, module: torch.nn.Module) -> Iterator[None]:
        """Know which submodule of ``module`` runs, by hooks that are removed afterwards."""
        handles = []
        for path, part in module.named_modules():
            handles.append(part.register_forward_pre_hook(lambda *_, path=path: self._modules.append(path), prepend=True))
            handles.append(part.register_forward_hook(lambda *_: _drop_last(self._modules), always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def experts(self, tensor: torch.Tensor) -> int:
        """Number of experts among which the routing behind ``tensor`` chooses; 0 if there is none."""
        return self._experts.get(self._key(tensor), 0)

    def warn(self, message: str) -> None:
        """Keep ``message`` for the user, with the place."""
        self.warnings[f"{self.module or 'the network'}: {message}"] = None

    def intercept(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Cast the operands as autocast would; make composites one node."""
        if self._autocast is not None:
            args, kwargs = self._autocast(op, args, kwargs)
        composite = composites.build(op, args, kwargs)
        if composite is None:
            return op(*args, **kwargs)
        self.record(composite.op, composite.inputs, composite.outputs, composite.attributes)
        return composite.returned

    def __torch_dispatch__(self, op: Op, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run one ATen op on shapes and record it, unless it is a view or does no work."""
        info = aten.describe(op)
        args, kwargs = self._on_one_device(args, kwargs or {})
        returned = self._run(op, info, args, kwargs)
        if info.views or info.name in aten.NOT_OPS:
            return returned
        bound = {**dict(zip(info.arguments, args, strict=False)), **kwargs}
        written = list(_tensors(bound.get(info.arguments[i]) for i in info.written))
        reads = list(_tensors(v for k, v in bound.items() if not (info.overwritten and self._is_written(info, k))))
        known = {self._key(t) for t in _tensors(bound.values())}
        fresh = [t for t in _tensors((returned,)) if self._key(t) not in known]
        outputs = fresh or written
        if outputs:
            name, reads, attributes = aten.canonical(info, args, kwargs, reads, outputs)
            self.record(name, reads, outputs, attributes, written)
        return returned

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
        self._tag_routing(op, inputs, outputs, attributes)
        for tensor in (*outputs, *written):
            self._writer[self._key(tensor)] = position
        if op == "cast" and weights == [True]:  # a cast weight is still a weight
            self.label(outputs, "parameter")
        produced = tuple(self.spec(t) for t in outputs)
        self.nodes.append(
            Node(f"{op}_{position}", op, specs, produced, attributes, phase=self.phase, module=self.module)
        )

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
        storage = tensor.untyped_storage()
        return self._alive.setdefault(storage._cdata, storage)._cdata

    def _run(self, op: Op, info: aten.OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        on_meta = any(t.device.type == "meta" for t in _tensors((args, kwargs)))
        if on_meta and info.name == "_local_scalar_dense":
            raise ValueError("it needs the value of a tensor (.item(), bool() or a loop over data), and only shapes are known")
        if on_meta and info.name in data_dependent.RULES:
            return data_dependent.RULES[info.name](self, *args, **kwargs)
        if on_meta and info.name == "index":
            args = (args[0], data_dependent.index_by_position(self, args[1]))
        if on_meta and not info.written and (known := shape_rules.result(info.name, args)) is not None:
            return known
        try:
            return op(*args, **kwargs)
        except NotImplementedError as error:
            return self._run_on_zeros(op, args, kwargs, error)

    def _run_on_zeros(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Any:
        """Learn the result's shape of an op without a meta kernel by running it on zeros on the CPU."""
        if sum(t.numel() * t.element_size() for t in _tensors((args, kwargs))) > _FALLBACK_LIMIT_BYTES:
            raise ValueError(
                f"op {op.__name__!r} cannot run without data; register a fake implementation (torch.library.register_fake)"
            ) from error

        def to(value: Any, device: str) -> Any:
            if isinstance(value, torch.Tensor):
                zeros = torch.zeros(value.shape, dtype=value.dtype)
                return zeros if device == "cpu" else torch.empty_like(value, device="meta")
            if isinstance(value, tuple | list):
                return type(value)(to(item, device) for item in value)
            return value

        try:
            result = op(*to(args, "cpu"), **{key: to(value, "cpu") for key, value in kwargs.items()})
        except Exception as failure:
            raise ValueError(
                f"op {op.__name__!r} runs neither on shapes alone nor on zeros ({failure}); "
                "register a fake implementation (torch.library.register_fake)"
            ) from failure
        return to(result, "meta")

    def _on_one_device(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Take constants that the module made on the CPU along to ``meta`` where they meet its tensors."""
        devices = {t.device.type for t in _tensors((args, kwargs))}
        if len(devices) < 2:
            return args, kwargs

        def move(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.device.type != "meta":
                moved = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
                for known in (self._writer, self._experts):
                    if self._key(value) in known:
                        known[self._key(moved)] = known[self._key(value)]
                return moved
            if isinstance(value, tuple | list):
                return type(value)(move(item) for item in value)
            return value

        return tuple(move(a) for a in args), {key: move(value) for key, value in kwargs.items()}


def _drop_last(modules: list[str]) -> None:
    modules.pop()


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list | dict):
            yield from _tensors(value)
