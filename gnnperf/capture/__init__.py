"""From a torch module to a computation graph, without data, weights or a GPU.

The way through this package: ``module_copy`` makes a copy without data, ``step`` runs it, forward or a whole training
step; ``interception`` and ``autocast`` and ``composites`` see ops before autograd does, ``trace`` records what is
dispatched, ``aten`` names it, ``execution`` runs it, which ``known_results`` spares where it can, ``data_dependent``
sizes what depends on data, ``optimizers`` prices the update, and ``batch_scaling`` learns how the graph grows with the
batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from gnnperf.capture.batch_scaling import learn_batch_scaling
from gnnperf.capture.module_copy import check_inputs, hooked_parameters, meta_copy
from gnnperf.capture.optimizers import OptimizerLike, maker
from gnnperf.capture.step import FLOAT_DTYPES, Step, Training, tensor_leaves
from gnnperf.capture.transformers_on_meta import answer_on_meta
from gnnperf.graph import MODES, PRECISIONS, ComputationGraph


def capture(
    module: torch.nn.Module,
    example_inputs: Any,
    mode: str = "inference",
    precision: str = "fp32",
    loss: Callable[[Any], Any] | None = None,
    optimizer: OptimizerLike | None = None,
    name: str | None = None,
    accumulation_steps: int = 1,
    batch_size: int | None = None,
) -> ComputationGraph:
    """Capture what ``module`` runs on inputs like ``example_inputs``.

    The module is copied without its data and the copy is run; the module itself stays as it was found.

    Args:
        module: Any module that runs eagerly.
        example_inputs: A tensor, a tuple of positional arguments, or a dict of keyword arguments; only shapes, dtypes
            and ``requires_grad`` matter. The leading dimension of the first tensor is the batch size. Every other
            tensor whose leading dimension is of the same size is taken to grow with the batch as well: where one does
            not, give inputs of a batch that differs from its size.
        mode: ``inference``: forward in eval mode without gradients. ``training``: forward in train mode, loss,
            backward to every parameter and input that requires a gradient, and the optimizer's update. Gradients are
            None before the step, as ``zero_grad`` leaves them.
        precision: ``fp64``, ``fp32``, ``tf32`` (fp32 with tensor cores), ``fp16`` or ``bf16`` (weights and inputs
            converted), ``amp`` or ``amp_bf16`` (CUDA's autocast to fp16 or bf16).
        loss: From the module's output to a scalar tensor, or to several that are trained together. By default the
            output's own ``loss``, else cross-entropy for an output (batch, classes), else the mean of the first
            floating tensor of the output.
        optimizer: None for a step without an update; ``sgd``, ``momentum``, ``adam``, ``adamw``, ``adagrad``,
            ``adadelta`` or ``rmsprop``; a class of ``torch.optim``; or an optimizer of the module's parameters, which
            is only read.
        name: What to call the network; by default the name of its class.
        accumulation_steps: Forward and backward passes, each over the example inputs, before the update.
        batch_size: Capture at this batch, to which the example inputs are scaled, instead of theirs.

    Returns:
        The graph; it can be rescaled to other batch sizes unless its ``rescale_error`` says why not.

    Raises:
        ValueError: If an argument is wrong, an input is sparse or nested, the module cannot be copied, or it does not
            run on the inputs.
    """
    _check(module, mode, precision)
    training = None
    if mode == "training":
        make = maker(optimizer, list(module.parameters())) if optimizer is not None else None
        training = Training(loss, make, accumulation_steps)
        if isinstance(accumulation_steps, bool) or not isinstance(accumulation_steps, int) or accumulation_steps < 1:
            raise ValueError(f"accumulation_steps must be a positive integer, not {accumulation_steps!r}")
    elif loss is not None or optimizer is not None or accumulation_steps != 1:
        raise ValueError("loss, optimizer and accumulation_steps belong to mode='training'")
    hooked = hooked_parameters(module) if training is not None else []
    warnings = (f"hooks of parameters are not captured: {', '.join(hooked)}",) if hooked else ()
    with _random_state_kept():  # a module may draw while it is copied
        copied = meta_copy(module)
    name = name or type(module).__name__
    return _captured(copied, example_inputs, training, precision, name, batch_size, warnings)


def capture_owned(
    module: torch.nn.Module,
    example_inputs: Any,
    mode: str,
    precision: str,
    name: str,
    optimizer: OptimizerLike | None = None,
) -> ComputationGraph:
    """``capture`` of a module on ``meta`` that the caller gives away."""
    _check(module, mode, precision)
    training = None
    if mode == "training":
        training = Training(None, None if optimizer is None else maker(optimizer, list(module.parameters())))
    elif optimizer is not None:
        raise ValueError("an optimizer belongs to mode='training'")
    return _captured(module, example_inputs, training, precision, name)


def _captured(
    module: torch.nn.Module,
    example_inputs: Any,
    training: Training | None,
    precision: str,
    name: str,
    batch_size: int | None = None,
    warnings: tuple[str, ...] = (),
) -> ComputationGraph:
    if isinstance(example_inputs, Mapping):
        example_inputs = dict(example_inputs)
    check_inputs(tensor_leaves(example_inputs))
    module.train(training is not None)
    if dtype := FLOAT_DTYPES.get(precision):
        module.to(dtype)
    step = Step(module, example_inputs, _batch_size(example_inputs), precision, name, training, warnings)
    answer_on_meta()
    with _random_state_kept():
        graph = _at(step, step.batch_size) if batch_size is None else _at_other(step, batch_size)
        return learn_batch_scaling(graph, partial(_at, step))


def _at_other(step: Step, batch_size: int) -> ComputationGraph:
    """The graph at a batch that is perhaps not that of the example inputs."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch size must be a positive integer, not {batch_size!r}")
    try:
        if not any(tensor.shape[:1] == (step.batch_size,) for tensor in tensor_leaves(step.example_inputs)):
            raise ValueError("no input has the batch as its first dimension")
        return _at(step, batch_size)
    except ValueError as error:
        raise ValueError(f"{step.name} cannot be captured at batch {batch_size}: {error}") from error


def _at(step: Step, batch_size: int) -> ComputationGraph:
    try:
        return step.at(batch_size)
    except RuntimeError as error:  # a size beyond what torch counts
        raise ValueError(" ".join(str(error).split())) from error


def _check(module: Any, mode: str, precision: str) -> None:
    if isinstance(module, torch.jit.ScriptModule) or not isinstance(module, torch.nn.Module):
        raise ValueError(f"capture takes a torch.nn.Module that runs eagerly, not {type(module).__name__}")
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise ValueError(
                f"{path!r} of {type(module).__name__} is scripted ({part.original_name}): capture sees only what runs "
                "eagerly; leave out torch.jit.script or torch.jit.trace for that submodule"
            )
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")


def _batch_size(example_inputs: Any) -> int:
    for tensor in tensor_leaves(example_inputs):
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
