"""Ops whose output shape depends on data, which ``meta`` tensors do not have.

Where the data is a routing decision (top-k or argmax over experts), tokens are taken as balanced over the experts.
Elsewhere the size is bounded by what the op can return at most, and the trace says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

_INT64 = torch.int64


class Context(Protocol):
    """What the rules ask of the running trace."""

    def experts(self, tensor: torch.Tensor) -> int:
        """Number of experts that the routing behind ``tensor`` chooses among; 0 if there is none."""

    def warn(self, message: str) -> None:
        """Tell the user of an assumption."""


def count_true(mask: torch.Tensor, context: Context, what: str) -> int:
    """How many elements of ``mask`` are taken to be true."""
    if mask.device.type != "meta":
        return int(torch.count_nonzero(mask))
    if experts := context.experts(mask):
        context.warn(f"{what}: tokens are taken as balanced over {experts} experts")
        return math.ceil(mask.numel() / experts)
    context.warn(f"{what}: its size depends on data; bounded by all {mask.numel()} elements")
    return mask.numel()


def _nonzero(context: Context, mask: torch.Tensor) -> torch.Tensor:
    return mask.new_empty((count_true(mask, context, "nonzero"), mask.dim()), dtype=_INT64)


def _masked_select(context: Context, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return values.new_empty(count_true(mask, context, "masked_select"))


def _unique(context: Context, values: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    context.warn(f"unique: its size depends on data; bounded by all {values.numel()} elements")
    indices = values.new_empty(values.shape, dtype=_INT64)
    return values.new_empty(values.numel()), indices, values.new_empty(values.numel(), dtype=_INT64)


def _bincount(context: Context, values: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    minlength = kwargs.get("minlength", args[1] if len(args) > 1 else 0)
    bound = max(minlength, context.experts(values))
    if not bound:
        raise ValueError("bincount of values that gnnperf cannot know: give it minlength=")
    return values.new_empty(bound, dtype=_INT64)


def _repeat_interleave(context: Context, repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    if output_size is None:
        raise ValueError("repeat_interleave by values that gnnperf cannot know: give it output_size=")
    return repeats.new_empty(output_size, dtype=_INT64)


def _pack_padded_sequence(
    context: Context, padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, steps = padded.shape[:2] if batch_first else (padded.shape[1], padded.shape[0])
    if lengths.numel() != batch:
        raise ValueError(f"{lengths.numel()} lengths for {batch} sequences")
    if lengths.device.type == "meta":
        context.warn(f"packed sequence: its lengths depend on data; bounded by {steps} steps each")
        known = [steps] * batch
    else:
        known = lengths.tolist()
    alive = [sum(length > step for length in known) for step in range(max(known, default=0))]
    return padded.new_empty((sum(alive), *padded.shape[2:])), torch.tensor(alive, dtype=_INT64)


RULES: dict[str, Callable[..., Any]] = {
    "nonzero": _nonzero,
    "masked_select": _masked_select,
    "_unique2": _unique,
    "bincount": _bincount,
    "repeat_interleave": _repeat_interleave,
    "_pack_padded_sequence": _pack_padded_sequence,
}
# Ops that read the values of what lies on the CPU.
READ_VALUES = frozenset({"_pack_padded_sequence"})


def index_by_position(
    context: Context, indices: list[torch.Tensor | None] | tuple[torch.Tensor | None, ...]
) -> list[torch.Tensor | None]:
    """Replace boolean masks in an index by as many positions as they are taken to hold."""
    positions: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            positions.append(index)
            continue
        count = count_true(index, context, "boolean index")
        positions.extend(torch.empty(count, dtype=_INT64, device="meta") for _ in range(index.dim()))
    return positions
