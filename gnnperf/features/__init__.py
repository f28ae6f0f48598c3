"""From a graph, a device and the software to tensors.

``nodes`` describes every op, ``folding`` merges those that the model cannot tell apart, ``environment`` describes the
device and the software.
"""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

from gnnperf.cost.compiled_layout import compiles_to_channels_last
from gnnperf.cost.fusion import fused_costs, kernel_numbers
from gnnperf.cost.registry import OP_CLASSES, Cost, node_cost
from gnnperf.features.environment import (
    DEVICE_FEATURES,
    SOFTWARE_FEATURES,
    device_features,
    device_rates,
    software_features,
)
from gnnperf.features.folding import FOLD_DEPTH, fold, folded_edges
from gnnperf.features.nodes import NODE_FEATURES, OPS, SIZE_COLUMNS, SIZE_FEATURES, NodeTable, log_feature, op_index
from gnnperf.graph import PHASES, ComputationGraph
from gnnperf.hardware import PRECISIONS

__all__ = [
    "COST_COLUMNS",
    "DEVICE_FEATURES",
    "EDGE_FEATURES",
    "FEATURE_VERSION",
    "FOLD_DEPTH",
    "NODE_FEATURES",
    "OPS",
    "SIZE_COLUMNS",
    "SIZE_FEATURES",
    "SOFTWARE_FEATURES",
    "device_features",
    "device_rates",
    "graph_data",
    "software_features",
]

FEATURE_VERSION = 6
EDGE_FEATURES = (
    "log_bytes",
    "share_of_written",
    "share_of_read",
    "next",
    "channels_last",
    "permuted",
    "transposed",
    "fused_when_compiled",
)
COST_COLUMNS = ("flops", "bytes_read", "bytes_written", "kernels")
_CLASS_INDEX = {name: index for index, name in enumerate(OP_CLASSES)}
_PRECISION_INDEX = {name: index for index, name in enumerate(PRECISIONS)}
_PHASE_INDEX = {name: index for index, name in enumerate(PHASES)}


def graph_data(graph: ComputationGraph) -> Data:
    """The folded graph as tensors; device and software play no part.

    Returns:
        ``Data`` of C classes of nodes and E edges with

        - ``x``: (C, ``NODE_FEATURES``) float; ``op``, ``op_class``, ``precision``, ``phase``: (C,) long; ``matrix``:
          (C,) bool
        - ``cost``: (C, 2, 2, ``COST_COLUMNS``) float64: eager and compiled, each with attention fused and decomposed
        - ``gpu_rate_share``: (C,) float, see ``gnnperf.cost.registry.Cost``
        - ``compiled_channels_last``: (1,) bool, whether a compiler lays images out channels last on GPUs
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
        node_cost(n, "decomposed") if n.op.startswith("attention") else c
        for n, c in zip(graph.nodes, fused, strict=True)
    ]
    kernels = kernel_numbers(graph)
    compiled = [fused_costs(graph, eager, kernels) for eager in (fused, decomposed)]
    costs = _cost_rows([[fused, decomposed], compiled])
    table = NodeTable(graph, fused)
    edge_attr = _edge_features(graph, fused, kernels)
    keys = [(*key, row.tobytes()) for key, row in zip(table.key, costs, strict=True)]
    classes, representatives = fold(graph, keys, edge_attr)
    picked = [(graph.nodes[r], fused[r]) for r in representatives]
    edge_index, picked_attr, is_reversed = folded_edges(graph, edge_attr, classes, representatives)
    return Data(
        x=torch.tensor(table.numeric[representatives], dtype=torch.float32),
        op=torch.tensor([op_index(node) for node, _ in picked]),
        op_class=torch.tensor([_CLASS_INDEX[cost.op_class] for _, cost in picked]),
        precision=torch.tensor([_PRECISION_INDEX[table.precision[r]] for r in representatives]),
        phase=torch.tensor([_PHASE_INDEX[node.phase] for node, _ in picked]),
        matrix=torch.tensor([cost.matrix for _, cost in picked]),
        cost=torch.tensor(costs[representatives]),
        gpu_rate_share=torch.tensor([cost.gpu_rate_share for _, cost in picked]),
        compiled_channels_last=torch.tensor([compiles_to_channels_last(graph, fused)]),
        sizes=torch.tensor(table.size[representatives], dtype=torch.float32),
        edge_index=edge_index,
        edge_attr=picked_attr,
        edge_reversed=is_reversed,
        count=torch.tensor(np.bincount(classes), dtype=torch.float32),
        node_class=torch.tensor(classes),
        num_nodes=len(representatives),
    )


def _cost_rows(costs: list[list[list[Cost]]]) -> np.ndarray:
    """(nodes, 2, 2, ``COST_COLUMNS``) float64 from costs by compilation, attention and node."""
    rows = [[[_cost_row(cost) for cost in of_nodes] for of_nodes in of_attention] for of_attention in costs]
    return np.array(rows, dtype=np.float64).transpose(2, 0, 1, 3)


def _cost_row(cost: Cost) -> tuple[float, ...]:
    return cost.flops, cost.bytes_read, cost.bytes_written, cost.kernels


def _edge_features(graph: ComputationGraph, costs: list[Cost], kernels: list[int]) -> np.ndarray:
    rows = [
        [
            log_feature(edge.tensor.bytes),
            min(1.0, edge.tensor.bytes / max(1.0, costs[edge.source].bytes_written)),
            min(1.0, edge.tensor.bytes / max(1.0, costs[edge.target].bytes_read)),
            float(edge.target == edge.source + 1),
            float(edge.tensor.layout == "channels_last"),
            float(edge.tensor.layout == "permuted"),
            float(edge.tensor.layout == "transposed"),
            float(kernels[edge.source] == kernels[edge.target]),
        ]
        for edge in graph.edges
    ]
    return np.array(rows, dtype=np.float32).reshape(-1, len(EDGE_FEATURES))
