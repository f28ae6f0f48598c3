"""A copy of a module and of its inputs on the ``meta`` device: everything but the data."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from gnnperf.capture.execution import first_line


def meta_copy(module: torch.nn.Module) -> torch.nn.Module:
    """A deep copy of ``module`` whose parameters, buffers and tensor attributes hold no data.

    The module itself is only read; shared parameters stay shared.

    Raises:
        ValueError: If Python cannot copy the module.
    """
    memo: dict[int, Any] = {}
    try:
        for owner in module.modules():
            for tensor in tree_leaves(vars(owner)):
                if isinstance(tensor, torch.Tensor) and id(tensor) not in memo:
                    memo[id(tensor)] = _meta_like(tensor)
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise ValueError(
            f"cannot copy {type(module).__name__} to trace it without touching it "
            f"({type(error).__name__}: {first_line(error)}); give gnnperf a module that copy.deepcopy accepts"
        ) from error


def _meta_like(tensor: torch.Tensor) -> torch.Tensor:
    if torch.nn.parameter.is_lazy(tensor):
        raise TypeError("it has lazy parameters; run it once, so that they get their shapes")
    empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty.requires_grad_(tensor.requires_grad)


def meta_inputs(inputs: Any, batch_size: int, scaled_batch_size: int, float_dtype: torch.dtype | None) -> Any:
    """``inputs`` with every tensor replaced by one without data, which wants a gradient if it did.

    Leading dimensions equal to ``batch_size`` become ``scaled_batch_size``; floating point becomes ``float_dtype``. One
    tensor in several places stays one.
    """
    made: dict[int, torch.Tensor] = {}

    def convert(leaf: Any) -> Any:
        if is_dataclass(leaf) and not isinstance(leaf, type):
            copied = copy.copy(leaf)
            for field in fields(leaf):  # which may be frozen
                object.__setattr__(copied, field.name, tree_map(convert, getattr(leaf, field.name)))
            return copied
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = empty(leaf).requires_grad_(leaf.requires_grad)
        return made[id(leaf)]

    def empty(leaf: torch.Tensor) -> torch.Tensor:
        shape = list(leaf.shape)
        if shape and shape[0] == batch_size:
            shape[0] = scaled_batch_size
        dtype = float_dtype if float_dtype is not None and leaf.is_floating_point() else leaf.dtype
        if _strides_hold(leaf, shape):
            return torch.empty_strided(shape, leaf.stride(), dtype=dtype, device="meta")
        return torch.empty(shape, dtype=dtype, device="meta")

    return tree_map(convert, inputs)


def check_inputs(tensors: Iterable[torch.Tensor]) -> None:
    """Refuse tensors that are not plain arrays.

    Raises:
        ValueError: If one is sparse or nested.
    """
    for tensor in tensors:
        if tensor.is_nested:
            raise ValueError(
                "nested inputs are not captured: give a padded tensor, torch.nested.to_padded_tensor(x, 0)"
            )
        if tensor.layout is not torch.strided:
            kind = str(tensor.layout).removeprefix("torch.")
            raise ValueError(f"sparse inputs ({kind}) are not captured: give a dense tensor, x.to_dense()")


def _strides_hold(tensor: torch.Tensor, shape: list[int]) -> bool:
    """Whether ``tensor`` can take another leading size with its strides: samples lie apart or repeat one memory."""
    if tensor.is_contiguous():
        return False
    inner = zip(tensor.shape[1:], tensor.stride()[1:], strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in inner)
    return shape == list(tensor.shape) or tensor.stride(0) == 0 or tensor.stride(0) >= span


def hooked_parameters(module: torch.nn.Module) -> list[str]:
    """Names of the parameters of ``module`` with hooks on their gradients, which a copy does not have."""
    return [
        name
        for name, parameter in module.named_parameters()
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
    ]
