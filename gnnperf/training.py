"""Train the model on a data set; resumable, with averaged weights."""

from __future__ import annotations

import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch_geometric.data import Batch, Data

from gnnperf.cost.registry import OP_CLASSES
from gnnperf.dataset import Dataset
from gnnperf.features import (
    DEVICE_FEATURES,
    EDGE_FEATURES,
    FOLD_DEPTH,
    NODE_FEATURES,
    OPS,
    SIZE_FEATURES,
    SOFTWARE_FEATURES,
    device_features,
    device_rates,
    software_features,
)
from gnnperf.graph import PHASES
from gnnperf.hardware import PRECISIONS, load_device
from gnnperf.metrics import absolute_percentage_errors
from gnnperf.model import Ensemble, ModelConfig, PerformanceModel, Rows, Times
from gnnperf.records import Record
from gnnperf.splits import Split

Report = Callable[[dict[str, float]], None]


@dataclass(frozen=True)
class TrainingConfig:
    """How to train.

    Attributes:
        epochs: Passes over the training graphs.
        graphs_per_step: Graphs in a minibatch; all their measurements come along.
        learning_rate: Highest rate; it rises over the first twentieth and falls as a cosine to a hundredth.
        weight_decay: Of AdamW.
        averaging: Decay of the exponential average of the weights, which is what is used.
        prior: Weight of the pull of memory-bound ops towards their roofline, see ``roofline_prior``.
        family_balance: How much more the rows of a small family of architectures count: the weight of a row is the
            size of its family to the power of minus this.
        size_noise: Standard deviation of noise on ``gnnperf.features.SIZE_FEATURES``, by which a model would else
            recognise networks.
        gradient_clip: Highest norm of a gradient.
        seed: Of weights, order, dropout and noise.
    """

    epochs: int = 14
    graphs_per_step: int = 24
    learning_rate: float = 2e-3
    weight_decay: float = 0.02
    averaging: float = 0.998
    prior: float = 0.2
    family_balance: float = 0.5
    size_noise: float = 0.1
    gradient_clip: float = 1.0
    seed: int = 0


def model_config(**sizes: Any) -> ModelConfig:
    """The configuration that fits this version's features; ``sizes`` are the free fields.

    Raises:
        ValueError: If there are more layers than folded graphs are exact for.
    """
    if sizes.get("layers", 0) > FOLD_DEPTH:
        raise ValueError(f"layers is {sizes['layers']}: graphs are folded for at most {FOLD_DEPTH}")
    return ModelConfig(
        ops=len(OPS),
        op_classes=len(OP_CLASSES),
        precisions=len(PRECISIONS),
        phases=len(PHASES),
        node_features=len(NODE_FEATURES),
        edge_features=len(EDGE_FEATURES),
        device_features=len(DEVICE_FEATURES),
        software_features=len(SOFTWARE_FEATURES),
        **sizes,
    )


# Ops that do little but move bytes. Run one by one, they come close to their roofline, whatever the network.
_MEMORY_BOUND = ("elementwise", "normalization", "softmax", "reduction", "pooling", "movement")


def roofline_prior(times: Times, data: Data, rows: Rows) -> Tensor:
    """How far the ops are from their rooflines: the mean over rows of squared log ratios, weighted by share of time.

    Only totals are measured, so nothing else tells a model that a slow convolution is slow rather than the additions
    around it. Memory-bound ops count fully in an eager run; other ops, and all under a compiler, which fuses them into
    their neighbours, a twentieth.
    """
    bound = torch.tensor([name in _MEMORY_BOUND for name in OP_CLASSES])[data.op_class[times.node]]
    eager = rows.software[times.row, SOFTWARE_FEATURES.index("compiled")] == 0
    tight = torch.where(bound & eager, 1.0, 0.05)
    share = (data.count[times.node] * times.node_ms / times.total_ms[times.row].clamp(min=1e-6)).detach()
    return (tight * share * times.log_ratio.square()).sum() / len(rows.graph)


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
        keys = list(self._by_graph)
        if generator is not None:
            generator.shuffle(keys)
        for start in range(0, len(keys), graphs_per_step):
            chosen = keys[start : start + graphs_per_step]
            positions = [p for key in chosen for p in self._by_graph[key]]
            graph = torch.tensor([number for number, key in enumerate(chosen) for _ in self._by_graph[key]])
            take = torch.tensor([self._row_of[p] for p in positions])
            whole = self._rows
            rows = Rows(graph, whole.device[take], whole.rates[take], whole.software[take], whole.decomposed[take])
            batch = Batch.from_data_list([self._graphs[key] for key in chosen], exclude_keys=["node_class"])
            yield batch, rows, self._log_ms[take], positions


