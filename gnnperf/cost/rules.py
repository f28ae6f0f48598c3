"""Cost rules of the canonical ops. Every rule is plain arithmetic on shapes."""

from __future__ import annotations

import math
from dataclasses import replace

from gnnperf.cost.registry import Cost, moved, register
from gnnperf.graph import ITEM_BYTES, Node

# FLOPs of one element; roots, exponentials and the like count as the handful of instructions that they take.
_TRANSCENDENTAL = 8
ELEMENTWISE_FLOPS: dict[str, int] = {
    **dict.fromkeys(
        """abs add bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp
        conj_physical copysign deg2rad div eq fix floor fmax fmin frac ge gt hardshrink heaviside isfinite isinf isnan
        isneginf isposinf ldexp le logical_and logical_not logical_or logical_xor lt masked_fill maximum minimum mul
        nan_to_num ne neg nextafter positive rad2deg reciprocal relu round sgn sign signbit sub threshold trunc where
        hypot real imag complex view_as_complex conj""".split(),
        1,
    ),
    **dict.fromkeys("square leaky_relu prelu softshrink floor_divide fmod remainder lerp".split(), 2),
    **dict.fromkeys("addcdiv addcmul hardsigmoid hardswish glu".split(), 3),
    **dict.fromkeys(
        """acos acosh angle asin asinh atan atan2 atanh celu cos cosh digamma elu erf erfc erfinv exp exp2 expm1 frexp
        gcd i0 igamma igammac lcm lgamma log log10 log1p log2 log_sigmoid_forward logaddexp logaddexp2 logit mvlgamma
        polar polygamma pow rsqrt selu sigmoid silu sin sinc sinh softplus special_erfcx special_i1 sqrt tan tanh xlogy
        softsign log_sigmoid""".split(),
        _TRANSCENDENTAL,
    ),
    **dict.fromkeys(["gelu", "mish"], 2 * _TRANSCENDENTAL),
}


@register(*ELEMENTWISE_FLOPS)
def elementwise(node: Node) -> Cost:
    """A fixed number of FLOPs for every element of the result."""
    return moved(node, "elementwise", ELEMENTWISE_FLOPS[node.op] * node.outputs[0].elements)


@register("dropout", "random")
def random_numbers(node: Node) -> Cost:
    """A random number for every element of the result."""
    return moved(node, "elementwise", 10 * node.outputs[0].elements)


@register("conv")
def convolution(node: Node) -> Cost:
    """``2 * N * Cout * spatial_out * (Cin / groups) * kernel``, and one addition an element for a bias.

    Depthwise, no channel meets another, so there is no product for the matrix units.
    """
    weight, out = node.inputs[1], node.outputs[0]
    flops = 2 * out.elements * math.prod(weight.shape[1:])
    return _with_copy(node, moved(node, "conv", flops + _bias(node, 2), matrix=not is_depthwise(node)))


def is_depthwise(node: Node) -> bool:
    """Whether a convolution, or its backward, filters every channel on its own."""
    groups = node.attributes.get("groups", 1)
    weight = node.inputs[2 if node.op.endswith("_backward") else 1]
    return isinstance(groups, int) and groups > 1 and weight.shape[1] == 1


@register("conv_transpose")
def transposed_convolution(node: Node) -> Cost:
    """``2 * N * Cin * spatial_in * (Cout / groups) * kernel``: every input element meets its whole kernel."""
    flops = 2 * node.inputs[0].elements * math.prod(node.inputs[1].shape[1:])
    return _with_copy(node, moved(node, "conv", flops + _bias(node, 2), matrix=True))


@register("linear", "matmul")
def matrix_product(node: Node) -> Cost:
    """``2 * M * N * K`` for every matrix of the batch, and one addition an element for a bias."""
    flops = 2 * node.outputs[0].elements * node.inputs[0].shape[-1]
    return _with_copy(node, moved(node, "matmul", flops + _bias(node, 2), matrix=True))


@register("grouped_matmul")
def grouped_product(node: Node) -> Cost:
    """Each row meets the matrix of its own group: ``2 * rows * N * K``; all groups' weights are read."""
    return moved(node, "matmul", 2 * node.outputs[0].elements * node.inputs[0].shape[-1], matrix=True)


@register("batch_summed_matmul")
def summed_product(node: Node) -> Cost:
    """``2 * B * M * N * K``: the products of a batch of matrices, added up."""
    flops = 2 * node.inputs[0].elements * node.inputs[1].shape[-1]
    return moved(node, "matmul", flops + _bias(node, 2), matrix=True)


@register("bilinear")
def bilinear(node: Node) -> Cost:
    """``x1 W x2`` for every row: each row meets the whole weight once, ``2 * rows * out * in1 * in2``."""
    rows = node.outputs[0].elements // max(1, node.inputs[1].shape[0])
    return moved(node, "matmul", 2 * rows * node.inputs[1].elements, matrix=True)


