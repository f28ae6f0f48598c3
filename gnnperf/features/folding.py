"""Fold the nodes that the model cannot tell apart into one with a count.

In a network of repeated blocks that is most of them. Two nodes are folded when their features agree, and those of their
neighbours within ``FOLD_DEPTH`` steps, in both directions; so message passing over at most as many layers gives every
node of a class exactly the same state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
import torch

from gnnperf.graph import ComputationGraph

FOLD_DEPTH = 3


def fold(graph: ComputationGraph, keys: Sequence[Hashable], edge_attr: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Colour refinement (Weisfeiler and Leman, 1968).

    Args:
        graph: The nodes and edges.
        keys: Of every node, what the model sees of it.
        edge_attr: (edges, features).

    Returns:
        The class of every node, (nodes,), and the position of one node of every class.
    """
    edge_colors = _colors([row.tobytes() for row in edge_attr])
    incoming, outgoing = defaultdict(list), defaultdict(list)
    for number, edge in enumerate(graph.edges):
        incoming[edge.target].append((edge.source, edge_colors[number]))
        outgoing[edge.source].append((edge.target, edge_colors[number]))
    colors = _colors(keys)
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


def _colors(keys: Sequence[Hashable]) -> list[int]:
    """Number equal keys alike, in order of appearance."""
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]


def folded_edges(
    graph: ComputationGraph, edge_attr: np.ndarray, classes: np.ndarray, representatives: list[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The edges that enter each representative, then, reversed, those that leave it."""
    chosen = set(representatives)
    forward = [(classes[e.source], classes[e.target], i) for i, e in enumerate(graph.edges) if e.target in chosen]
    backward = [(classes[e.target], classes[e.source], i) for i, e in enumerate(graph.edges) if e.source in chosen]
    ends = np.array([*forward, *backward], dtype=np.int64).reshape(-1, 3)
    is_reversed = torch.arange(len(ends)) >= len(forward)
    return torch.tensor(ends[:, :2].T.copy()), torch.tensor(edge_attr[ends[:, 2]]), is_reversed
