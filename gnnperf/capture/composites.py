"""Ops that stay one node although torch runs them as many.

On the ``meta`` device attention falls apart into 16 ops, an LSTM into 83 and ``linear`` into a product and views,
differently by device and by what needs a gradient. Each is one kernel, or one call, on the hardware that we predict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from gnnperf.capture.autocast import RECURRENT
from gnnperf.capture.interception import Op, register, suspended
from gnnperf.graph import Attribute


class Recorder(Protocol):
    """What a composite asks of the running trace."""

    def record(
        self, op: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor], attributes: dict[str, Attribute]
    ) -> None:
        """Add a node."""


# The gradients of inputs, given their positions, the gradients of the outputs and what the backward pass reads.
Differentiable = Callable[[list[int], list[torch.Tensor], list[torch.Tensor]], list[torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Composite:
    """One node in place of many, and one for its gradients.

    Attributes:
        op: Canonical name; ``_backward`` is added for the gradients.
        inputs: What it reads.
        outputs: What it writes.
        attributes: Of both nodes.
        kept: What the backward pass reads besides the gradients of the outputs, given the positions of the inputs
            that need a gradient; by default all inputs and outputs.
        hidden: How many of the last outputs the caller does not get.
        differentiable: The backward pass in plain ops, for gradients that are differentiated again; None where that is
            not captured.
    """

    op: str
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    attributes: dict[str, Attribute]
    kept: Callable[[list[int]], list[torch.Tensor]] | None = None
    hidden: int = 0
    differentiable: Differentiable | None = None

    def record(self, trace: Recorder) -> Any:
        """Add the node to ``trace``, and the other when gradients flow back; what the caller gets.

        A checkpoint stops its second forward pass once it has what the backward pass reads: an op of which that is the
        operands alone does not run again.
        """
        kept = self.reads_back(list(range(len(self.inputs))))
        if runs_first := any(t is output for t in kept for output in self.outputs):
            self._add(trace)
        results = _Recorded.apply(trace, self, *self.inputs)
        if not runs_first:
            self._add(trace)
        shown = results[: len(results) - self.hidden]
        return shown[0] if len(shown) == 1 else shown

    def _add(self, trace: Recorder) -> None:
        trace.record(self.op, self.inputs, self.outputs, dict(self.attributes))

    def reads_back(self, wanted: list[int]) -> list[torch.Tensor]:
        """What the backward pass reads to compute the gradients of the inputs at the positions ``wanted``."""
        return self.kept(wanted) if self.kept is not None else [*self.inputs, *self.outputs]


def _has_gradient(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


class _Recorded(torch.autograd.Function):
    """A composite as autograd sees it."""

    @staticmethod
    def forward(ctx: Any, trace: Recorder, composite: Composite, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.trace, ctx.op, ctx.attributes = trace, composite.op, composite.attributes
        ctx.differentiable = composite.differentiable
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad[2:]) if needed]
        ctx.like = [_form(composite.inputs[i]) for i in wanted]
        ctx.save_for_backward(*composite.reads_back(wanted))
        ctx.mark_non_differentiable(*(t for t in composite.outputs if not _has_gradient(t)))
        ctx.set_materialize_grads(False)
        return tuple(composite.outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad[2:]) if needed]
        given, kept = [g for g in gradients if g is not None], list(ctx.saved_tensors)
        again = torch.is_grad_enabled() and any(t.requires_grad for t in (*given, *kept))
        if again and ctx.differentiable is not None:
            with suspended():
                made = ctx.differentiable(wanted, given, kept)
        else:
            made = [torch.empty_strided(size, stride, dtype=dtype, device="meta") for size, stride, dtype in ctx.like]
            ctx.trace.record(f"{ctx.op}_backward", [*given, *kept], made, {**ctx.attributes, "gradients": wanted})
            if again:
                made = _refuse_second_derivatives(ctx.op, made)
        results = dict(zip(wanted, made, strict=True))
        return (None, None, *(results.get(i) for i in range(len(ctx.needs_input_grad) - 2)))


def _form(tensor: torch.Tensor) -> tuple[torch.Size, tuple[int, ...], torch.dtype]:
    """Size, strides and type of what ``empty_like`` would make, without the memory."""
    dense = torch._prims_common.is_non_overlapping_and_dense_or_false(tensor)
    stride = tensor.stride() if dense else torch.empty(tensor.shape, device="meta").stride()
    return tensor.shape, stride, tensor.dtype


def _refuse_second_derivatives(op: str, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors, which raise an error when they are differentiated."""
    message = f"second derivatives of {op} are not captured: write it as products and elementwise ops"
    refused = torch._C._functions.DelayedError(message.encode(), len(gradients))  # as torch's once_differentiable does
    results = refused(*(t.requires_grad_() for t in gradients))
    return list(results) if isinstance(results, tuple) else [results]


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Composite:
    shape = (*x.shape[:-1], weight.shape[0]) if weight.dim() == 2 else x.shape[:-1]
    if x.shape[-1] != weight.shape[-1]:
        raise RuntimeError(f"linear: input {tuple(x.shape)} does not fit weight {tuple(weight.shape)}")
    _check_dtypes("linear", x, weight)
    out = x.new_empty(shape)

    def kept(wanted: list[int]) -> list[torch.Tensor]:  # each gradient needs the other operand
        return [operand for position, operand in ((1, x), (0, weight)) if position in wanted]

    inputs = [t for t in (x, weight, bias) if t is not None]
    return Composite("linear", inputs, [out], {}, kept, differentiable=_linear_gradients if weight.dim() == 2 else None)