@register("cdist")
def pairwise_distance(node: Node) -> Cost:
    """Three FLOPs (difference, square, sum) for every pair and coordinate.

    torch takes Euclidean distances of more than 25 points (``by_product``) from one matrix product, its operands
    lengthened by their squared norms and by ones, and a root: ``|x|^2 - 2 x y + |y|^2`` (``_euclidean_dist``).
    """
    pairs, width = node.outputs[0].elements, node.inputs[0].shape[-1]
    if not node.attributes.get("by_product"):
        return moved(node, "matmul", 3 * pairs * width)
    flops = 2 * pairs * (width + 2) + (1 + _TRANSCENDENTAL) * pairs + sum(2 * t.elements for t in node.inputs)
    return moved(node, "matmul", flops, matrix=True)


@register("attention")
def attention(node: Node) -> Cost:
    """Scaled dot-product attention: ``2 * heads * L * S * (E + Ev)`` in products, ``5 * heads * L * S`` in softmax.

    Fused, the matrix of scores never reaches memory. Decomposed, it is written and read by the product, the scaling,
    the mask, the softmax and the second product, a kernel each, and the result is copied to merge the heads.
    A causal mask saves nothing here, as in ``torch.utils.flop_counter``.
    """
    query, key, value = node.inputs[:3]
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    flops = 2 * pairs * (query.shape[-1] + value.shape[-1])
    if node.attributes.get("attention_implementation", "fused") == "fused":
        return moved(node, "attention", flops, matrix=True)
    masked = len(node.inputs) > 3 or bool(node.attributes.get("causal"))
    scores_bytes = pairs * query.bytes / max(1, query.elements)
    out_bytes = node.outputs[0].bytes
    passes = 3 + masked
    return moved(
        node,
        "attention",
        flops + 5 * pairs,
        read=sum(t.bytes for t in node.inputs) + passes * scores_bytes + out_bytes,
        written=passes * scores_bytes + 2 * out_bytes,
        matrix=True,
        kernels=5 + masked,
    )


@register("batch_norm", "group_norm", "layer_norm", "rms_norm", "instance_norm")
def normalization(node: Node) -> Cost:
    """Two FLOPs an element to apply known statistics (batch norm at inference), seven to compute them as well.

    The kernels of layer norm want their rows in one piece: operands that lie otherwise are copied first.
    """
    known = node.op == "batch_norm" and not node.attributes.get("training", False)
    flops = (2 if known else 7) * node.outputs[0].elements
    if node.op != "layer_norm" or node.inputs[0].layout == "row_major":
        return moved(node, "normalization", flops)
    copied = node.inputs[0].bytes
    read, written = (sum(t.bytes for t in tensors) + copied for tensors in (node.inputs, node.outputs))
    return moved(node, "normalization", flops, read=read, written=written, kernels=2)


@register("weight_norm")
def weight_normalization(node: Node) -> Cost:
    """Square, sum, divide and scale every element of the weight."""
    return moved(node, "normalization", 4 * node.outputs[0].elements)


@register("softmax", "log_softmax")
def softmax(node: Node) -> Cost:
    """Maximum, difference, exponential, sum and division for every element."""
    return moved(node, "softmax", (4 + _TRANSCENDENTAL) * node.outputs[0].elements)


@register(
    "reduce_mean",
    "reduce_sum",
    "reduce_prod",
    "reduce_max",
    "reduce_min",
    "reduce_all",
    "reduce_any",
    "argmax",
    "argmin",
)
def reduction(node: Node) -> Cost:
    """One FLOP for every element that goes in."""
    return moved(node, "reduction", node.inputs[0].elements)


@register("nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss")
def loss(node: Node) -> Cost:
    """Difference, penalty and sum for every element that goes in."""
    return moved(node, "reduction", 3 * node.inputs[0].elements)


@register("binary_cross_entropy_with_logits")
def loss_of_logits(node: Node) -> Cost:
    """The logarithm of a sigmoid, a difference, two products and a sum for every element that goes in."""
    return moved(node, "reduction", (4 + _TRANSCENDENTAL) * node.inputs[0].elements)


@register("reduce_variance", "reduce_norm", "reduce_logsumexp", "cumsum", "cumprod", "bincount")
def heavier_reduction(node: Node) -> Cost:
    """Three FLOPs for every element that goes in."""
    return moved(node, "reduction", 3 * node.inputs[0].elements)


@register("max_pool", "avg_pool")
def pooling(node: Node) -> Cost:
    """One FLOP for every element of every window."""
    kernel = node.attributes["kernel_size"]
    dims = len(node.outputs[0].shape) - 2
    window = math.prod(kernel) if isinstance(kernel, list) and len(kernel) > 1 else _only(kernel) ** max(1, dims)
    return moved(node, "pooling", node.outputs[0].elements * window)


