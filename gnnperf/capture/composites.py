"""Ops that stay one node although torch runs them as many.

On the ``meta`` device attention falls apart into 16 ops, an LSTM into 83 and ``linear`` into a product and views,
differently by device and by what needs a gradient. Each is one kernel, or one call, on the hardware that we predict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gnnperf.capture.autocast import RECURRENT
from gnnperf.capture.interception import Op, register
from gnnperf.graph import Attribute


@dataclass(frozen=True, slots=True)
class Composite:
    """One node in place of many: what it reads, what it writes, and what it returns to the caller."""

    op: str
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    returned: Any
    attributes: dict[str, Attribute]


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Composite:
    shape = (*x.shape[:-1], weight.shape[0]) if weight.dim() == 2 else x.shape[:-1]
    if x.shape[-1] != weight.shape[-1]:
        raise RuntimeError(f"linear: input {tuple(x.shape)} does not fit weight {tuple(weight.shape)}")
    _check_dtypes("linear", x, weight)
    out = x.new_empty(shape)
    return Composite("linear", [t for t in (x, weight, bias) if t is not None], [out], out, {})


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Composite:
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        shapes = ", ".join(str(tuple(t.shape)) for t in (query, key, value))
        raise RuntimeError(f"scaled_dot_product_attention: query, key and value do not fit: {shapes}")
    _check_dtypes("scaled_dot_product_attention", query, key, value)
    lead = query.shape[:-2] if enable_gqa else torch.broadcast_shapes(*(t.shape[:-2] for t in (query, key, value)))
    length, width = query.shape[-2], value.shape[-1]
    if lead:  # fused kernels write heads next to each other, so that merging them afterwards is a view
        out = query.new_empty((*lead[:-1], length, lead[-1], width)).transpose(-3, -2)
    else:
        out = query.new_empty((length, width))
    inputs = [t for t in (query, key, value, attn_mask) if t is not None]
    attributes: dict[str, Attribute] = {"causal": is_causal, "attention_implementation": "fused"}
    if dropout_p:
        attributes["dropout"] = float(dropout_p)
    return Composite("attention", inputs, [out], out, attributes)


def _rms_norm(
    x: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> Composite:
    if tuple(x.shape[x.dim() - len(normalized_shape) :]) != tuple(normalized_shape):
        raise RuntimeError(f"rms_norm: input {tuple(x.shape)} does not end in {tuple(normalized_shape)}")
    out = torch.empty_like(x)
    inputs = [x] if weight is None else [x, weight]
    return Composite("rms_norm", inputs, [out], out, {"normalized_shape": list(normalized_shape)})


def _check_dtypes(op: str, *operands: torch.Tensor) -> None:
    """Refuse what torch refuses: products of different types."""
    dtypes = [t.dtype for t in operands]
    if len(set(dtypes)) > 1:
        raise RuntimeError(f"{op}: expected operands of one dtype, got {', '.join(map(str, dtypes))}")


_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def _recurrent(overload: str) -> Callable[..., Composite]:
    kind, _, form = overload.partition(".")
    kind = kind.partition("_")[0]

    def layer(x: torch.Tensor, *args: Any) -> Composite:
        packed = form == "data"
        hx, params, _, layers, _, _, bidirectional, *batch_first = args[1:] if packed else args
        initial = list(hx) if isinstance(hx, list | tuple) else [hx]
        out = x.new_empty((*x.shape[:-1], initial[0].shape[-1] * (2 if bidirectional else 1)))
        final = [torch.empty_like(state) for state in initial]
        attributes: dict[str, Attribute] = {
            "hidden_size": params[0].shape[0] // _GATES[kind],
            "num_layers": layers,
            "bidirectional": bidirectional,
            "time_steps": args[0].shape[0] if packed else x.shape[1 if batch_first[0] else 0],
        }
        return Composite(kind, [x, *initial, *params], [out, *final], (out, *final), attributes)

    return layer


_BUILDERS: dict[str, Callable[..., Composite]] = {
    "linear": _linear,
    "scaled_dot_product_attention": _attention,
    "rms_norm": _rms_norm,
    **{name: _recurrent(name) for name in RECURRENT.split()},
}

register([name for name in _BUILDERS if name not in RECURRENT.split()])

_SOFTMAX_KERNELS = {
    "softmax.int": torch.ops.aten._softmax.default,
    "log_softmax.int": torch.ops.aten._log_softmax.default,
}


def as_on_cuda(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Op, tuple[Any, ...], dict[str, Any]]:
    """The call that CUDA makes of ``op``: its softmax reads fp16 and writes fp32 without a cast before it."""
    kernel = _SOFTMAX_KERNELS.get(op.__name__)
    if kernel is None or args[0].dtype is not torch.float16:
        return op, args, kwargs
    x, dim, *rest = args
    if kwargs.get("dtype", rest[0] if rest else None) is not torch.float32:
        return op, args, kwargs
    return kernel, (x, dim, True), {}


def build(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Composite | None:
    """The single node for ``op``, or None where torch's own parts are right.

    Raises:
        RuntimeError: As torch would, if the operands do not fit each other.
    """
    builder = _BUILDERS.get(op.__name__.removesuffix(".default"))
    return builder(*args, **kwargs) if builder else None
