"""The cost rules of recurrent layers and cells, and of their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnnperf.cost.registry import Cost, moved, register
from gnnperf.graph import Node, TensorSpec


@register("lstm", "gru", "rnn")
def recurrent(node: Node) -> Cost:
    """Every weight matrix meets every time step of every sample; the gates add some FLOPs for each element.

    Operands are the data, the initial states (two of an LSTM, else one) and the weights, whatever made them.
    """
    steps = math.prod(node.inputs[0].shape[:-1])
    matrices = [t for t in node.inputs[1 + _states(node) :] if len(t.shape) == 2]
    flops = steps * (2 * sum(t.elements for t in matrices) + 10 * _gates(matrices))
    return moved(node, "recurrent", flops, matrix=True, kernels=2 * _layers(node))


@register("lstm_cell", "gru_cell")
def recurrent_cell(node: Node) -> Cost:
    """The gates of one step; the products stand before it as nodes of their own."""
    return moved(node, "elementwise", 10 * node.inputs[0].elements)


@register("lstm_backward", "gru_backward", "rnn_backward")
def recurrent_backward(node: Node) -> Cost:
    """The products of the forward pass once for the data and states and once for the weights, and its gates twice.

    Every step hands its gradient to the one before and every layer to the one below, so only the first layer's product
    for the data depends on what is wanted. Operands are the gradients of some results, then those of the forward pass,
    then its results and what it kept of every step.
    """
    states = _states(node)
    end = len(node.inputs) - (1 + states + 1)
    first = end
    while len(node.inputs[first - 1].shape) < 3:  # weights have one or two dimensions, the states before them three
        first -= 1
    data, weights = node.inputs[first - states - 1], node.inputs[first:end]
    layers, wanted = _layers(node), node.attributes["gradients"]
    assert isinstance(wanted, list)
    matrices = [t for t in weights if len(t.shape) == 2]
    directions = 2 if node.attributes["bidirectional"] else 1
    products = sum(t.elements for t in matrices)
    if 0 not in wanted:
        products -= sum(t.elements for t in weights[:: len(weights) // layers][:directions])
    trained = [t for position, t in enumerate(weights, 1 + states) if position in wanted]
    products += sum(t.elements for t in trained if len(t.shape) == 2)
    flops = math.prod(data.shape[:-1]) * (2 * products + 20 * _gates(matrices))
    return moved(node, "recurrent", flops, matrix=True, kernels=(4 if trained else 2) * layers)


@register("lstm_cell_backward", "gru_cell_backward")
def recurrent_cell_backward(node: Node) -> Cost:
    """The gradients of the gates of one step."""
    return moved(node, "elementwise", 20 * node.outputs[0].elements)


def _states(node: Node) -> int:
    """How many states a recurrent layer, or its backward, carries from step to step."""
    return 2 if node.op.startswith("lstm") else 1


def _layers(node: Node) -> int:
    """Layers of a recurrent node, both directions of one counted."""
    return int(node.attributes["num_layers"]) * (2 if node.attributes["bidirectional"] else 1)  # type: ignore[arg-type]


def _gates(matrices: Sequence[TensorSpec]) -> int:
    """Gates of all layers, given their weights: those of the data and of the state have a row for each."""
    return sum(t.shape[0] for t in matrices) // 2
