"""Run one ATen op on tensors without data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gnnperf.capture import data_dependent, known_results, shape_rules
from gnnperf.capture.aten import OpInfo
from gnnperf.capture.interception import Op

_FALLBACK_LIMIT_BYTES = 1 << 30


def run(context: data_dependent.Context, op: Op, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of ``op``: as when it ran before, by a rule of ours, or by torch.

    Raises:
        ValueError: If the op needs values that nobody knows, or makes a sparse tensor.
    """
    operands = tensors((args, kwargs))
    if not any(t.is_meta for t in operands):
        return op(*args, **kwargs)
    if info.name == "_local_scalar_dense":
        raise ValueError(
            "it needs the value of a tensor (.item(), bool() or a loop over data), and only shapes are known"
        )
    if info.name in data_dependent.RULES:
        return data_dependent.RULES[info.name](context, *args, **kwargs)
    if info.name == "index":
        args = (args[0], data_dependent.index_by_position(context, args[1]))
        operands = tensors((args, kwargs))
    key = known_results.key_of(op, info, args, kwargs, operands)
    if key is not None and (known := known_results.recall(key, operands)) is not None:
        return known
    result = _run_anew(op, info, args, kwargs)
    if key is not None:
        known_results.remember(key, operands, result)
    return result


def _run_anew(op: Op, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of ``op``: by a rule of ours where ``meta`` has none or a slow one, else by torch."""
    if not info.written and (known := shape_rules.result(info.name, args)) is not None:
        return known
    try:
        result = op(*args, **kwargs)
    except RuntimeError as error:
        if not isinstance(error, NotImplementedError) and op.namespace == "aten":
            raise
        return _run_on_zeros(op, args, kwargs, error)  # another library's op may lack a fake implementation
    return _checked_dense(result)


def _checked_dense(result: Any) -> Any:
    if isinstance(result, torch.Tensor) and result.layout is not torch.strided:
        raise ValueError(
            "sparse tensors are not captured: keep them dense (an embedding with sparse=True makes a sparse gradient: "
            "capture it with sparse=False)"
        )
    return result


def _run_on_zeros(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Any:
    """Learn the result's shape of an op without a meta kernel by running it on zeros on the CPU."""
    if sum(t.numel() * t.element_size() for t in tensors((args, kwargs))) > _FALLBACK_LIMIT_BYTES:
        raise ValueError(
            f"op {op._schema.name!r} cannot run without data; register a fake implementation "
            "(torch.library.register_fake)"
        ) from error
    zeros = convert((args, kwargs), lambda t: torch.zeros(t.shape, dtype=t.dtype))
    try:
        result = op(*zeros[0], **zeros[1])
    except Exception as failure:
        raise ValueError(
            f"op {op._schema.name!r} runs neither on shapes alone nor on zeros ({first_line(failure)}); "
            "register a fake implementation (torch.library.register_fake)"
        ) from failure
    return convert(_checked_dense(result), lambda t: torch.empty_like(t, device="meta"))


def first_line(error: BaseException) -> str:
    """What ``error`` says, in one line; its name if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def tensors(values: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    found: list[torch.Tensor] = []
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, tuple | list | dict):
            found += tensors(value)
    return found


def convert(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``value`` with ``function`` applied to every tensor in its nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple | list):
        return type(value)(convert(item, function) for item in value)
    if isinstance(value, dict):
        return {key: convert(item, function) for key, item in value.items()}
    return value
