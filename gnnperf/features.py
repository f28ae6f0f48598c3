"""From a graph, a device and the software to tensors.

Nodes that the model cannot tell apart are folded into one with a count: in a network of repeated blocks that is most
of them. Two nodes are folded when their features agree, and those of their neighbours within ``FOLD_DEPTH`` steps, in
both directions; so message passing over at most as many layers gives every node of a class exactly the same state.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
from torch_geometric.data import Data

from gnnperf.cost.registry import OP_CLASSES, Cost, node_cost
from gnnperf.cost.roofline import LAUNCH_MS, compute_precision
from gnnperf.cost.rules import is_depthwise
from gnnperf.graph import ComputationGraph, Node
from gnnperf.hardware import FRAMEWORKS, KINDS, PRECISIONS, Device, Software

FEATURE_VERSION = 3
FOLD_DEPTH = 3

OPS = """unknown abs adaptive_avg_pool adaptive_max_pool add addcmul argmax attention avg_pool batch_norm cast cdist
    clamp concat conv conv_transpose copy cos cumsum div dropout elu embedding embedding_bag eq erf exp fft fill
    flip gather gelu grid_sample group_norm grouped_matmul gru gt hardsigmoid hardswish layer_norm leaky_relu
    linear log log_softmax lstm lt masked_fill matmul max_pool maximum minimum mish mul neg nonzero pad
    pixel_shuffle pow prelu random reciprocal reduce_max reduce_mean reduce_min reduce_norm reduce_sum
    reduce_variance relu resize rms_norm rnn roll rsqrt scatter sigmoid silu sin softmax softplus sort sqrt sub
    tanh topk tril triu unfold where""".split()
_OP_INDEX = {op: index for index, op in enumerate(OPS)}
_CLASS_INDEX = {name: index for index, name in enumerate(OP_CLASSES)}
_PRECISION_INDEX = {name: index for index, name in enumerate(PRECISIONS)}

NODE_FEATURES = """log_flops log_bytes_read log_bytes_written log_parameter_bytes log_intensity log_rows log_columns
    log_depth log_batch log_window log_stride dilated depthwise grouped rows_of_8 columns_of_8 depth_of_8 columns_of_64
    depth_of_64 parameter_share read_share log_channels log_positions rank causal masked log_inputs log_readers
    log_last_dim last_dim_of_8 transposed reads_channels_last reads_permuted
    writes_channels_last writes_permuted mixed_layouts mixed_dtypes""".split()
EDGE_FEATURES = ("log_bytes", "share_of_written", "share_of_read", "next", "channels_last", "permuted")
COST_COLUMNS = ("flops", "bytes_read", "bytes_written", "kernels")
SIZE_COLUMNS = ("tiles", "elements", "input_bytes", "output_bytes", "parameter_bytes")


@dataclass(frozen=True, slots=True)
class _Product:
    """A node as ``batch`` products of (rows, depth) by (depth, columns) matrices."""

    batch: float
    rows: float
    columns: float
    depth: float


def graph_data(graph: ComputationGraph) -> Data:
    """The folded graph as tensors; device and software play no part.

    Returns:
        ``Data`` of C classes of nodes and E edges with

        - ``x``: (C, ``NODE_FEATURES``) float; ``op``, ``op_class``, ``precision``: (C,) long; ``matrix``: (C,) bool
        - ``cost``: (C, 2, ``COST_COLUMNS``) float64, with attention fused and decomposed
        - ``sizes``: (C, ``SIZE_COLUMNS``) float
        - ``edge_index``: (2, E) long; ``edge_attr``: (E, ``EDGE_FEATURES``); ``edge_reversed``: (E,) bool: the second
          half of the edges carries messages from readers to writers
        - ``count``: (C,) float, nodes in each class; ``node_class``: (nodes,) long, the class of every node

    Raises:
        ValueError: If the graph has no nodes.
    """
    if not graph.nodes:
        raise ValueError(f"graph {graph.name!r} runs no ops: there is nothing to predict")
    fused = [node_cost(node, "fused") for node in graph.nodes]
    decomposed = [
        node_cost(n, "decomposed") if n.op == "attention" else c for n, c in zip(graph.nodes, fused, strict=True)
    ]
    features = _NodeTable(graph, fused)
    edge_attr = _edge_features(graph, fused)
    classes, representatives = _fold(graph, features, edge_attr)
    picked = [(graph.nodes[r], fused[r], decomposed[r]) for r in representatives]
    edge_index, picked_attr, is_reversed = _folded_edges(graph, edge_attr, classes, representatives)
    return Data(
        x=torch.tensor(features.numeric[representatives], dtype=torch.float32),
        op=torch.tensor([_OP_INDEX.get(node.op, 0) for node, _, _ in picked]),
        op_class=torch.tensor([_CLASS_INDEX[cost.op_class] for _, cost, _ in picked]),
        precision=torch.tensor([_PRECISION_INDEX[features.precision[r]] for r in representatives]),
        matrix=torch.tensor([cost.matrix for _, cost, _ in picked]),
        cost=torch.tensor([[_cost_row(f), _cost_row(d)] for _, f, d in picked], dtype=torch.float64),
        sizes=torch.tensor(features.size[representatives], dtype=torch.float32),
        edge_index=edge_index,
        edge_attr=picked_attr,
        edge_reversed=is_reversed,
        count=torch.tensor(np.bincount(classes), dtype=torch.float32),
        node_class=torch.tensor(classes),
        num_nodes=len(representatives),
    )


class _NodeTable:
    """Numeric features of all nodes of a graph, row by row."""

    def __init__(self, graph: ComputationGraph, costs: list[Cost]) -> None:
        readers, writers = np.zeros(len(graph.nodes)), np.zeros(len(graph.nodes))
        for edge in graph.edges:
            readers[edge.source] += 1
            writers[edge.target] += 1
        products = [_product(node) for node in graph.nodes]
        self.precision = [
            compute_precision(node, graph.precision, cost.matrix) for node, cost in zip(graph.nodes, costs, strict=True)
        ]
        rows = zip(graph.nodes, costs, products, writers, readers, strict=True)
        self.numeric = np.array([_numeric(*row) for row in rows], dtype=np.float32)
        self.size = np.array(
            [_size(node, cost, product) for node, cost, product in zip(graph.nodes, costs, products, strict=True)]
        )
        self.key = [
            (node.op, precision, row.tobytes(), size.tobytes())
            for node, precision, row, size in zip(graph.nodes, self.precision, self.numeric, self.size, strict=True)
        ]


def _log(value: float) -> float:
    return math.log1p(max(0.0, value)) / 10.0


def _numeric(node: Node, cost: Cost, product: _Product, writers: float, readers: float) -> list[float]:
    out = node.outputs[0].shape if node.outputs else ()
    window, stride, dilated = _window(node)
    groups = node.attributes.get("groups", 1)
    groups = groups if isinstance(groups, int) else 1
    channels, positions = _channels_and_positions(node)
    depthwise = node.op == "conv" and is_depthwise(node)
    last = out[-1] if out else 1
    operand_elements = sum(t.elements for t in node.inputs) or 1
    values = {
        "log_flops": _log(cost.flops),
        "log_bytes_read": _log(cost.bytes_read),
        "log_bytes_written": _log(cost.bytes_written),
        "log_parameter_bytes": _log(cost.parameter_bytes),
        "log_intensity": math.log((cost.flops + 1) / (cost.bytes + 1)) / 5,
        "log_rows": _log(product.rows),
        "log_columns": _log(product.columns),
        "log_depth": _log(product.depth),
        "log_batch": _log(product.batch),
        "log_window": _log(window),
        "log_stride": _log(stride),
        "dilated": float(dilated),
        "depthwise": float(depthwise),
        "grouped": float(groups > 1 and not depthwise),
        "rows_of_8": float(product.rows % 8 == 0),
        "columns_of_8": float(product.columns % 8 == 0),
        "depth_of_8": float(product.depth % 8 == 0),
        "columns_of_64": float(product.columns % 64 == 0),
        "depth_of_64": float(product.depth % 64 == 0),
        "parameter_share": cost.parameter_bytes / max(1.0, cost.bytes),
        "read_share": min(2.0, cost.bytes_read / operand_elements / 4),
        "log_channels": _log(channels),
        "log_positions": _log(positions),
        "rank": len(out) / 5,
        "causal": float(bool(node.attributes.get("causal", False))),
        "masked": float(node.op == "attention" and len(node.inputs) > 3),
        "log_inputs": _log(writers),
        "log_readers": _log(readers),
        "log_last_dim": _log(last),
        "last_dim_of_8": float(last % 8 == 0),
        "transposed": float(node.op == "conv_transpose"),
        "mixed_dtypes": float(len({t.dtype for t in (*node.inputs, *node.outputs[:1]) if t.shape}) > 1),
        **_layouts(node),
    }
    return [values[name] for name in NODE_FEATURES]


def _layouts(node: Node) -> dict[str, float]:
    """In which order the largest operand and result lie in memory, and whether the large operands disagree."""
    read = [t for t in node.inputs if t.kind != "parameter" and len(t.shape) > 1]
    largest = max(read, key=lambda t: t.bytes, default=None)
    read_layout = largest.layout if largest else "row_major"
    written_layout = node.outputs[0].layout if node.outputs else "row_major"
    mixed = largest is not None and any(t.layout != read_layout for t in read if 2 * t.bytes > largest.bytes)
    return {
        "reads_channels_last": float(read_layout == "channels_last"),
        "reads_permuted": float(read_layout == "permuted"),
        "writes_channels_last": float(written_layout == "channels_last"),
        "writes_permuted": float(written_layout == "permuted"),
        "mixed_layouts": float(mixed),
    }


def _window(node: Node) -> tuple[float, float, bool]:
    stride = node.attributes.get("stride")
    dilation = node.attributes.get("dilation")
    kernel = node.attributes.get("kernel_size")
    if node.op in ("conv", "conv_transpose"):
        window = float(math.prod(node.inputs[1].shape[2:]))
    else:
        window = float(math.prod(kernel)) if isinstance(kernel, list) else 1.0
    dilated = isinstance(dilation, list) and any(d > 1 for d in dilation)
    return window, float(math.prod(stride)) if isinstance(stride, list) else 1.0, dilated


def _channels_and_positions(node: Node) -> tuple[int, int]:
    """Channels and spatial positions of images; width and number of the vectors of everything else."""
    shape = node.outputs[0].shape if node.outputs else ()
    if len(shape) >= 4 and node.op not in ("layer_norm", "linear", "attention", "matmul", "softmax"):
        return shape[1], math.prod(shape[2:])
    return (shape[-1], math.prod(shape[1:-1])) if shape else (1, 1)


def _product(node: Node) -> _Product:
    out = node.outputs[0].shape if node.outputs else ()
    if node.op in ("conv", "conv_transpose"):
        groups = node.attributes.get("groups", 1)
        groups = groups if isinstance(groups, int) else 1
        weight = node.inputs[1].shape
        if node.op == "conv_transpose":  # every input position meets the whole kernel
            image = node.inputs[0].shape
            return _Product(groups, image[0] * math.prod(image[2:]), math.prod(weight[1:]), weight[0] / groups)
        return _Product(groups, out[0] * math.prod(out[2:]), weight[0] / groups, math.prod(weight[1:]))
    if node.op == "linear":
        return _Product(1, math.prod(out[:-1]), out[-1] if out else 1, node.inputs[0].shape[-1])
    if node.op in ("matmul", "grouped_matmul") and len(out) >= 2:
        return _Product(math.prod(out[:-2]), out[-2], out[-1], node.inputs[0].shape[-1])
    if node.op == "attention":
        query, key = node.inputs[0].shape, node.inputs[1].shape
        return _Product(math.prod(query[:-2]), query[-2], key[-2], query[-1])
    last = out[-1] if out else 1
    source = node.inputs[0].elements if node.inputs else 0
    elements = math.prod(out)
    return _Product(1, elements / max(1, last), last, max(1.0, source / max(1, elements)))


def _size(node: Node, cost: Cost, product: _Product) -> list[float]:
    tiles = product.batch * math.ceil(product.rows / 128) * math.ceil(product.columns / 128)
    elements = node.outputs[0].elements if node.outputs else 0
    inputs = max((t.bytes for t in node.inputs if t.kind != "parameter"), default=0)
    outputs = max((t.bytes for t in node.outputs), default=0)
    return [tiles, elements, inputs, outputs, cost.parameter_bytes]


def _cost_row(cost: Cost) -> list[float]:
    return [getattr(cost, column) for column in COST_COLUMNS]


def _edge_features(graph: ComputationGraph, costs: list[Cost]) -> np.ndarray:
    rows = [
        [
            _log(edge.tensor.bytes),
            min(1.0, edge.tensor.bytes / max(1.0, costs[edge.source].bytes_written)),
            min(1.0, edge.tensor.bytes / max(1.0, costs[edge.target].bytes_read)),
            float(edge.target == edge.source + 1),
            float(edge.tensor.layout == "channels_last"),
            float(edge.tensor.layout == "permuted"),
        ]
        for edge in graph.edges
    ]
    return np.array(rows, dtype=np.float32).reshape(-1, len(EDGE_FEATURES))


def _fold(graph: ComputationGraph, features: _NodeTable, edge_attr: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Colour refinement (Weisfeiler and Leman, 1968): the class of every node, and a node for every class."""
    edge_colors = _colors([row.tobytes() for row in edge_attr])
    incoming, outgoing = defaultdict(list), defaultdict(list)
    for number, edge in enumerate(graph.edges):
        incoming[edge.target].append((edge.source, edge_colors[number]))
        outgoing[edge.source].append((edge.target, edge_colors[number]))
    colors = _colors(features.key)
    for _ in range(FOLD_DEPTH):
        colors = _colors(
            [
                (
                    colors[v],
                    tuple(sorted((colors[u], e) for u, e in incoming[v])),
                    tuple(sorted((colors[w], e) for w, e in outgoing[v])),
                )
                for v in range(len(colors))
            ]
        )
    representatives: dict[int, int] = {}
    for node, color in enumerate(colors):
        representatives.setdefault(color, node)
    return np.array(colors), list(representatives.values())


