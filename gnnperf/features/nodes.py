"""The features of a node: its sizes on logarithmic scales, and what besides them decides how well hardware runs it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gnnperf.cost.registry import Cost
from gnnperf.cost.roofline import compute_precision
from gnnperf.cost.rules import is_depthwise
from gnnperf.graph import ComputationGraph, Node, TensorSpec

OPS = """unknown abs adaptive_avg_pool adaptive_max_pool add addcmul argmax attention avg_pool batch_norm cast cdist
    clamp concat conv conv_transpose copy cos cumsum div dropout elu embedding embedding_bag eq erf exp fft fill
    flip gather gelu grid_sample group_norm grouped_matmul gru gt hardsigmoid hardswish layer_norm leaky_relu
    linear log log_softmax lstm lt masked_fill matmul max_pool maximum minimum mish mul neg nll_loss nonzero
    optimizer_step pad pixel_shuffle pow prelu random reciprocal reduce_max reduce_mean reduce_min reduce_norm
    reduce_sum reduce_variance relu resize rms_norm rnn roll rsqrt scatter sigmoid silu sin slice softmax softplus
    sort sqrt sub tanh topk tril triu unfold where""".split()
_OP_INDEX = {op: index for index, op in enumerate(OPS)}

NODE_FEATURES = """log_flops log_bytes_read log_bytes_written log_parameter_bytes log_intensity log_rows log_columns
    log_depth log_batch log_window log_stride dilated depthwise grouped rows_of_8 columns_of_8 depth_of_8 columns_of_64
    depth_of_64 parameter_share read_share log_channels log_positions rank causal masked log_inputs log_readers
    log_last_dim last_dim_of_8 transposed reads_channels_last reads_permuted
    writes_channels_last writes_permuted mixed_layouts mixed_dtypes gradients reads_transposed writes_transposed
    mixed_inner copies_input columns_of_16 depth_of_16""".split()
# Those that grow with the network and the batch, where everything else tells kinds apart.
SIZE_FEATURES = """log_flops log_bytes_read log_bytes_written log_parameter_bytes log_rows log_columns log_depth
    log_batch log_channels log_positions log_last_dim""".split()
SIZE_COLUMNS = ("tiles", "elements", "input_bytes", "output_bytes", "parameter_bytes")


@dataclass(frozen=True, slots=True)
class _Product:
    """A node as ``batch`` products of (rows, depth) by (depth, columns) matrices."""

    batch: float
    rows: float
    columns: float
    depth: float


@dataclass(frozen=True, slots=True)
class _Operands:
    """The tensors of an op by their part in it; those of its gradients are the ones of the op itself."""

    op: str
    data: TensorSpec
    weight: TensorSpec | None
    result: TensorSpec


_NONE = TensorSpec((), "float32")


def op_index(node: Node) -> int:
    """Position in ``OPS`` of the op, or of the op whose gradients the node computes; 0 if it is not known."""
    return _OP_INDEX.get(_forward_op(node), 0)


def _forward_op(node: Node) -> str:
    return node.op.removesuffix("_backward")


def _operands(node: Node) -> _Operands:
    op, inputs, outputs = _forward_op(node), node.inputs, node.outputs
    data = inputs[0] if inputs else _NONE
    result = outputs[0] if outputs else _NONE
    if op == "optimizer_step":  # all parameters as one vector
        return _Operands(op, data, None, TensorSpec((sum(t.elements for t in outputs),), result.dtype))
    if op == node.op:
        return _Operands(op, data, inputs[1] if len(inputs) > 1 else None, result)
    if op in ("conv", "conv_transpose", "attention"):
        return _Operands(op, inputs[1], inputs[2], data)
    if op == "linear":
        return _Operands(op, result, None, data)
    return _Operands(op, data, None, result)


class NodeTable:
    """Features of all nodes of a graph, row by row.

    Attributes:
        precision: Of every node, one of ``gnnperf.hardware.PRECISIONS``.
        numeric: (nodes, ``NODE_FEATURES``) float32.
        size: (nodes, ``SIZE_COLUMNS``) float64.
        key: Of every node, all of these: equal for nodes that the model cannot tell apart.
    """

    def __init__(self, graph: ComputationGraph, costs: list[Cost]) -> None:
        readers, writers = np.zeros(len(graph.nodes)), np.zeros(len(graph.nodes))
        for edge in graph.edges:
            readers[edge.source] += 1
            writers[edge.target] += 1
        operands = [_operands(node) for node in graph.nodes]
        products = [_product(part) for part in operands]
        self.precision = [
            compute_precision(node, graph.precision, cost.matrix) for node, cost in zip(graph.nodes, costs, strict=True)
        ]
        rows = zip(graph.nodes, operands, costs, products, writers, readers, strict=True)
        self.numeric = np.array([_numeric(*row) for row in rows], dtype=np.float32)
        sized = zip(graph.nodes, operands, costs, products, strict=True)
        self.size = np.array([_size(*row) for row in sized])
        self.key = [
            (node.op, node.phase, precision, row.tobytes(), size.tobytes())
            for node, precision, row, size in zip(graph.nodes, self.precision, self.numeric, self.size, strict=True)
        ]


def log_feature(value: float) -> float:
    """A count or size on a scale of about 0 to 3."""
    return math.log1p(max(0.0, value)) / 10.0


def _numeric(
    node: Node, operands: _Operands, cost: Cost, product: _Product, writers: float, readers: float
) -> list[float]:
    out = operands.result.shape
    window, stride, dilated = _window(node, operands)
    groups = node.attributes.get("groups", 1)
    groups = groups if isinstance(groups, int) else 1
    channels, positions = _channels_and_positions(operands)
    depthwise = operands.op == "conv" and is_depthwise(node)
    gradients = node.attributes.get("gradients", [])
    last = out[-1] if out else 1
    operand_elements = sum(t.elements for t in node.inputs) or 1
    values = {
        "log_flops": log_feature(cost.flops),
        "log_bytes_read": log_feature(cost.bytes_read),
        "log_bytes_written": log_feature(cost.bytes_written),
        "log_parameter_bytes": log_feature(cost.parameter_bytes),
        "log_intensity": math.log((cost.flops + 1) / (cost.bytes + 1)) / 5,
        "log_rows": log_feature(product.rows),
        "log_columns": log_feature(product.columns),
        "log_depth": log_feature(product.depth),
        "log_batch": log_feature(product.batch),
        "log_window": log_feature(window),
        "log_stride": log_feature(stride),
        "dilated": float(dilated),
        "depthwise": float(depthwise),
        "grouped": float(groups > 1 and not depthwise),
        "rows_of_8": float(product.rows % 8 == 0),
        "columns_of_8": float(product.columns % 8 == 0),
        "depth_of_8": float(product.depth % 8 == 0),
        "columns_of_16": float(product.columns % 16 == 0),
        "depth_of_16": float(product.depth % 16 == 0),
        "columns_of_64": float(product.columns % 64 == 0),
        "depth_of_64": float(product.depth % 64 == 0),
        "parameter_share": cost.parameter_bytes / max(1.0, cost.bytes),
        "read_share": min(2.0, cost.bytes_read / operand_elements / 4),
        "log_channels": log_feature(channels),
        "log_positions": log_feature(positions),
        "rank": len(out) / 5,
        "causal": float(bool(node.attributes.get("causal", False))),
        "masked": float(node.op == "attention" and len(node.inputs) > 3),
        "log_inputs": log_feature(writers),
        "log_readers": log_feature(readers),
        "log_last_dim": log_feature(last),
        "last_dim_of_8": float(last % 8 == 0),
        "transposed": float(operands.op == "conv_transpose"),
        "mixed_dtypes": float(len({t.dtype for t in (*node.inputs, *node.outputs[:1]) if t.shape}) > 1),
        "copies_input": float(bool(node.attributes.get("copies_input", False))),
        "gradients": len(gradients) / 3 if isinstance(gradients, list) else 0.0,
        **_layouts(node),
    }
    return [values[name] for name in NODE_FEATURES]


# Which dimension is innermost: where operands and result differ, memory cannot be read and written in one order.
_INNER = {"row_major": "last", "permuted": "last", "channels_last": "channels", "transposed": "another"}


def _layouts(node: Node) -> dict[str, float]:
    """In which order the largest operand and result lie in memory, and whether the large operands disagree."""
    read = [t for t in node.inputs if t.kind != "parameter" and len(t.shape) > 1]
    largest = max(read, key=lambda t: t.bytes, default=None)
    read_layout = largest.layout if largest else "row_major"
    written_layout = node.outputs[0].layout if node.outputs else "row_major"
    large = [t for t in read if largest is not None and 2 * t.bytes > largest.bytes]
    inner = {_INNER[layout] for layout in (written_layout, *(t.layout for t in large))}
    return {
        "reads_channels_last": float(read_layout == "channels_last"),
        "reads_permuted": float(read_layout == "permuted"),
        "writes_channels_last": float(written_layout == "channels_last"),
        "writes_permuted": float(written_layout == "permuted"),
        "reads_transposed": float(read_layout == "transposed"),
        "writes_transposed": float(written_layout == "transposed"),
        "mixed_layouts": float(any(t.layout != read_layout for t in large)),
        "mixed_inner": float(len(inner) > 1),
    }


def _window(node: Node, operands: _Operands) -> tuple[float, float, bool]:
    stride = node.attributes.get("stride")
    dilation = node.attributes.get("dilation")
    kernel = node.attributes.get("kernel_size")
    if operands.op in ("conv", "conv_transpose") and operands.weight is not None:
        window = float(math.prod(operands.weight.shape[2:]))
    else:
        window = float(math.prod(kernel)) if isinstance(kernel, list) else 1.0
    dilated = isinstance(dilation, list) and any(d > 1 for d in dilation)
    return window, float(math.prod(stride)) if isinstance(stride, list) else 1.0, dilated


def _channels_and_positions(operands: _Operands) -> tuple[int, int]:
    """Channels and spatial positions of images; width and number of the vectors of everything else."""
    shape = operands.result.shape
    if len(shape) >= 4 and operands.op not in ("layer_norm", "linear", "attention", "matmul", "softmax"):
        return shape[1], math.prod(shape[2:])
    return (shape[-1], math.prod(shape[1:-1])) if shape else (1, 1)


def _product(operands: _Operands) -> _Product:
    op, out, data, weight = operands.op, operands.result.shape, operands.data.shape, operands.weight
    if op in ("conv", "conv_transpose") and weight is not None:
        kernel = math.prod(weight.shape[1:])
        if op == "conv_transpose":  # every input position meets the whole kernel
            groups = max(1, out[1] // max(1, weight.shape[1]))
            return _Product(groups, data[0] * math.prod(data[2:]), kernel, weight.shape[0] / groups)
        groups = max(1, data[1] // max(1, weight.shape[1]))
        return _Product(groups, out[0] * math.prod(out[2:]), weight.shape[0] / groups, kernel)
    if op == "linear":
        return _Product(1, math.prod(out[:-1]), out[-1] if out else 1, data[-1] if data else 1)
    if op in ("matmul", "grouped_matmul") and len(out) >= 2:
        return _Product(math.prod(out[:-2]), out[-2], out[-1], data[-1])
    if op == "attention" and weight is not None:
        return _Product(math.prod(data[:-2]), data[-2], weight.shape[-2], data[-1])
    last = out[-1] if out else 1
    elements = math.prod(out)
    return _Product(1, elements / max(1, last), last, max(1.0, operands.data.elements / max(1, elements)))


def _size(node: Node, operands: _Operands, cost: Cost, product: _Product) -> list[float]:
    tiles = product.batch * math.ceil(product.rows / 128) * math.ceil(product.columns / 128)
    inputs = max((t.bytes for t in node.inputs if t.kind != "parameter"), default=0)
    outputs = max((t.bytes for t in node.outputs), default=0)
    return [tiles, operands.result.elements, inputs, outputs, cost.parameter_bytes]
