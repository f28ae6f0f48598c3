"""Remember what ops return, by the shapes that they were given.

Blocks repeat, and so do traces: most ops run many times on equal shapes. Torch's ``meta`` kernels are to a good part
Python, and slow; to make an empty tensor of a known shape is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gnnperf.capture.aten import OpInfo
from gnnperf.capture.interception import Op

# What decides a result: the op and its arguments, tensors by shape, strides and type.
Key = tuple[Any, ...]
_Form = tuple[torch.Size, tuple[int, ...], torch.dtype]
# The type of a result and the forms of its tensors; None in place of these for the first operand of an op in place.
_Kept = tuple[type, list[_Form | None] | None]

_META = torch.device("meta")
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.layout, torch.device, torch.memory_format})
_LIMIT = 30_000  # of about 1 kB each; one network asks for hundreds, at most thousands
_known: dict[Key, _Kept] = {}


def key_of(
    op: Op, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any], operands: Sequence[torch.Tensor]
) -> Key | None:
    """What decides the result of ``op``; None where more than that does, or where the result is no new memory.

    Left out are views, ops that write another than their first argument or two that share memory, ops of other
    libraries, and tensors that are complex, sparse, of a subclass or not on ``meta``.

    Args:
        op: The op.
        info: ``describe(op)``.
        args: Of the call.
        kwargs: Of the call.
        operands: The tensors in both.
    """
    if not (info.is_pure or info.is_in_place) or not operands:
        return None
    if info.is_in_place:
        memory = operands[0].untyped_storage()._cdata
        if any(t.untyped_storage()._cdata == memory for t in operands[1:]):
            return None
    parts: list[Any] = [id(op), torch.get_default_dtype()]  # ops are never freed: ``describe`` keeps them
    if _add(parts, args) and (not kwargs or _add(parts, list(kwargs.items()))):
        return tuple(parts)
    return None


def _add(parts: list[Any], values: Sequence[Any]) -> bool:
    """Add ``values`` to the parts of a key, each after its type, as 1, 1.0 and True are equal; whether all can be."""
    for value in values:
        kind = type(value)
        parts.append(kind)
        if kind in _TENSORS:
            if not value.is_meta or value.layout is not torch.strided or value.is_complex():
                return False
            parts += (value.shape, value.stride(), value.dtype)
        elif kind in _PLAIN:
            parts.append(value)
        elif kind is list or kind is tuple:
            parts.append(len(value))
            if not _add(parts, value):
                return False
        else:
            return False
    return True


def recall(key: Key, operands: Sequence[torch.Tensor]) -> Any:
    """What an op of this key returns, in new memory or in that of its first operand; None if it never ran."""
    known = _known.get(key)
    if known is None:
        return None
    kind, forms = known
    if forms is None:
        return operands[0]
    made = [None if form is None else _empty(form) for form in forms]
    return made[0] if kind is torch.Tensor else kind(made)


def remember(key: Key, operands: Sequence[torch.Tensor], result: Any) -> None:
    """Keep what an op returned, unless ``recall`` could not give the same: views, gaps in memory, other values."""
    if result is operands[0]:
        kept: _Kept | None = (torch.Tensor, None) if _form(result) == _form_of_first(key) else None
    else:
        kept = _new_forms(operands, result)
    if kept is not None:
        if len(_known) >= _LIMIT:
            _known.clear()
        _known[key] = kept


def _form(tensor: torch.Tensor) -> _Form:
    return tensor.shape, tensor.stride(), tensor.dtype


def _form_of_first(key: Key) -> tuple[Any, ...]:
    """Form of the first argument, a tensor, before the op ran."""
    return key[3:6]


def _new_forms(operands: Sequence[torch.Tensor], result: Any) -> _Kept | None:
    kind = type(result)
    if kind not in (torch.Tensor, tuple, list):
        return None
    memories = {t.untyped_storage()._cdata for t in operands}
    forms: list[_Form | None] = []
    for tensor in [result] if kind is torch.Tensor else result:
        if tensor is None:
            forms.append(None)
        elif type(tensor) is torch.Tensor and _is_plain(tensor) and tensor.untyped_storage()._cdata not in memories:
            memories.add(tensor.untyped_storage()._cdata)
            forms.append(_form(tensor))
        else:
            return None
    return kind, forms


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is what ``_empty`` makes of its form: real, on ``meta``, and all of its memory."""
    if not tensor.is_meta or tensor.layout is not torch.strided or tensor.is_complex() or tensor.is_quantized:
        return False
    like = _empty(_form(tensor))
    return not tensor.storage_offset() and like.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()


def _empty(form: _Form) -> torch.Tensor:
    shape, stride, dtype = form
    return torch.empty_strided(shape, stride, dtype=dtype, device=_META)
