"""In which order the elements of a tensor lie in memory, and what libraries copy because of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch


def layout(tensor: torch.Tensor) -> str:
    """One of ``gnnperf.graph.LAYOUTS``, by the order of the strides; gaps and repeated dimensions do not matter."""
    if tensor.layout is not torch.strided:
        return "row_major"
    dims = list(zip(tensor.shape, tensor.stride(), strict=True))
    if _is_descending(dims):
        return "row_major"
    if len(dims) in (4, 5) and _is_descending([dims[0], *dims[2:], dims[1]]):
        return "channels_last"
    innermost = min((stride for size, stride in dims if size > 1 and stride > 0), default=1)
    last_size, last_stride = dims[-1]
    return "permuted" if last_size == 1 or last_stride == innermost else "transposed"


def copies_input(op: str, tensor: torch.Tensor) -> bool:
    """Whether the library copies the first operand of ``op`` before it starts, since it does not lie as it must.

    cuDNN and oneDNN want images in one piece, channels first or last; products of matrices want rows or columns.
    """
    return op in _ACCEPTS and not _ACCEPTS[op](tensor)


def _is_image(tensor: torch.Tensor) -> bool:
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return tensor.is_contiguous() or (last is not None and tensor.is_contiguous(memory_format=last))


def _is_matrix(tensor: torch.Tensor) -> bool:
    """Whether the dimensions before the last can be taken as one, and either runs without gaps."""
    if tensor.dim() < 2 or not tensor.numel():
        return True
    lead = [(size, stride) for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True) if size > 1]
    if not all(outer == inner_size * inner for (_, outer), (inner_size, inner) in pairwise(lead)):
        return False
    columns = tensor.dim() == 2 and tensor.stride(0) == 1
    return columns or tensor.stride(-1) == 1 or tensor.shape[-1] == 1


_ACCEPTS: dict[str, Callable[[torch.Tensor], bool]] = {
    "conv": _is_image,
    "conv_transpose": _is_image,
    "linear": _is_matrix,
}


def _is_descending(dims: list[tuple[int, int]]) -> bool:
    strides = [stride for size, stride in dims if size > 1 and stride > 0]
    return all(outer >= inner for outer, inner in pairwise(strides))