def _linear_gradients(wanted: list[int], gradients: list[torch.Tensor], kept: list[torch.Tensor]) -> list[torch.Tensor]:
    (gradient,) = gradients
    rows = gradient.reshape(-1, gradient.shape[-1])
    results = []
    if 0 in wanted:
        results.append(gradient @ kept[-1])
    if 1 in wanted:
        results.append(rows.T @ kept[0].reshape(-1, kept[0].shape[-1]))
    if 2 in wanted:
        results.append(rows.sum(0))
    return results


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
    # The fused kernels take (batch, heads, length, width) only: sdp_utils::check_tensor_shapes of torch.
    implementation = "fused" if query.dim() == 4 else "decomposed"
    attributes: dict[str, Attribute] = {"causal": is_causal, "attention_implementation": implementation}
    if dropout_p:
        attributes["dropout"] = float(dropout_p)
    return Composite("attention", inputs, [out], attributes)


def _rms_norm(
    x: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> Composite:
    if tuple(x.shape[x.dim() - len(normalized_shape) :]) != tuple(normalized_shape):
        raise RuntimeError(f"rms_norm: input {tuple(x.shape)} does not end in {tuple(normalized_shape)}")
    out = torch.empty_like(x)
    inputs = [x] if weight is None else [x, weight]
    axes = tuple(range(x.dim() - len(normalized_shape), x.dim()))

    def differentiable(
        wanted: list[int], gradients: list[torch.Tensor], kept: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        (gradient,), (x, *weight) = gradients, kept
        scale = x.square().mean(axes, keepdim=True).rsqrt()
        normal = x * scale
        results = []
        if 0 in wanted:
            inner = gradient * weight[0] if weight else gradient
            results.append((inner - normal * (normal * inner).mean(axes, keepdim=True)) * scale)
        if 1 in wanted:
            results.append((gradient * normal).sum_to_size(weight[0].shape))
        return results

    attributes: dict[str, Attribute] = {"normalized_shape": list(normalized_shape)}
    return Composite("rms_norm", inputs, [out], attributes, lambda _: inputs, differentiable=differentiable)


def _dropout(x: torch.Tensor, p: float, train: bool) -> Composite | None:
    """One kernel that draws and applies the mask, a byte for each element, as on CUDA."""
    if not train or p == 0 or not x.numel():
        return None
    mask = torch.empty_like(x, dtype=torch.bool)

    def differentiable(
        wanted: list[int], gradients: list[torch.Tensor], kept: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        return [torch.ops.aten.native_dropout_backward(gradients[0], kept[0], 1 / (1 - p) if p < 1 else 0.0)]

    outputs = [torch.empty_like(x), mask]
    return Composite("dropout", [x], outputs, {"p": p}, lambda _: [mask], hidden=1, differentiable=differentiable)


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
        outputs, hidden = [out, *final], 0
        if torch.is_grad_enabled() and any(t.requires_grad for t in (x, *initial, *params)):
            # what is kept of every step for the backward pass: the gates and, of an LSTM, the cell state
            per_step = _GATES[kind] + (1 if kind == "lstm" else 0)
            outputs.append(x.new_empty((*out.shape[:-1], per_step * layers * out.shape[-1])))
            hidden = 1
        attributes: dict[str, Attribute] = {
            "hidden_size": params[0].shape[0] // _GATES[kind],
            "num_layers": layers,
            "bidirectional": bidirectional,
            "time_steps": args[0].shape[0] if packed else x.shape[1 if batch_first[0] else 0],
        }
        return Composite(kind, [x, *initial, *params], outputs, attributes, hidden=hidden)

    return layer


_BUILDERS: dict[str, Callable[..., Composite | None]] = {
    "dropout": _dropout,
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
