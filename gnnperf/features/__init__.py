"""From a graph, a device and the software to tensors.

``nodes`` describes every op, ``folding`` merges those that the model cannot tell apart, ``environment`` describes the
device and the software.
"""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

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

FEATURE_VERSION = 5
EDGE_FEATURES = ("log_bytes", "share_of_written", "share_of_read", "next", "channels_last", "permuted", "transposed")
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
        node_cost(n, "decomposed") if n.op.startswith("attention") else c
        for n, c in zip(graph.nodes, fused, strict=True)
    ]
    table = NodeTable(graph, fused)
    edge_attr = _edge_features(graph, fused)
    classes, representatives = fold(graph, table.key, edge_attr)
    picked = [(graph.nodes[r], fused[r], decomposed[r]) for r in representatives]
    edge_index, picked_attr, is_reversed = folded_edges(graph, edge_attr, classes, representatives)
    return Data(
        x=torch.tensor(table.numeric[representatives], dtype=torch.float32),
        op=torch.tensor([op_index(node) for node, _, _ in picked]),
        op_class=torch.tensor([_CLASS_INDEX[cost.op_class] for _, cost, _ in picked]),
        precision=torch.tensor([_PRECISION_INDEX[table.precision[r]] for r in representatives]),
        phase=torch.tensor([_PHASE_INDEX[node.phase] for node, _, _ in picked]),
        matrix=torch.tensor([cost.matrix for _, cost, _ in picked]),
        cost=torch.tensor([[_cost_row(f), _cost_row(d)] for _, f, d in picked], dtype=torch.float64),
        sizes=torch.tensor(table.size[representatives], dtype=torch.float32),
        edge_index=edge_index,
        edge_attr=picked_attr,
        edge_reversed=is_reversed,
        count=torch.tensor(np.bincount(classes), dtype=torch.float32),
        node_class=torch.tensor(classes),
        num_nodes=len(representatives),
    )


def _cost_row(cost: Cost) -> list[float]:
    return [getattr(cost, column) for column in COST_COLUMNS]


def _edge_features(graph: ComputationGraph, costs: list[Cost]) -> np.ndarray:
    rows = [
        [
            log_feature(edge.tensor.bytes),
            min(1.0, edge.tensor.bytes / max(1.0, costs[edge.source].bytes_written)),
            min(1.0, edge.tensor.bytes / max(1.0, costs[edge.target].bytes_read)),
            float(edge.target == edge.source + 1),
            float(edge.tensor.layout == "channels_last"),
            float(edge.tensor.layout == "permuted"),
            float(edge.tensor.layout == "transposed"),
        ]
        for edge in graph.edges
    ]
    return np.array(rows, dtype=np.float32).reshape(-1, len(EDGE_FEATURES))
