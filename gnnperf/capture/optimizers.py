"""The optimizer's update as one op over all parameters, as the fused kernels of GPUs run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from gnnperf.capture.trace import Trace
from gnnperf.cost import node_cost
from gnnperf.graph import Attribute

# Only whether state is kept matters, not how fast the weights would move.
_RATE = 1e-3
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
    try:
        return cls(parameters)  # type: ignore[call-arg]
    except TypeError:  # older optimizers want to be told a rate
        return cls(parameters, lr=_RATE)  # type: ignore[call-arg]


def _like(optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter]) -> Maker:
    position = {id(p): number for number, p in enumerate(parameters)}
    groups = []
    for group in optimizer.param_groups:
        if any(id(p) not in position for p in group["params"]):
            raise ValueError(f"the {type(optimizer).__name__} holds parameters that are not the module's")
        settings = {key: value for key, value in group.items() if key != "params"}
        groups.append((settings, [position[id(p)] for p in group["params"]]))
    accepted = set(optimizer.defaults)

    def make(copies: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
        made = [
            {**{k: v for k, v in settings.items() if k in accepted}, "params": [copies[i] for i in members]}
            for settings, members in groups
        ]
        return type(optimizer)(made, **_scalars(optimizer.defaults))

    return make


def _scalars(defaults: dict[str, Any]) -> dict[str, Any]:
    """The hyperparameters as plain values: a rate that is a tensor would have to lie beside the parameters."""
    return {k: v.item() if isinstance(v, torch.Tensor) and v.numel() == 1 else v for k, v in defaults.items()}


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
        for group in optimizer.param_groups:
            group.update({key: False for key in ("fused", "foreach", "capturable") if key in group})
        try:
            optimizer.step()  # makes its state
            repeated = Trace()
            with repeated:
                optimizer.step()
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ValueError(f"the optimizer {self.name} cannot be captured: {reason}") from error
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
