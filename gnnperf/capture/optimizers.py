"""The optimizer's update as one op over all parameters, as the fused kernels of GPUs run it."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gnnperf.capture.execution import first_line
from gnnperf.capture.trace import Trace
from gnnperf.cost import node_cost
from gnnperf.graph import Attribute

# Only whether state is kept matters, not how fast the weights would move.
_RATE = 1e-3
_MANY = 1000
# Which kernels run is not the optimizer's to say: all of its update is one node.
_IMPLEMENTATIONS = ("fused", "foreach", "capturable", "differentiable")
NAMED: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": _RATE}),
    "momentum": (torch.optim.SGD, {"lr": _RATE, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": _RATE}),
    "adamw": (torch.optim.AdamW, {"lr": _RATE}),
    "adagrad": (torch.optim.Adagrad, {"lr": _RATE}),
    "adadelta": (torch.optim.Adadelta, {"lr": _RATE}),
    "rmsprop": (torch.optim.RMSprop, {"lr": _RATE}),
}
OptimizerLike = str | type[torch.optim.Optimizer] | torch.optim.Optimizer
# Makes the optimizer of a copy of the module, given the copy's parameters in the module's order.
Maker = Callable[[Sequence[torch.nn.Parameter]], torch.optim.Optimizer]


def maker(optimizer: OptimizerLike, parameters: Sequence[torch.nn.Parameter]) -> Maker:
    """How to make an optimizer like ``optimizer`` for a copy of ``parameters``.

    Args:
        optimizer: A name of ``NAMED``, a class that works with its default hyperparameters, or an optimizer of
            ``parameters`` or some of them, whose groups and hyperparameters are taken over; it is only read.
        parameters: Those of the module, in its order.

    Raises:
        ValueError: If it is none of these, or holds parameters of another module.
    """
    if isinstance(optimizer, str):
        if optimizer not in NAMED:
            raise ValueError(f"optimizer must be one of {', '.join(NAMED)}, or a torch optimizer, not {optimizer!r}")
        cls, settings = NAMED[optimizer]
        return lambda copies: cls(_trainable(copies), **settings)
    if isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer):
        return lambda copies: _with_defaults(optimizer, _trainable(copies))
    if isinstance(optimizer, torch.optim.Optimizer):
        return _like(optimizer, parameters)
    raise ValueError(f"optimizer must be one of {', '.join(NAMED)}, or a torch optimizer, not {optimizer!r}")


def _trainable(parameters: Sequence[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    return [p for p in parameters if p.requires_grad]


def _with_defaults(cls: type[torch.optim.Optimizer], parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    error: Exception | None = None
    for settings in ({}, {"lr": _RATE}):  # older optimizers want to be told a rate
        try:
            return cls(parameters, **settings)  # type: ignore[arg-type]
        except Exception as raised:
            error = error or raised
    assert error is not None
    raise ValueError(
        f"{cls.__name__} cannot be made with its default hyperparameters ({first_line(error)}); "
        "give an optimizer of the module's parameters instead of the class"
    ) from error


def _like(optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter]) -> Maker:
    position = {id(p): number for number, p in enumerate(parameters)}
    if any(id(p) not in position for group in optimizer.param_groups for p in group["params"]):
        raise ValueError(f"the {type(optimizer).__name__} holds parameters that are not the module's")

    def make(copies: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return _copy(optimizer, {id(p): (p, copy) for p, copy in zip(parameters, copies, strict=True)})

    return make


def _copy(
    optimizer: torch.optim.Optimizer, pairs: dict[int, tuple[torch.nn.Parameter, torch.nn.Parameter]]
) -> torch.optim.Optimizer:
    """A copy of ``optimizer`` on the second parameter of every pair; its state holds no data.

    A constructor need not take what an optimizer knows, so none is called. A scheduler replaces ``step`` on the
    optimizer itself, and hooks are the user's: neither is copied.
    """
    kept = {key: value for key, value in vars(optimizer).items() if key != "step"}
    kept = {key: type(value)() if "_hooks" in key else value for key, value in kept.items()}
    memo: dict[int, Any] = {number: copy for number, (_, copy) in pairs.items()}
    for owner, state in optimizer.state.items():
        number = id(owner)
        for tensor in _tensors((state,)):
            memo.setdefault(id(tensor), _state_like(tensor, *pairs[number]) if number in pairs else tensor.detach())
    for tensor in _tensors((kept["defaults"], kept["param_groups"])):  # a tensor for a rate lies beside no copy
        memo.setdefault(id(tensor), tensor.item() if tensor.numel() == 1 else tensor.detach())
    made: torch.optim.Optimizer = object.__new__(type(optimizer))
    try:
        vars(made).update(copy.deepcopy(kept, memo))
    except Exception as error:
        raise ValueError(f"the optimizer {type(optimizer).__name__} cannot be copied: {first_line(error)}") from error
    return made


def _state_like(state: torch.Tensor, parameter: torch.nn.Parameter, copied: torch.nn.Parameter) -> torch.Tensor:
    if not state.dim():  # a counter
        return state.detach().cpu().clone()
    dtype = copied.dtype if state.dtype == parameter.dtype else state.dtype
    return torch.empty_like(state, dtype=dtype, device="meta", requires_grad=False)


class _AnyValue(TorchDispatchMode):
    """Answers 1 where an optimizer reads the value of a tensor without data: a number scales an update, no more."""

    def __torch_dispatch__(self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if op is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return 1.0
        return op(*args, **(kwargs or {}))


class Update:
    """What one update reads, writes and computes, learned by running the optimizer twice on tensors without data.

    Args:
        optimizer: Of parameters on ``meta`` that have gradients.

    Raises:
        ValueError: If it cannot run on such parameters, as when it needs a closure.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.name = type(optimizer).__name__
        self.parameters = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        if not self.parameters:
            raise ValueError("the optimizer has no parameter with a gradient: nothing would be updated")
        for settings in (optimizer.defaults, *optimizer.param_groups):
            settings.update({key: False for key in _IMPLEMENTATIONS if key in settings})
        repeated = Trace()
        try:
            with _AnyValue():
                optimizer.step()  # makes its state
            _go_on(optimizer)
            with repeated, _AnyValue():
                optimizer.step()
        except Exception as error:
            raise ValueError(f"the optimizer {self.name} cannot be captured: {first_line(error)}") from error
        self.flops = int(sum(node_cost(node).flops for node in repeated.nodes))
        self._loop_scratch_bytes = _most_alive(repeated)
        self.state = [t for t in _tensors(optimizer.state.values()) if t.dim()]

    def record(self, trace: Trace) -> None:
        """Add the update to ``trace`` as one node in place: all parameters, gradients and state are read once."""
        trace.label(self.state, "state")
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        changed = [*self.parameters, *self.state]
        parameter_bytes = sum(p.numel() * p.element_size() for p in self.parameters)
        attributes: dict[str, Attribute] = {
            "optimizer": self.name,
            "flops": self.flops,
            "in_place": True,
            # A loop over the parameters makes temporaries of one at a time; the multi-tensor kernels that torch takes
            # on GPUs by default make one of them all (documentation of torch.optim, "foreach").
            "loop_scratch_bytes": self._loop_scratch_bytes,
            "multi_tensor_scratch_bytes": parameter_bytes if self._loop_scratch_bytes else 0,
        }
        trace.record("optimizer_step", [*self.parameters, *gradients, *self.state], changed, attributes, changed)

    @property
    def state_bytes(self) -> int:
        """Bytes that the optimizer keeps between updates."""
        return sum(t.numel() * t.element_size() for t in self.state)


def _go_on(optimizer: torch.optim.Optimizer) -> None:
    """Set the counters of ``optimizer`` as after many updates: some compute less in their first ones."""
    for state in optimizer.state.values():
        step = state.get("step")
        if isinstance(step, torch.Tensor) and not step.is_meta:
            step.fill_(_MANY)
        elif isinstance(step, int | float):
            state["step"] = _MANY


def _most_alive(trace: Trace) -> int:
    """The most bytes that the ops of a loop hold at once besides what was there before."""
    change: Counter[int] = Counter()
    for allocation in trace.allocations:
        change[allocation.first] += allocation.bytes
        change[allocation.last + 1] -= allocation.bytes
    return max(accumulate(change[position] for position in range(len(trace.nodes))), default=0)


def _tensors(states: Any) -> Iterator[torch.Tensor]:
    for state in states:
        yield from (leaf for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor))