def _colors(keys: list) -> list[int]:
    """Number equal keys alike, in order of appearance."""
    seen: dict[object, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]


def _folded_edges(
    graph: ComputationGraph, edge_attr: np.ndarray, classes: np.ndarray, representatives: list[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The edges that enter each representative, then, reversed, those that leave it."""
    chosen = set(representatives)
    forward = [(classes[e.source], classes[e.target], i) for i, e in enumerate(graph.edges) if e.target in chosen]
    backward = [(classes[e.target], classes[e.source], i) for i, e in enumerate(graph.edges) if e.source in chosen]
    ends = np.array([*forward, *backward], dtype=np.int64).reshape(-1, 3)
    is_reversed = torch.arange(len(ends)) >= len(forward)
    return torch.tensor(ends[:, :2].T.copy()), torch.tensor(edge_attr[ends[:, 2]]), is_reversed


# --- device and software -------------------------------------------------------------------------------------------

_RATES = (
    ("fp64", False),
    ("fp32", False),
    ("fp16", False),
    ("tf32", True),
    ("fp16", True),
    ("bf16", True),
    ("int8", True),
)
_VENDORS = ("nvidia", "amd", "intel", "apple")
# Of a device whose sheet does not tell; the model is told that it is not known.
_ASSUMED_CACHE_BYTES = 4e6
DEVICE_FEATURES = (
    *(f"log_{precision}_{'matrix' if matrix else 'vector'}_rate" for precision, matrix in _RATES),
    "log_bandwidth",
    "log_balance",
    "log_memory",
    "log_cache",
    "cache_unknown",
    "log_units",
    "log_clock",
    "year",
    *KINDS,
    *_VENDORS,
)
SOFTWARE_FEATURES = (*FRAMEWORKS, "release", "since_2", "compiled", "channels_last", "decomposed_attention")


def device_features(device: Device) -> torch.Tensor:
    """(``DEVICE_FEATURES``,) float: the spec sheet on logarithmic scales around a present GPU."""
    rates = [math.log10(device.peak_flops_per_s(p, matrix) / 1e13) for p, matrix in _RATES]
    bandwidth = device.memory_bandwidth_bytes_per_s
    cache = device.l2_cache_bytes
    values = [
        *rates,
        math.log10(bandwidth / 1e12),
        math.log10(device.peak_flops_per_s("fp32", False) / bandwidth / 10),
        math.log10(device.memory_bytes / 1e10),
        math.log10((cache or _ASSUMED_CACHE_BYTES) / 1e7),
        float(cache is None),
        math.log10(device.units / 50),
        math.log10(device.clock_hz / 1e9),
        ((device.year or 2018) - 2018) / 5,
        *(float(device.kind == kind) for kind in KINDS),
        *(float(device.vendor == vendor) for vendor in _VENDORS),
    ]
    return torch.tensor(values, dtype=torch.float32)


def software_features(software: Software) -> torch.Tensor:
    """(``SOFTWARE_FEATURES``,) float."""
    major, minor = software.release
    values = [
        *(float(software.framework == framework) for framework in FRAMEWORKS),
        (major + minor / 15 - 2) if software.framework == "torch" else 0.0,
        float(software.framework == "torch" and major >= 2),
        float(software.compiled),
        float(software.memory_format == "channels_last"),
        float(software.attention == "decomposed"),
    ]
    return torch.tensor(values, dtype=torch.float32)


def device_rates(device: Device) -> torch.Tensor:
    """What rooflines need: (2 * precisions + 4,) float64.

    FLOPs per second by precision on vector, then on matrix units; bytes per second; launch in ms; units; cache bytes.
    """
    rates = [device.peak_flops_per_s(p, matrix) for matrix in (False, True) for p in PRECISIONS]
    cache_bytes = device.l2_cache_bytes or _ASSUMED_CACHE_BYTES
    rest = [device.memory_bandwidth_bytes_per_s, LAUNCH_MS[device.kind], device.units, cache_bytes]
    return torch.tensor([*rates, *rest], dtype=torch.float64)