@register("adaptive_avg_pool", "adaptive_max_pool")
def adaptive_pooling(node: Node) -> Cost:
    """The windows cover the input once (or a little more, where they overlap)."""
    return moved(node, "pooling", max(node.inputs[0].elements, node.outputs[0].elements))


@register("resize", "grid_sample")
def interpolation(node: Node) -> Cost:
    """A weighted sum of the neighbours of every result: 1 for nearest, 2 a dimension for linear, 4 for cubic."""
    mode = str(node.attributes.get("mode", "bilinear"))
    dims = max(1, len(node.outputs[0].shape) - 2)
    taps = 1 if "nearest" in mode else (4 if "cubic" in mode else 2) ** dims
    return moved(node, "pooling", 2 * taps * node.outputs[0].elements)


@register(
    "copy", "cast", "concat", "pad", "roll", "flip", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "tril"
)
def movement(node: Node) -> Cost:
    """No arithmetic."""
    return moved(node, "movement")


@register("fill", "triu", "repeat", "unfold", "fold", "rot90", "diag_embed", "split_with_sizes_copy")
def production(node: Node) -> Cost:
    """No arithmetic; what it writes may be larger than what it reads."""
    return moved(node, "movement")


@register("gather", "embedding")
def gather(node: Node) -> Cost:
    """Reads only the elements that it picks, and the indices."""
    picked = sum(t.bytes for t in node.outputs)
    indices = sum(t.bytes for t in node.inputs[1:])
    return _of_weights(node, moved(node, "gather", read=picked + indices), picked)


@register("embedding_bag")
def embedding_bag(node: Node) -> Cost:
    """Reads a row for every index and adds it up."""
    table, indices = node.inputs[0], node.inputs[1]
    picked = indices.elements * table.shape[-1] * table.bytes / max(1, table.elements)
    others = sum(t.bytes for t in node.inputs[1:])
    cost = moved(node, "gather", indices.elements * table.shape[-1], read=picked + others)
    return _of_weights(node, cost, picked)


@register("scatter")
def scatter(node: Node) -> Cost:
    """Reads indices and values and writes the elements that they name; out of place, it copies its base first.

    Operands are the base, the indices and, unless it is a number, the values. ``elements`` is how many elements are
    written where the values do not say; ``accumulate`` adds to what is there.
    """
    base, *others = node.inputs
    elements = int(node.attributes.get("elements", others[-1].elements))  # type: ignore[arg-type]
    accumulate = bool(node.attributes.get("accumulate", False))
    touched = elements * ITEM_BYTES[base.dtype]
    copied = 0 if node.attributes.get("in_place", False) else base.bytes
    read = sum(t.bytes for t in others) + copied + accumulate * touched
    flops = elements if accumulate else 0
    return moved(node, "gather", flops, read=read, written=touched + copied, kernels=2 if copied else 1)


@register("nonzero", "masked_select", "repeat_interleave", "searchsorted", "bucketize", "isin")
def selection(node: Node) -> Cost:
    """Reads all, writes what it finds."""
    return moved(node, "gather", node.inputs[0].elements)


@register("topk", "sort", "unique", "kthvalue", "median", "histc")
def sorting(node: Node) -> Cost:
    """``n log2 n`` comparisons along the sorted dimension."""
    data = node.inputs[0]
    axes = node.attributes.get("axes")
    length = data.shape[axes[0]] if isinstance(axes, list) and data.shape else data.elements
    return moved(node, "sort", data.elements * math.log2(max(2, length)))


@register("fft")
def fourier(node: Node) -> Cost:
    """``5 n log2 n`` for every transformed vector (Cooley and Tukey, 1965)."""
    data = max((*node.inputs, *node.outputs), key=lambda t: t.elements)
    axes = node.attributes.get("axes")
    length = math.prod(data.shape[a] for a in axes) if isinstance(axes, list) else data.shape[-1]
    return moved(node, "reduction", 5 * data.elements * math.log2(max(2, length)))


def _with_copy(node: Node, cost: Cost) -> Cost:
    """The cost with a copy of the first operand, where that does not lie as the library wants it."""
    if not node.attributes.get("copies_input"):
        return cost
    size = node.inputs[0].bytes
    return replace(
        cost, bytes_read=cost.bytes_read + size, bytes_written=cost.bytes_written + size, kernels=cost.kernels + 1
    )


def _bias(node: Node, position: int) -> int:
    return node.outputs[0].elements if len(node.inputs) > position else 0


def _only(value: object) -> int:
    return int(value[0] if isinstance(value, list) else value)  # type: ignore[arg-type]


def _of_weights(node: Node, cost: Cost, picked: float) -> Cost:
    """Only the picked rows of a table of weights are read."""
    weights = picked if node.inputs[0].kind == "parameter" else 0.0
    return Cost(cost.flops, cost.bytes_read, cost.bytes_written, weights, cost.op_class)
