"""Results of ops without torch's own ``meta`` kernels.

Some of those are written in Python and take most of the time of a capture; one gets the layout wrong. Each rule answers
None where it does not apply; the kernel then runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_UNARY = frozenset("relu gelu silu sigmoid tanh hardswish hardsigmoid leaky_relu elu mish exp sqrt rsqrt neg".split())
_BINARY = frozenset("add sub mul div".split())


def _same(args: tuple[Any, ...]) -> Any:
    x = args[0]
    return torch.empty_like(x) if x.is_floating_point() else None


def _broadcast(args: tuple[Any, ...]) -> Any:
    x, y = args[:2]
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return None
    if isinstance(y, int | float):
        return torch.empty_like(x)
    if not isinstance(y, torch.Tensor):
        return None
    smaller_fits = y.shape != x.shape and torch.broadcast_shapes(x.shape, y.shape) == x.shape
    same_layout = y.shape == x.shape and y.stride() == x.stride()
    return torch.empty_like(x, dtype=torch.result_type(x, y)) if same_layout or smaller_fits else None


def _layer_norm(args: tuple[Any, ...]) -> Any:
    x, normalized_shape = args[0], args[1]
    weight = args[2] if len(args) > 2 else None
    if weight is not None and weight.dtype != x.dtype:
        return None
    lead = x.dim() - len(normalized_shape)
    if tuple(x.shape[lead:]) != tuple(normalized_shape):
        return None
    statistics = x.shape[:lead] + (1,) * len(normalized_shape)
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    return (
        torch.empty_like(x, memory_format=torch.contiguous_format),
        x.new_empty(statistics, dtype=wide),
        x.new_empty(statistics, dtype=wide),
    )


def _batch_norm(args: tuple[Any, ...]) -> Any:
    x, weight, training = args[0], args[1], args[5]
    if training or (weight is not None and weight.shape != x.shape[1:2]):
        return None
    return torch.empty_like(x), x.new_empty(0, dtype=torch.float32), x.new_empty(0, dtype=torch.float32)


def _grid_sample(args: tuple[Any, ...]) -> Any:
    x, grid = args[:2]
    return x.new_empty((*x.shape[:2], *grid.shape[1:-1])) if x.is_contiguous() else None


def _convolution(args: tuple[Any, ...]) -> Any:
    """Write channels last, as cuDNN and oneDNN do, where an operand lies so; the ``meta`` kernel cannot know."""
    out = torch.ops.aten.convolution.default(*args)
    image = {4: torch.channels_last, 5: torch.channels_last_3d}.get(out.dim())
    if image is None or not any(not t.is_contiguous() and t.is_contiguous(memory_format=image) for t in args[:2]):
        return out
    return torch.empty_like(out, memory_format=image)


_RULES: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    **dict.fromkeys(_UNARY, _same),
    **dict.fromkeys(_BINARY, _broadcast),
    "convolution": _convolution,
    "native_layer_norm": _layer_norm,
    "native_batch_norm": _batch_norm,
    "grid_sampler_2d": _grid_sample,
}


def result(name: str, args: tuple[Any, ...]) -> Any:
    """The result of the functional op ``name`` on ``meta`` tensors, or None where torch is to be asked."""
    rule = _RULES.get(name)
    return rule(args) if rule is not None else None
