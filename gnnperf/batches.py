"""Minibatches of a data set, and the predictions of a model for its samples."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields

import numpy as np
import torch
from torch_geometric.data import Batch

from gnnperf.dataset import Dataset
from gnnperf.features import device_features, device_rates, software_features
from gnnperf.hardware import load_device
from gnnperf.model import Ensemble, PerformanceModel, Rows
from gnnperf.records import Record


def rows_of(records: Sequence[Record], graphs: Sequence[int]) -> Rows:
    """Where ``records`` ran, as tensors; ``graphs`` are the positions of their graphs in a batch."""
    devices = [load_device(r.device) for r in records]
    software = [r.software for r in records]
    return Rows(
        graph=torch.tensor(graphs),
        device=torch.stack([device_features(d) for d in devices]),
        rates=torch.stack([device_rates(d) for d in devices]),
        software=torch.stack([software_features(s) for s in software]),
        decomposed=torch.tensor([s.attention == "decomposed" for s in software]),
    )


class Batches:
    """Minibatches of graphs with all the samples of each that were chosen."""

    def __init__(self, dataset: Dataset, positions: Sequence[int]) -> None:
        self._graphs = dataset.graphs
        self._by_graph: dict[int, list[int]] = defaultdict(list)
        for position in positions:
            self._by_graph[dataset.samples[position].graph].append(position)
        records = [dataset.samples[p].record for p in positions]
        self._rows = rows_of(records, [0] * len(records))
        self._row_of = {position: row for row, position in enumerate(positions)}
        self._log_ms = torch.tensor([r.time_ms for r in records], dtype=torch.float64).log().float()

    def __len__(self) -> int:
        return len(self._by_graph)

    def order(
        self, graphs_per_step: int, generator: random.Random | None
    ) -> Iterator[tuple[Batch, Rows, torch.Tensor, list[int]]]:
        """Graphs, rows, logarithm of measured ms, and sample positions of each minibatch."""
        for chosen in self.plan(graphs_per_step, generator):
            yield self.collate(chosen)

    def plan(self, graphs_per_step: int, generator: random.Random | None) -> Iterator[list[int]]:
        """The graphs of each minibatch, as positions in the data set."""
        keys = list(self._by_graph)
        if generator is not None:
            generator.shuffle(keys)
        for start in range(0, len(keys), graphs_per_step):
            yield keys[start : start + graphs_per_step]

    def plan_rows(self, rows_per_step: int, generator: random.Random) -> Iterator[list[int]]:
        """The graphs of minibatches of at least so many rows, without end: all graphs once, then all of them again.

        The last minibatch of a pass has what is left.
        """
        keys = list(self._by_graph)
        while True:
            generator.shuffle(keys)
            chosen: list[int] = []
            rows = 0
            for key in keys:
                chosen.append(key)
                rows += self.rows(key)
                if rows >= rows_per_step:
                    yield chosen
                    chosen, rows = [], 0
            if chosen:
                yield chosen

    def collate(self, chosen: Sequence[int]) -> tuple[Batch, Rows, torch.Tensor, list[int]]:
        """Chosen graphs, their rows, logarithm of measured ms, and sample positions."""
        positions = [p for key in chosen for p in self._by_graph[key]]
        graph = torch.tensor([number for number, key in enumerate(chosen) for _ in self._by_graph[key]])
        take = torch.tensor([self._row_of[p] for p in positions])
        whole = self._rows
        rows = Rows(graph, whole.device[take], whole.rates[take], whole.software[take], whole.decomposed[take])
        batch = Batch.from_data_list([self._graphs[key] for key in chosen], exclude_keys=["node_class"])
        return batch, rows, self._log_ms[take], positions

    def rows(self, key: int) -> int:
        """How many rows a graph has."""
        return len(self._by_graph[key])

    def nodes(self, key: int) -> int:
        """How many classes of nodes a graph has."""
        return int(self._graphs[key].num_nodes)


def rows_to(rows: Rows, device: torch.device) -> Rows:
    """``rows`` with their tensors on ``device``."""
    return Rows(**{field.name: getattr(rows, field.name).to(device) for field in fields(rows)})


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Where a model runs: the tensors that it makes on its way are made on ``device``."""
    return nullcontext() if device.type == "cpu" else device


@torch.no_grad()
def predict_ms(
    model: PerformanceModel | Ensemble, dataset: Dataset, positions: Sequence[int], graphs_per_step: int = 64
) -> np.ndarray:
    """Predicted ms of the samples at ``positions``, (len(positions),)."""
    model.eval()
    device = next(model.parameters()).device
    predicted: dict[int, float] = {}
    for batch, rows, _, order in Batches(dataset, positions).order(graphs_per_step, None):
        with on_device(device):
            times = model(batch.to(device), rows_to(rows, device))
        predicted.update(zip(order, times.total_ms.tolist(), strict=True))
    return np.array([predicted[p] for p in positions])
