"""The streams of minibatches that a training learns from at once: whole networks, and single layers.

Layers are many and small and were timed one by one, so that they tell directly what networks tell in sum. With streams
of their own, neither kind crowds out the other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil

from torch import Tensor

from gnnperf.batches import Batches
from gnnperf.dataset import Dataset
from gnnperf.training import TrainingConfig, family_weights


@dataclass(frozen=True)
class Stream:
    """Training rows of one kind.

    Attributes:
        batches: Minibatches of their graphs.
        weights: (samples of the data set,) how much a row counts in the mean over a minibatch.
        share: How much that mean counts in the loss.
        prior: Weight of ``gnnperf.training.roofline_prior`` beside it.
        layers: Whether these are layers.
    """

    batches: Batches
    weights: Tensor
    share: float
    prior: float
    layers: bool

    def plan(self, training: TrainingConfig, epoch: int) -> Iterator[list[int]]:
        """The graphs of each minibatch of an epoch: of networks a pass over all, of layers without end."""
        if self.layers:
            return self.batches.plan_rows(training.layers_per_step, random.Random(f"{training.seed}:{epoch}"))
        return self.batches.plan(training.graphs_per_step, random.Random(training.seed * 100_003 + epoch))


class Streams:
    """Those kinds of training rows that there are.

    Args:
        dataset: Graphs and measurements.
        train: Positions of the samples to train on.
        training: How to train.

    Attributes:
        parts: The networks, if there are any, and then the layers, if there are any.
        steps: Of an epoch: a pass over the networks or, where there are none, ``layer_steps``.
    """

    def __init__(self, dataset: Dataset, train: Sequence[int], training: TrainingConfig) -> None:
        kinds: dict[bool, list[int]] = {False: [], True: []}
        for position in train:
            kinds[dataset.samples[position].record.is_layer].append(position)
        self.parts = [
            Stream(
                Batches(dataset, positions),
                family_weights(dataset, positions, training.family_balance),
                training.layer_weight if layers else 1.0,
                # the time of a layer alone is measured: it needs no guess of which op took it
                0.0 if layers else training.prior,
                layers,
            )
            for layers, positions in kinds.items()
            if positions
        ]
        first = self.parts[0]
        self.steps = training.layer_steps if first.layers else ceil(len(first.batches) / training.graphs_per_step)
        self._training = training

    def plan(self, epoch: int) -> Iterator[tuple[list[int], ...]]:
        """Of each step of an epoch, the graphs of every part."""
        return islice(zip(*(part.plan(self._training, epoch) for part in self.parts), strict=False), self.steps)
