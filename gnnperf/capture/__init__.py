"""From a torch module to a computation graph, without data, weights or a GPU.

The way through this package: ``module_copy`` makes a copy without data, ``interception`` and ``autocast`` and
``composites`` see ops before autograd does, ``trace`` records what is dispatched, ``aten`` names it,
``data_dependent`` sizes what depends on data, and ``batch_scaling`` learns how the graph grows with the batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from gnnperf.capture.autocast import autocast_flag
from gnnperf.capture.batch_scaling import learn_batch_scaling
from gnnperf.capture.interception import intercepting
from gnnperf.capture.module_copy import meta_copy, meta_inputs
from gnnperf.capture.trace import Trace
from gnnperf.capture.transformers_on_meta import answer_on_meta
from gnnperf.graph import MODES, PRECISIONS, ComputationGraph

_FLOAT_DTYPES = {"fp64": torch.float64, "fp16": torch.float16, "bf16": torch.bfloat16}
_AUTOCAST_DTYPES = {"amp": torch.float16, "amp_bf16": torch.bfloat16}


def capture(
    module: torch.nn.Module,
    example_inputs: Any,
    mode: str = "inference",
    precision: str = "fp32",
    loss: Callable[..., torch.Tensor] | None = None,
    optimizer: str | type[torch.optim.Optimizer] | None = None,
    name: str | None = None,
) -> ComputationGraph:
    """Capture what ``module`` runs on inputs like ``example_inputs``.

    The module is copied without its data and the copy is run; the module itself stays as it was found.

    Args:
        module: Any module that runs eagerly.
        example_inputs: A tensor, a tuple of positional arguments, or a dict of keyword arguments; only shapes and
            dtypes matter. The leading dimension of the first tensor is the batch size.
        mode: ``inference``: forward in eval mode without gradients.
        precision: ``fp64``, ``fp32``, ``tf32`` (fp32 with tensor cores), ``fp16`` or ``bf16`` (weights and inputs
            converted), ``amp`` or ``amp_bf16`` (CUDA's autocast to fp16 or bf16).
        loss: Belongs to training steps.
        optimizer: Belongs to training steps.
        name: What to call the network; by default the name of its class.

    Returns:
        The graph; it can be rescaled to other batch sizes unless its ``rescale_error`` says why not.

    Raises:
        ValueError: If an argument is wrong, the module cannot be copied, or it does not run on the inputs.
    """
    _check(module, mode, precision, loss, optimizer)
    return capture_owned(meta_copy(module), example_inputs, mode, precision, name or type(module).__name__)


def capture_owned(
    module: torch.nn.Module, example_inputs: Any, mode: str, precision: str, name: str
) -> ComputationGraph:
    """``capture`` of a module on ``meta`` that the caller gives away."""
    _check(module, mode, precision, None, None)
    if isinstance(example_inputs, Mapping):
        example_inputs = dict(example_inputs)
    module.train(mode == "training")
    if dtype := _FLOAT_DTYPES.get(precision):
        module.to(dtype)
    run = _Run(module, example_inputs, mode, precision, name, _batch_size(example_inputs))
    answer_on_meta()
    with _random_state_kept():
        return learn_batch_scaling(run.at(run.batch_size), run.at)


@dataclass(frozen=True)
class _Run:
    module: torch.nn.Module
    example_inputs: Any
    mode: str
    precision: str
    name: str
    batch_size: int

    def at(self, batch_size: int) -> ComputationGraph:
        """The graph of one run on inputs scaled to ``batch_size``."""
        dtype = _FLOAT_DTYPES.get(self.precision)
        inputs = meta_inputs(self.example_inputs, self.batch_size, batch_size, dtype)
        trace = Trace()
        trace.label(self.module.buffers(), "constant")
        trace.label(self.module.parameters(), "parameter")
        trace.label(_tensor_leaves(inputs), "input")
        given = tuple(trace.spec(t) for t in _tensor_leaves(inputs))
        output = self._forward(trace, inputs)
        parameters = list(self.module.parameters())
        graph = ComputationGraph(
            name=self.name,
            nodes=tuple(trace.nodes),
            edges=tuple(trace.edges),
            inputs=given,
            outputs=tuple(trace.spec(t) for t in _tensor_leaves(output)),
            mode=self.mode,
            precision=self.precision,
            batch_size=batch_size,
            parameter_count=sum(p.numel() for p in parameters),
            parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
            buffer_bytes=sum(b.numel() * b.element_size() for b in self.module.buffers()),
            warnings=tuple(trace.warnings),
        )
        graph.validate()
        return graph

    def _forward(self, trace: Trace, inputs: Any) -> Any:
        args = () if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple | list) else (inputs,)
        kwargs = inputs if isinstance(inputs, dict) else {}
        try:
            with (
                torch.no_grad(),
                autocast_flag(_AUTOCAST_DTYPES.get(self.precision)),
                trace.path.follow(self.module),
                trace,
                intercepting(trace),
            ):
                return self.module(*args, **kwargs)
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            path = trace.path.of_error(error)
            place = f" (in {path})" if path else ""
            raise ValueError(f"{self.name} does not run on the given input{place}: {reason[0]}") from error


def _check(module: Any, mode: str, precision: str, loss: Any, optimizer: Any) -> None:
    if isinstance(module, torch.jit.ScriptModule) or not isinstance(module, torch.nn.Module):
        raise ValueError(f"capture takes a torch.nn.Module that runs eagerly, not {type(module).__name__}")
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    if mode == "training":
        raise ValueError("training steps cannot be captured yet: use mode='inference'")
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    if loss is not None or optimizer is not None:
        raise ValueError("loss and optimizer belong to mode='training'")


def _tensor_leaves(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _batch_size(example_inputs: Any) -> int:
    for tensor in _tensor_leaves(example_inputs):
        if tensor.dim():
            return max(1, tensor.shape[0])
    return 1


@contextmanager
def _random_state_kept() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
