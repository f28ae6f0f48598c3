"""The cost rules of gradients and of the optimizer's update.

An op's gradients are one node, ``<op>_backward``; its attribute ``gradients`` lists the operands that get one. What
needs none costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnnperf.cost.registry import Cost, moved, register
from gnnperf.cost.rules import ELEMENTWISE_FLOPS, is_depthwise
from gnnperf.graph import Node, TensorSpec


def _wanted(node: Node) -> Sequence[int]:
    wanted = node.attributes["gradients"]
    assert isinstance(wanted, list)
    return wanted


def _bytes(*tensors: TensorSpec) -> int:
    return sum(t.bytes for t in tensors)


@register("conv_backward", "conv_transpose_backward")
def convolution_backward(node: Node) -> Cost:
    """A convolution's FLOPs for the input and as many for the weight; one addition an element for a bias.

    The gradient of the input meets the weight, that of the weight the input; each reads the result's gradient again.
    """
    gradient, data, weight = node.inputs[:3]
    wanted = _wanted(node)
    image = data if node.op.startswith("conv_transpose") else gradient
    product = 2 * image.elements * math.prod(weight.shape[1:])
    flops = product * sum(i in wanted for i in (0, 1)) + (gradient.elements if 2 in wanted else 0)
    read = sum(_bytes(gradient, *other) for i, other in enumerate(((weight,), (data,), ())) if i in wanted)
    matrix = not is_depthwise(node)
    return moved(node, "conv", flops, read=read, matrix=matrix, kernels=len(wanted))


@register("linear_backward")
def linear_backward(node: Node) -> Cost:
    """``2 * M * N * K`` for the input's gradient, as many for the weight's, ``M * N`` for a bias.

    Operands are the result's gradient, then the input if the weight wants a gradient, then the weight if the input
    wants one.
    """
    gradient, *others = node.inputs
    wanted = _wanted(node)
    products = [position for position in wanted if position < 2]
    depth = node.outputs[0].shape[-1] if products else 0
    flops = 2 * gradient.elements * depth * len(products) + (gradient.elements if 2 in wanted else 0)
    read = len(wanted) * gradient.bytes + _bytes(*others)
    if not products:
        return moved(node, "reduction", flops, read=read)
    return moved(node, "matmul", flops, read=read, matrix=True, kernels=len(wanted))


@register("attention_backward")
def attention_backward(node: Node) -> Cost:
    """Products for the gradients of the values, the scores, the queries and the keys; fused, the scores once more.

    That is ``2 * heads * L * S * (3 E + 2 Ev)`` fused and ``(2 E + 2 Ev)`` decomposed (Dao et al., "FlashAttention",
    NeurIPS 2022, algorithm 4), where the scores and their gradient go through memory: the softmax is read twice, its
    gradient written and read, that of the scores written, scaled, and read twice.
    """
    query, key, value = node.inputs[1:4]
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    if node.attributes.get("attention_implementation", "fused") == "fused":
        flops = 2 * pairs * (3 * query.shape[-1] + 2 * value.shape[-1])
        return moved(node, "attention", flops, matrix=True)
    flops = 4 * pairs * (query.shape[-1] + value.shape[-1]) + 4 * pairs
    scores = pairs * query.bytes / max(1, query.elements)
    read, written = _bytes(*node.inputs) + 6 * scores, _bytes(*node.outputs) + 3 * scores
    return moved(node, "attention", flops, read=read, written=written, matrix=True, kernels=6)


@register(*(f"{op}_backward" for op in (*ELEMENTWISE_FLOPS, "dropout")))
def elementwise_backward(node: Node) -> Cost:
    """The derivative, about what the op itself costs, times the gradient."""
    flops = 1 + ELEMENTWISE_FLOPS.get(node.op.removesuffix("_backward"), 1)
    return moved(node, "elementwise", flops * node.outputs[0].elements)


@register("batch_norm_backward", "group_norm_backward", "layer_norm_backward", "rms_norm_backward")
def normalization_backward(node: Node) -> Cost:
    """Twelve FLOPs an element: normalize again, sum the gradient and its product with that, combine.

    The sums come first, so gradient and input are read twice.
    """
    gradient, data = node.inputs[:2]
    read = _bytes(*node.inputs) + _bytes(gradient, data)
    return moved(node, "normalization", 12 * data.elements, read=read, kernels=2)


@register("weight_norm_backward")
def weight_normalization_backward(node: Node) -> Cost:
    """Six FLOPs for every element of the weight."""
    return moved(node, "normalization", 6 * node.outputs[0].elements)


@register("softmax_backward", "log_softmax_backward")
def softmax_backward(node: Node) -> Cost:
    """Product, sum, difference and product for every element."""
    return moved(node, "softmax", 4 * node.outputs[0].elements)


@register(
    "max_pool_backward",
    "avg_pool_backward",
    "adaptive_avg_pool_backward",
    "adaptive_max_pool_backward",
    "resize_backward",
)
def pooling_backward(node: Node) -> Cost:
    """Spreads the gradient over the window it came from; the input gives its shape only, indices are read."""
    gradient = node.inputs[0]
    indices = [t for t in node.inputs[1:] if t.dtype.startswith("int")]
    flops = max(gradient.elements, node.outputs[0].elements)
    return moved(node, "pooling", flops, read=_bytes(gradient, *indices))


@register("grid_sample_backward")
def grid_sample_backward(node: Node) -> Cost:
    """Eight FLOPs for each of four neighbours of every element of the gradient."""
    return moved(node, "pooling", 32 * node.inputs[0].elements)


@register("embedding_backward", "embedding_bag_backward")
def embedding_backward(node: Node) -> Cost:
    """Fills the whole table with zeros, then adds the gradient of every index to its row."""
    gradient, table = node.inputs[0], node.outputs[0]
    indices = node.inputs[1]
    touched = indices.elements * table.shape[-1] * table.bytes / max(1, table.elements)
    read = _bytes(gradient, indices) + touched
    flops = indices.elements * table.shape[-1]
    return moved(node, "gather", flops, read=read, written=table.bytes + touched, kernels=2)


@register("slice_backward")
def slice_backward(node: Node) -> Cost:
    """Fills with zeros, then writes the gradient over the slice."""
    gradient = node.inputs[0]
    written = _bytes(*node.outputs) + gradient.bytes
    return moved(node, "movement", read=gradient.bytes, written=written, kernels=2)


@register("pad_backward", "unfold_backward")
def movement_backward(node: Node) -> Cost:
    """Adds every element of the gradient to the one that it was copied from."""
    gradient = node.inputs[0]
    return moved(node, "movement", gradient.elements, read=gradient.bytes)


@register("nll_loss_backward")
def nll_loss_backward(node: Node) -> Cost:
    """Fills with zeros, then writes one element for each target."""
    gradient, _, *targets = node.inputs
    return moved(node, "reduction", node.outputs[0].elements, read=_bytes(gradient, *targets))


@register(
    *(
        f"{loss}_backward"
        for loss in ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss")
    )
)
def loss_backward(node: Node) -> Cost:
    """Difference, derivative and product for every element."""
    return moved(node, "elementwise", 4 * node.outputs[0].elements)


@register("cdist_backward")
def pairwise_distance_backward(node: Node) -> Cost:
    """Four FLOPs (difference, scale, product, sum) for every pair and coordinate."""
    pairs = node.inputs[0].elements
    return moved(node, "matmul", 4 * pairs * node.outputs[0].shape[-1])


@register("optimizer_step")
def optimizer_step(node: Node) -> Cost:
    """One pass over parameters, gradients and state, as fused optimizers run; FLOPs as the optimizer's own formula."""
    return moved(node, "elementwise", float(node.attributes["flops"]))  # type: ignore[arg-type]