@torch.no_grad()
def predict_ms(
    model: PerformanceModel | Ensemble, dataset: Dataset, positions: Sequence[int], graphs_per_step: int = 64
) -> np.ndarray:
    """Predicted ms of the samples at ``positions``, (len(positions),)."""
    model.eval()
    predicted: dict[int, float] = {}
    for batch, rows, _, order in Batches(dataset, positions).order(graphs_per_step, None):
        predicted.update(zip(order, model(batch, rows).total_ms.tolist(), strict=True))
    return np.array([predicted[p] for p in positions])


class Trainer:
    """Trains a model and keeps a checkpoint after every epoch, from which an interrupted run goes on.

    Args:
        dataset: Graphs and measurements.
        split: What to train on and what to watch.
        config: Sizes of the model.
        training: How to train.
        checkpoint: File to keep and to go on from, or None.
    """

    def __init__(
        self, dataset: Dataset, split: Split, config: ModelConfig, training: TrainingConfig, checkpoint: Path | None
    ) -> None:
        torch.manual_seed(training.seed)
        self.dataset, self.split, self.training, self.checkpoint = dataset, split, training, checkpoint
        self.batches = Batches(dataset, split.train)
        self.weights = _family_weights(dataset, split.train, training.family_balance)
        self.size_noise = torch.tensor([training.size_noise * (name in SIZE_FEATURES) for name in NODE_FEATURES])
        self.model = PerformanceModel(config)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(training.averaging))
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay
        )
        steps = training.epochs * math.ceil(len(self.batches) / training.graphs_per_step)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: _rate(step, steps))
        self.epoch = 0
        if checkpoint is not None and checkpoint.exists():
            self._restore(checkpoint)

    @property
    def result(self) -> PerformanceModel:
        """The model with averaged weights."""
        model = self.average.module
        assert isinstance(model, PerformanceModel)
        return model

    def run(self, report: Report) -> PerformanceModel:
        """Train the epochs that are left; ``report`` gets the numbers of each."""
        while self.epoch < self.training.epochs:
            numbers = self._train_epoch()
            self.epoch += 1
            if self.split.validation and (self.epoch % 5 == 0 or self.epoch == self.training.epochs):
                numbers["validation/mape_percent"] = self._validate()
            report({"epoch": self.epoch, **numbers})
            if self.checkpoint is not None:
                self._keep(self.checkpoint)
        return self.result

    def _train_epoch(self) -> dict[str, float]:
        self.model.train()
        losses, rows_seen = 0.0, 0
        order = random.Random(self.training.seed * 100_003 + self.epoch)
        for batch, rows, log_ms, positions in self.batches.order(self.training.graphs_per_step, order):
            batch.x = batch.x + self.size_noise * torch.randn_like(batch.x)
            times = self.model(batch, rows)
            errors = (times.total_ms.clamp(min=1e-6).log() - log_ms).abs()
            prior = self.training.prior * roofline_prior(times, batch, rows)
            self.optimizer.zero_grad(set_to_none=True)
            ((self.weights[positions] * errors).mean() + prior).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training.gradient_clip)
            self.optimizer.step()
            self.scheduler.step()
            self.average.update_parameters(self.model)
            losses += errors.sum().item()
            rows_seen += len(log_ms)
        return {"train/loss": losses / rows_seen, "learning_rate": float(self.scheduler.get_last_lr()[0])}

    def _validate(self) -> float:
        predicted = predict_ms(self.result, self.dataset, self.split.validation)
        measured = np.array([self.dataset.samples[p].record.time_ms for p in self.split.validation])
        return float(absolute_percentage_errors(measured, predicted).mean())

    def _keep(self, path: Path) -> None:
        state = {
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": {"last_epoch": self.scheduler.last_epoch},
            "random": torch.get_rng_state(),
            "split": self.split.fingerprint,
            "training": asdict(self.training),
            "config": self.model.config.to_dict(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, path.with_suffix(".partial"))
        os.replace(path.with_suffix(".partial"), path)

    def _restore(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        same = (self.split.fingerprint, asdict(self.training), self.model.config.to_dict())
        if (state["split"], state["training"], state["config"]) != same:
            raise ValueError(f"checkpoint {str(path)!r} belongs to another run: give another folder or delete it")
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.last_epoch = state["scheduler"]["last_epoch"]
        torch.set_rng_state(state["random"])
        self.epoch = state["epoch"]


def _rate(step: int, steps: int) -> float:
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _family_weights(dataset: Dataset, train: Sequence[int], balance: float) -> Tensor:
    """A weight for every sample, 1 on average over the training rows."""
    families = Counter(dataset.samples[p].record.family for p in train)
    weights = torch.ones(len(dataset.samples))
    weights[list(train)] = torch.tensor([families[dataset.samples[p].record.family] ** -balance for p in train])
    return weights / weights[list(train)].mean()
