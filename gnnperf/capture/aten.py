"""Translate ATen ops into the canonical vocabulary, which torch and ONNX share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from gnnperf.graph import Attribute

# ATen name -> (canonical op, schema arguments worth keeping as attributes). In-place and out variants map by their
# functional name; what is not listed keeps its ATen name, without attributes.
_CONV = ("stride", "padding", "dilation", "groups")
_POOL = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
_TABLE: dict[str, tuple[str, tuple[str, ...]]] = {
    "mm": ("matmul", ()),
    "bmm": ("matmul", ()),
    "addmm": ("matmul", ()),
    "baddbmm": ("matmul", ()),
    "addbmm": ("batch_summed_matmul", ()),
    "_int_mm": ("matmul", ()),
    "_trilinear": ("bilinear", ()),
    "mv": ("matmul", ()),
    "addmv": ("matmul", ()),
    "dot": ("matmul", ()),
    "vdot": ("matmul", ()),
    "_grouped_mm": ("grouped_matmul", ()),
    **{
        f"_scaled_dot_product_{kernel}": ("attention", ())
        for kernel in """attention_math cudnn_attention efficient_attention flash_attention flash_attention_for_cpu
        fused_attention_overrideable""".split()
    },
    "max_pool2d_with_indices": ("max_pool", _POOL),
    "max_pool3d_with_indices": ("max_pool", _POOL),
    "avg_pool1d": ("avg_pool", _POOL),
    "avg_pool2d": ("avg_pool", _POOL),
    "avg_pool3d": ("avg_pool", _POOL),
    "_adaptive_avg_pool2d": ("adaptive_avg_pool", ("output_size",)),
    "_adaptive_avg_pool3d": ("adaptive_avg_pool", ("output_size",)),
    "adaptive_avg_pool1d": ("adaptive_avg_pool", ("output_size",)),
    "adaptive_max_pool2d": ("adaptive_max_pool", ("output_size",)),
    "adaptive_max_pool3d": ("adaptive_max_pool", ("output_size",)),
    "native_batch_norm": ("batch_norm", ("training",)),
    "_native_batch_norm_legit": ("batch_norm", ("training",)),
    "_native_batch_norm_legit_no_training": ("batch_norm", ()),
    "cudnn_batch_norm": ("batch_norm", ("training",)),
    "_batch_norm_no_update": ("batch_norm", ()),
    "_batch_norm_with_update": ("batch_norm", ()),
    "native_layer_norm": ("layer_norm", ("normalized_shape",)),
    "native_group_norm": ("group_norm", ("group",)),
    "_softmax": ("softmax", ("dim",)),
    "_safe_softmax": ("softmax", ("dim",)),
    "_log_softmax": ("log_softmax", ("dim",)),
    "_embedding_bag": ("embedding_bag", ("mode",)),
    "_embedding_bag_forward_only": ("embedding_bag", ("mode",)),
    "cat": ("concat", ("dim",)),
    "stack": ("concat", ("dim",)),
    "copy": ("copy", ()),
    "clone": ("copy", ()),
    "contiguous": ("copy", ()),
    "_reshape_copy": ("copy", ()),
    "lift_fresh_copy": ("copy", ()),
    "detach_copy": ("copy", ()),
    "constant_pad_nd": ("pad", ("pad",)),
    "reflection_pad1d": ("pad", ("padding",)),
    "reflection_pad2d": ("pad", ("padding",)),
    "reflection_pad3d": ("pad", ("padding",)),
    "replication_pad1d": ("pad", ("padding",)),
    "replication_pad2d": ("pad", ("padding",)),
    "replication_pad3d": ("pad", ("padding",)),
    "index": ("gather", ()),
    "index_select": ("gather", ("dim",)),
    "gather": ("gather", ("dim",)),
    "take": ("gather", ()),
    "_pack_padded_sequence": ("gather", ()),
    "_unsafe_index": ("gather", ()),
    "put": ("scatter", ()),
    "index_put": ("scatter", ()),
    "_index_put_impl": ("scatter", ()),
    "_unsafe_index_put": ("scatter", ()),
    "index_reduce": ("scatter", ("dim",)),
    "index_add": ("scatter", ("dim",)),
    "index_copy": ("scatter", ("dim",)),
    "index_fill": ("scatter", ("dim",)),
    "scatter": ("scatter", ("dim",)),
    "scatter_add": ("scatter", ("dim",)),
    "scatter_reduce": ("scatter", ("dim",)),
    "masked_scatter": ("scatter", ()),
    "select_scatter": ("copy", ()),
    "slice_scatter": ("copy", ()),
    "im2col": ("unfold", ("kernel_size", "stride", "padding", "dilation")),
    "col2im": ("fold", ("kernel_size", "stride", "padding", "dilation")),
    "mean": ("reduce_mean", ("dim",)),
    "sum": ("reduce_sum", ("dim",)),
    "nansum": ("reduce_sum", ("dim",)),
    "prod": ("reduce_prod", ("dim",)),
    "amax": ("reduce_max", ("dim",)),
    "amin": ("reduce_min", ("dim",)),
    "aminmax": ("reduce_max", ("dim",)),
    "all": ("reduce_all", ("dim",)),
    "any": ("reduce_any", ("dim",)),
    "argmax": ("argmax", ("dim",)),
    "argmin": ("argmin", ("dim",)),
    "var": ("reduce_variance", ("dim",)),
    "std": ("reduce_variance", ("dim",)),
    "var_mean": ("reduce_variance", ("dim",)),
    "std_mean": ("reduce_variance", ("dim",)),
    "norm": ("reduce_norm", ("dim",)),
    "linalg_vector_norm": ("reduce_norm", ("dim",)),
    "logsumexp": ("reduce_logsumexp", ("dim",)),
    "count_nonzero": ("reduce_sum", ("dim",)),
    "cumsum": ("cumsum", ("dim",)),
    "cumprod": ("cumprod", ("dim",)),
    "topk": ("topk", ("k", "dim")),
    "sort": ("sort", ("dim",)),
    "argsort": ("sort", ("dim",)),
    "native_dropout": ("dropout", ("p",)),
    "grid_sampler_2d": ("grid_sample", ()),
    "grid_sampler_3d": ("grid_sample", ()),
    "_cdist_forward": ("cdist", ("p",)),
    "_euclidean_dist": ("cdist", ()),
    "_fft_r2c": ("fft", ("dim",)),
    "_fft_c2c": ("fft", ("dim",)),
    "_fft_c2r": ("fft", ("dim",)),
    "_thnn_fused_lstm_cell": ("lstm_cell", ()),
    "_thnn_fused_gru_cell": ("gru_cell", ()),
    "nll_loss_forward": ("nll_loss", ()),
    "nll_loss2d_forward": ("nll_loss", ()),
    "_weight_norm_interface": ("weight_norm", ()),
    "native_channel_shuffle": ("channel_shuffle", ()),
    "lshift": ("bitwise_left_shift", ()),
    "ilshift": ("bitwise_left_shift", ()),
    "rshift": ("bitwise_right_shift", ()),
    "irshift": ("bitwise_right_shift", ()),
    "rsub": ("sub", ()),
    "true_divide": ("div", ()),
    "clip": ("clamp", ()),
    "clamp_min": ("clamp", ()),
    "clamp_max": ("clamp", ()),
    "hardtanh": ("clamp", ()),
    "relu6": ("clamp", ()),
    "_prelu_kernel": ("prelu", ()),
    "gelu": ("gelu", ("approximate",)),
    "_unique2": ("unique", ()),
    "unique_dim": ("unique", ()),
    "unique_consecutive": ("unique", ()),
    "roll": ("roll", ("shifts", "dims")),
    "flip": ("flip", ("dims",)),
    "bernoulli": ("random", ()),
    "normal": ("random", ()),
    "uniform": ("random", ()),
    "exponential": ("random", ()),
    "rand": ("random", ()),
    "randn": ("random", ()),
    "rand_like": ("random", ()),
    "randn_like": ("random", ()),
    "randint": ("random", ()),
    "randint_like": ("random", ()),
    "randperm": ("random", ()),
    **{
        name: ("fill", ())
        for name in """zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full fill zero arange eye
        linspace logspace scalar_tensor tril_indices triu_indices""".split()
    },
}
# Gradients of an op: (canonical name of the forward op, attributes).
_BACKWARD: dict[str, tuple[str, tuple[str, ...]]] = {
    "native_batch_norm_backward": ("batch_norm", ("train",)),
    "cudnn_batch_norm_backward": ("batch_norm", ()),
    "batch_norm_backward": ("batch_norm", ()),
    "native_layer_norm_backward": ("layer_norm", ("normalized_shape",)),
    "native_group_norm_backward": ("group_norm", ("group",)),
    "_fused_rms_norm_backward": ("rms_norm", ("normalized_shape",)),
    "_weight_norm_interface_backward": ("weight_norm", ()),
    **{
        f"{name}_backward": ("max_pool", _POOL)
        for name in ("max_pool2d_with_indices", "max_pool3d_with_indices", "fractional_max_pool2d")
    },
    **{f"avg_pool{dims}d_backward": ("avg_pool", _POOL) for dims in (2, 3)},
    **{f"_adaptive_avg_pool{dims}d_backward": ("adaptive_avg_pool", ()) for dims in (2, 3)},
    **{f"adaptive_max_pool{dims}d_backward": ("adaptive_max_pool", ()) for dims in (2, 3)},
    "threshold_backward": ("relu", ()),
    "hardtanh_backward": ("clamp", ()),
    "_prelu_kernel_backward": ("prelu", ()),
    "_softmax_backward_data": ("softmax", ("dim",)),
    "_log_softmax_backward_data": ("log_softmax", ("dim",)),
    "nll_loss2d_backward": ("nll_loss", ()),
    "embedding_dense_backward": ("embedding", ()),
    "_embedding_bag_dense_backward": ("embedding_bag", ("mode",)),
    "native_dropout_backward": ("dropout", ()),
    "select_backward": ("slice", ()),
    "diagonal_backward": ("slice", ()),
    "grid_sampler_2d_backward": ("grid_sample", ()),
    "grid_sampler_3d_backward": ("grid_sample", ()),
    "_cdist_backward": ("cdist", ("p",)),
    **{
        f"{name}_pad{dims}d_backward": ("pad", ("padding",))
        for name in ("reflection", "replication")
        for dims in (1, 2, 3)
    },
    "_thnn_fused_lstm_cell_backward_impl": ("lstm_cell", ()),
    "_thnn_fused_gru_cell_backward": ("gru_cell", ()),
}
# Allocation without work, and queries.
NOT_OPS = frozenset(
    """empty empty_like empty_strided new_empty new_empty_strided empty_permuted set resize sym_size sym_numel
    sym_stride sym_storage_offset is_same_size _local_scalar_dense equal _assert_async _assert_scalar
    _assert_tensor_metadata record_stream lift lift_fresh""".split()
)


@dataclass(frozen=True, slots=True)
class OpInfo:
    """What a trace needs to know of one overload."""

    name: str
    arguments: tuple[str, ...]
    defaults: dict[str, Any]
    written: tuple[int, ...]
    overwritten: bool
    views: bool
    is_pure: bool
    is_in_place: bool


@cache
def describe(op: torch._ops.OpOverload) -> OpInfo:
    """The functional name of ``op``, its argument names and the positions of the arguments that it writes.

    ``overwritten`` tells that what it writes is not read first, as in ``copy_``; ``is_pure`` that it writes nothing
    and returns no view; ``is_in_place`` that it writes its first argument alone and returns it.
    """
    schema = op._schema
    namespace, _, packet = schema.name.partition("::")
    written = tuple(i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write)
    dunder = packet.startswith("__")
    name = packet.strip("_") if dunder else packet.rstrip("_") if written and packet.endswith("_") else packet
    if namespace not in ("aten", "prims"):  # another library's op is no op of ours, whatever its name
        name = schema.name
    is_out = any(schema.arguments[i].is_out for i in written)
    overwritten = is_out or name in ("copy", "fill", "zero", "normal", "uniform", "bernoulli", "exponential")
    aliases = not written and any(a.alias_info is not None for a in schema.arguments)
    views = aliases or torch.Tag.inplace_view in op.tags
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    is_pure = namespace in ("aten", "prims") and not written and not views
    is_in_place = namespace == "aten" and written == (0,) and not is_out and not views and len(schema.returns) == 1
    return OpInfo(
        name, tuple(a.name for a in schema.arguments), defaults, written, overwritten, views, is_pure, is_in_place
    )


def canonical(
    info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[torch.Tensor], outputs: list[torch.Tensor]
) -> tuple[str, list[torch.Tensor], dict[str, Attribute]]:
    """Canonical op, its operands in canonical order, and its attributes."""
    name = info.name
    bound = {**info.defaults, **dict(zip(info.arguments, args, strict=False)), **kwargs}
    if name in ("convolution", "_convolution", "convolution_overrideable"):
        op = "conv_transpose" if bound["transposed"] else "conv"
        more = ("output_padding",) if bound["transposed"] else ()
        return op, inputs, _attributes(bound, (*_CONV, *more), inputs)
    if name == "convolution_backward":
        op = "conv_transpose_backward" if bound["transposed"] else "conv_backward"
        wanted = [i for i, wants in enumerate(bound["output_mask"]) if wants]
        return op, inputs, {**_attributes(bound, _CONV, inputs), "gradients": wanted}
    if name in _BACKWARD:
        op, keys = _BACKWARD[name]
        return f"{op}_backward", inputs, _attributes(bound, keys, inputs)
    if name == "_to_copy":
        return ("copy" if inputs and inputs[0].dtype == outputs[0].dtype else "cast"), inputs, {}
    if name in ("addmm", "baddbmm", "addbmm", "addmv"):
        return _TABLE[name][0], [*inputs[1:], inputs[0]], {}
    if name in ("max", "min"):
        reduces = len(inputs) == 1
        return (f"reduce_{name}" if reduces else f"{name}imum"), inputs, _attributes(bound, ("dim",), inputs)
    if name.startswith(("upsample_", "_upsample_")):
        mode = name.strip("_").removeprefix("upsample_")
        op = "resize_backward" if mode.endswith("_backward") else "resize"
        return op, inputs, {"mode": mode.removesuffix("_backward")}
    op, keys = _TABLE.get(name, (name, ()))
    if op in ("fill", "random"):
        inputs = []
    attributes = _attributes(bound, keys, outputs if name == "stack" else inputs)
    if name == "_batch_norm_with_update":
        attributes["training"] = True
    if op == "scatter":
        attributes |= _scattered(info, bound)
    if name == "_euclidean_dist":
        attributes["by_product"] = True
    return op, inputs, attributes


def _scattered(info: OpInfo, bound: dict[str, Any]) -> dict[str, Attribute]:
    """What the cost of a scatter depends on besides its operands."""
    attributes: dict[str, Attribute] = {}
    if bound.get("accumulate") or info.name in ("index_add", "scatter_add", "scatter_reduce", "index_reduce"):
        attributes["accumulate"] = True
    base = bound["self"]
    if info.name == "index_fill":
        attributes["elements"] = base.numel() // max(1, base.shape[bound["dim"]]) * bound["index"].numel()
    elif info.name == "masked_scatter":
        attributes["elements"] = base.numel()
    elif "indices" in bound:
        attributes["elements"] = _indexed_elements(base, bound["indices"])
    return attributes


def _indexed_elements(base: torch.Tensor, indices: list[torch.Tensor | None]) -> int:
    """Number of elements that ``base[indices]`` names; for a mask, as many as there are at most."""
    given = [index for index in indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return base.numel()
    whole = (size for dim, size in enumerate(base.shape) if dim >= len(indices) or indices[dim] is None)
    return math.prod(torch.broadcast_shapes(*(index.shape for index in given))) * math.prod(whole)


def _attributes(bound: dict[str, Any], keys: tuple[str, ...], ranked: list[torch.Tensor]) -> dict[str, Attribute]:
    """The arguments ``keys``; dimensions count from the front of the first tensor of ``ranked``."""
    rank = ranked[0].dim() if ranked else 0
    attributes: dict[str, Attribute] = {}
    for key in keys:
        value = bound.get(key)
        if value is None or isinstance(value, torch.Tensor):
            continue
        if key == "stride" and not value:  # pooling windows that do not overlap
            value = bound["kernel_size"]
        if key in ("dim", "dims"):
            dims = [value] if isinstance(value, int) else list(value)
            attributes["axes"] = [dim % rank if rank else dim for dim in dims]
        else:
            attributes[key] = list(value) if isinstance(value, tuple | list) else value
    return attributes
