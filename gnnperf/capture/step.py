"""What is traced: a forward pass, or a whole training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from gnnperf.capture.execution import first_line
from gnnperf.capture.interception import intercepting
from gnnperf.capture.module_copy import meta_inputs
from gnnperf.capture.optimizers import Maker, Update
from gnnperf.capture.trace import Trace
from gnnperf.graph import ComputationGraph, TensorSpec

FLOAT_DTYPES = {"fp64": torch.float64, "fp16": torch.float16, "bf16": torch.bfloat16}
_AUTOCAST_DTYPES = {"amp": torch.float16, "amp_bf16": torch.bfloat16}

Loss = Callable[[Any], Any]


@dataclass(frozen=True)
class Training:
    """What follows the forward pass.

    Attributes:
        loss: From the module's output to a scalar, or to several; by default ``default_loss``.
        optimizer: Makes the optimizer for the module's parameters; None for a step without an update.
        accumulation_steps: Forward and backward passes before the update.
    """

    loss: Loss | None = None
    optimizer: Maker | None = None
    accumulation_steps: int = 1


@dataclass(frozen=True)
class Step:
    """One step of a module on ``meta``.

    Attributes:
        module: Set to train or eval.
        example_inputs: A tensor, a tuple of positional arguments, or a dict of keyword arguments.
        batch_size: Of the example inputs.
        precision: One of ``gnnperf.graph.PRECISIONS``; the module is converted already.
        name: What to call the network.
        training: What follows the forward pass; None for inference.
        warnings: What the graph is to tell besides what its trace assumes.
    """

    module: torch.nn.Module
    example_inputs: Any
    batch_size: int
    precision: str
    name: str
    training: Training | None = None
    warnings: tuple[str, ...] = ()

    def at(self, batch_size: int) -> ComputationGraph:
        """The graph of one run on inputs scaled to ``batch_size``.

        Raises:
            ValueError: If the module does not run on the inputs, or nothing in it can be trained.
        """
        inputs = meta_inputs(self.example_inputs, self.batch_size, batch_size, FLOAT_DTYPES.get(self.precision))
        trace = Trace()
        trace.label(self.module.buffers(), "constant")
        trace.label(self.module.parameters(), "parameter")
        trace.label(tensor_leaves(inputs), "input")
        given = [trace.spec(t) for t in dict.fromkeys(tensor_leaves(inputs))]
        parameters = list(self.module.parameters())
        output, state_bytes = self._run(trace, inputs, given)
        graph = ComputationGraph(
            name=self.name,
            nodes=tuple(trace.nodes),
            edges=tuple(trace.edges),
            inputs=tuple(given),
            outputs=tuple(trace.spec(t) for t in tensor_leaves(output)),
            mode="inference" if self.training is None else "training",
            precision=self.precision,
            batch_size=batch_size,
            parameter_count=sum(p.numel() for p in parameters),
            parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
            buffer_bytes=sum(b.numel() * b.element_size() for b in self.module.buffers()),
            optimizer_state_bytes=state_bytes,
            allocations=tuple(trace.allocations),
            warnings=(*self.warnings, *trace.warnings),
        )
        graph.validate()
        return graph

    def _run(self, trace: Trace, inputs: Any, given: list[TensorSpec]) -> tuple[Any, int]:
        """The module's output, and the bytes of the optimizer's state."""
        dtype = _AUTOCAST_DTYPES.get(self.precision)
        if self.training is None:
            with torch.no_grad(), self._tracing(trace), trace.autocast.on(dtype):
                return self._forward(inputs), 0
        self.module.zero_grad(set_to_none=True)
        try:
            for _ in range(self.training.accumulation_steps):
                with torch.enable_grad(), self._tracing(trace):
                    with trace.autocast.on(dtype):
                        output = self._forward(inputs)
                        trace.phase = "loss"
                        losses = self._losses(trace, output, given)
                    self._backward(trace, losses)
            gradients = {id(p.grad): p.grad for p in self.module.parameters() if p.grad is not None}
            trace.relabel(gradients.values(), "gradient")
            return output, self._update(trace)
        finally:
            self.module.zero_grad(set_to_none=True)

    def _forward(self, inputs: Any) -> Any:
        args = () if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple | list) else (inputs,)
        return self.module(*args, **(inputs if isinstance(inputs, dict) else {}))

    def _losses(self, trace: Trace, output: Any, given: list[TensorSpec]) -> list[torch.Tensor]:
        assert self.training is not None
        if self.training.loss is not None:
            return tensor_leaves(self.training.loss(output))
        target = _target(output)
        if target is not None:
            trace.label([target], "input")
            given.append(trace.spec(target))
        return [default_loss(output, target)]

    def _backward(self, trace: Trace, losses: list[torch.Tensor]) -> None:
        if not losses or any(t.numel() != 1 for t in losses):
            raise ValueError("the loss must be a scalar tensor or several")
        if not any(t.requires_grad for t in losses):
            raise ValueError("nothing to train: the loss depends on no parameter that requires a gradient")
        trace.phase = "backward"
        with trace.autocast.on(None):
            torch.autograd.backward([t for t in losses if t.requires_grad])
        trace.phase = "forward"

    def _update(self, trace: Trace) -> int:
        assert self.training is not None
        if self.training.optimizer is None:
            return 0
        update = Update(self.training.optimizer(list(self.module.parameters())))
        trace.phase = "optimizer"
        update.record(trace)
        return update.state_bytes

    @contextmanager
    def _tracing(self, trace: Trace) -> Iterator[None]:
        try:
            with trace.path.follow(self.module), trace, intercepting(trace):
                yield
        except Exception as error:
            path = trace.path.of_error(error)
            place = f" (in {path})" if path else ""
            phase = "" if trace.phase == "forward" else f" in its {trace.phase}"
            raise ValueError(
                f"{self.name} does not run on the given input{place}{phase}: {first_line(error)}"
            ) from error


def default_loss(output: Any, target: torch.Tensor | None) -> torch.Tensor:
    """The output's own ``loss``; else cross-entropy for (batch, classes); else the mean of its first floating tensor.

    Raises:
        ValueError: If the output holds no floating tensor.
    """
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    first = _first_floating(output)
    if first is None:
        raise ValueError("the output holds no floating tensor to train on: give a loss")
    return first.mean() if target is None else torch.nn.functional.cross_entropy(first, target)


def _target(output: Any) -> torch.Tensor | None:
    """The classes, (batch,), that the default loss compares with; None where it needs none."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    first = _first_floating(output)
    if isinstance(own, torch.Tensor) or first is None or first.dim() != 2 or first.shape[1] < 2:
        return None
    return torch.empty(first.shape[0], dtype=torch.int64, device="meta")


def _first_floating(output: Any) -> torch.Tensor | None:
    return next((t for t in tensor_leaves(output) if t.is_floating_point()), None)


def tensor_leaves(values: Any) -> list[torch.Tensor]:
    """All tensors in nested containers and dataclasses."""
    found: list[torch.Tensor] = []
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            found += tensor_leaves([getattr(leaf, field.name) for field in fields(leaf)])
    return found
