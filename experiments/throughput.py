"""How fast training and prediction were. A node-device pair is a class of equal nodes of a graph, on a measured row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnnperf.dataset import Dataset


def training_speed(history: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Over all epochs of all models: seconds, and graphs and pairs a second; without validation."""
    timed = [epoch for epoch in history if "train/seconds" in epoch]
    seconds = sum(epoch["train/seconds"] for epoch in timed)
    speeds = {"train/seconds": seconds}
    for name in ("train/graphs_per_s", "train/pairs_per_s"):
        speeds[name] = sum(epoch[name] * epoch["train/seconds"] for epoch in timed) / max(seconds, 1e-9)
    return speeds


def prediction_speed(dataset: Dataset, positions: Sequence[int], seconds: float) -> dict[str, float]:
    """Of a prediction of the samples at ``positions`` by all models, making minibatches included."""
    graphs = [dataset.samples[p].graph for p in positions]
    pairs = sum(int(dataset.graphs[graph].num_nodes) for graph in graphs)
    return {
        "predict/seconds": seconds,
        "predict/graphs_per_s": len(set(graphs)) / seconds,
        "predict/pairs_per_s": pairs / seconds,
    }


def speed_line(what: str, speeds: Mapping[str, float]) -> str:
    """The speeds of ``train`` or ``predict`` for people."""
    graphs, pairs = (speeds[f"{what}/{name}_per_s"] for name in ("graphs", "pairs"))
    return f"{what}: {graphs:,.0f} graphs/s, {pairs:,.0f} node-device pairs/s"
