"""The recipe: what is made small, on which rows, at which rates. ``gnnperf.trainer`` follows it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from gnnperf.cost.registry import OP_CLASSES
from gnnperf.dataset import Dataset
from gnnperf.features import (
    DEVICE_FEATURES,
    EDGE_FEATURES,
    FOLD_DEPTH,
    NODE_FEATURES,
    OPS,
    SOFTWARE_FEATURES,
)
from gnnperf.graph import PHASES
from gnnperf.hardware import PRECISIONS
from gnnperf.model import ModelConfig, PerformanceModel, Rows, Times
from gnnperf.records import Record


@dataclass(frozen=True)
class TrainingConfig:
    """How to train.

    Attributes:
        epochs: Passes over the graphs of the networks to train on.
        graphs_per_step: Networks in a minibatch; all their measurements come along.
        layers_per_step: Rows of single layers that are learned from beside it, where there are such; with all the rows
            of a graph together, it may be a few more.
        layer_weight: How much the mean error of these rows counts, against 1 for that of the networks.
        layer_steps: Steps of an epoch where there are layers only.
        optimizer: ``adamw`` or ``sgd``.
        learning_rate: Highest rate; it rises over the first twentieth and falls as a cosine to a hundredth.
        weight_decay: Of the optimizer.
        momentum: Of ``sgd``.
        averaging: Decay of the exponential average of the weights, which is what is used.
        prior: Weight of the pull of memory-bound ops towards their roofline, see ``roofline_prior``.
        family_balance: How much more the rows of a small family of architectures count: the weight of a row is the
            size of its family to the power of minus this. Of layers, those of an op in a file are a family.
        size_noise: Standard deviation of noise on ``gnnperf.features.SIZE_FEATURES``, by which a model would else
            recognise networks.
        gradient_clip: Highest norm of a gradient.
        seed: Of weights, order, dropout and noise.
    """

    epochs: int = 14
    graphs_per_step: int = 24
    layers_per_step: int = 512
    layer_weight: float = 0.3
    layer_steps: int = 500
    optimizer: str = "adamw"
    learning_rate: float = 2e-3
    weight_decay: float = 0.02
    momentum: float = 0.9
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


@dataclass(frozen=True)
class Minibatch:
    """Measured rows, and how they count in the loss.

    Attributes:
        graphs: What was measured.
        rows: R rows of them.
        log_ms: (R,) logarithm of measured ms.
        weights: (R,) how much a row counts.
        share: How much the mean over these rows counts, where there are others elsewhere.
        prior: Weight of ``roofline_prior``.
    """

    graphs: Batch
    rows: Rows
    log_ms: Tensor
    weights: Tensor
    share: float
    prior: float


class Objective(nn.Module):
    """What is made small, as a module, so that its gradients can be those of several processes together.

    Args:
        model: What is trained.
    """

    def __init__(self, model: PerformanceModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, minibatches: Sequence[Minibatch]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The loss over all minibatches; of each of them besides, the sum of errors and the weighted prior."""
        losses, errors, priors = zip(*map(self._loss, minibatches), strict=True)
        return sum(losses[1:], losses[0]), list(errors), list(priors)

    def _loss(self, minibatch: Minibatch) -> tuple[Tensor, Tensor, Tensor]:
        times = self.model(minibatch.graphs, minibatch.rows)
        errors = (times.total_ms.clamp(min=1e-6).log() - minibatch.log_ms).abs()
        prior = minibatch.prior * roofline_prior(times, minibatch.graphs, minibatch.rows)
        loss = minibatch.share * ((minibatch.weights * errors).mean() + prior)
        return loss, errors.sum().detach(), prior.detach()


def make_optimizer(model: nn.Module, training: TrainingConfig) -> torch.optim.Optimizer:
    """The optimizer that ``training`` names, for all parameters of ``model``.

    Raises:
        ValueError: If there is none of that name.
    """
    rate, decay = training.learning_rate, training.weight_decay
    if training.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    if training.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=rate, momentum=training.momentum, weight_decay=decay)
    raise ValueError(f"optimizer is {training.optimizer!r}: write adamw or sgd")


def rate_factor(step: int, steps: int) -> float:
    """The learning rate of one of ``steps`` steps, as a share of the highest."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def family_weights(dataset: Dataset, train: Sequence[int], balance: float) -> Tensor:
    """A weight for every sample, 1 on average over the training rows; see ``TrainingConfig.family_balance``."""
    sizes = Counter(_family(dataset.samples[p].record) for p in train)
    weights = torch.ones(len(dataset.samples))
    weights[list(train)] = torch.tensor([sizes[_family(dataset.samples[p].record)] ** -balance for p in train])
    return weights / weights[list(train)].mean()


def _family(record: Record) -> tuple[str, str]:
    return record.family, record.source_file if record.is_layer else ""
