"""Train the model on a data set: resumable, with averaged weights, by one process or by several together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from gnnperf.batches import Batches, on_device, predict_ms, rows_to
from gnnperf.checkpoint import read_checkpoint, write_checkpoint
from gnnperf.dataset import Dataset
from gnnperf.distributed import Ranks
from gnnperf.features import NODE_FEATURES, SIZE_FEATURES
from gnnperf.metrics import absolute_percentage_errors
from gnnperf.model import ModelConfig, PerformanceModel
from gnnperf.splits import Split
from gnnperf.streams import Stream, Streams
from gnnperf.training import Minibatch, Objective, TrainingConfig, make_optimizer, rate_factor

Report = Callable[[dict[str, float]], None]
_ALONE = Ranks()


class Trainer:
    """Trains a model and keeps a checkpoint after every epoch, from which an interrupted run goes on.

    Every step learns from a minibatch of networks and, where layers were measured, one of layers. Every rank takes some
    graphs of each minibatch, with all their rows; the gradient is that of the whole minibatch, and so is the noise on
    sizes. So any number of ranks trains the same model, up to the order of sums, where nothing is dropped: with
    dropout, each rank draws for itself what it drops. The same number of ranks gives the same bits on CPUs, interrupted
    or not.

    Args:
        dataset: Graphs and measurements, the same on all ranks.
        split: What to train on and what to watch.
        config: Sizes of the model.
        training: How to train.
        checkpoint: File to keep and to go on from, or None; the first rank alone reads and writes it.
        ranks: The processes that train together.

    Attributes:
        epoch: How many epochs are done.
        history: The numbers of each of them, before an interruption or after.

    Raises:
        ValueError: If the checkpoint cannot be read or is that of another run, or the optimizer is unknown.
    """

    def __init__(
        self,
        dataset: Dataset,
        split: Split,
        config: ModelConfig,
        training: TrainingConfig,
        checkpoint: Path | None,
        ranks: Ranks = _ALONE,
    ) -> None:
        torch.manual_seed(training.seed)
        self.dataset, self.split, self.training, self.checkpoint = dataset, split, training, checkpoint
        self.ranks = ranks
        self.streams = Streams(dataset, split.train, training)
        self.size_noise = torch.tensor([training.size_noise * (name in SIZE_FEATURES) for name in NODE_FEATURES])
        self.model = PerformanceModel(config).to(ranks.device)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(training.averaging))
        self.optimizer = make_optimizer(self.model, training)
        steps = training.epochs * self.streams.steps
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: rate_factor(step, steps))
        self.epoch = 0
        self.history: list[dict[str, float]] = []
        state = ranks.from_first(lambda: read_checkpoint(checkpoint) if checkpoint and checkpoint.exists() else None)
        if state is not None:
            self._restore(state)
        self.objective = ranks.together(Objective(self.model))

    @property
    def result(self) -> PerformanceModel:
        """The model with averaged weights."""
        model = self.average.module
        assert isinstance(model, PerformanceModel)
        return model

    def run(self, report: Report) -> PerformanceModel:
        """Train the epochs that are left; on the first rank ``report`` gets the numbers of each."""
        while self.epoch < self.training.epochs:
            numbers = self._train_epoch()
            self.epoch += 1
            watched = self.epoch % 5 == 0 or self.epoch == self.training.epochs
            if self.ranks.first and self.split.validation and watched:
                numbers["validation/mape_percent"] = self._validate()
            self.history.append({"epoch": self.epoch, **numbers})
            if self.ranks.first:
                report(self.history[-1])
                if self.checkpoint is not None:
                    write_checkpoint(self.checkpoint, self._state())
        return self.result

    def _train_epoch(self) -> dict[str, float]:
        """Loss and prior are means over rows of networks, the loss of layers stands beside them, if not alone.

        A pair is a class of nodes of a graph, and a row of it.
        """
        self.model.train()
        start = time.perf_counter()
        totals = np.zeros((len(self.streams.parts), 5))
        for chosen in self.streams.plan(self.epoch):
            totals += self._step(chosen)
        sums = np.reshape(self.ranks.sum(totals.ravel().tolist()), totals.shape)
        seconds = time.perf_counter() - start
        (loss, prior), *of_layers = (sums[:, :2] / sums[:, 2:3]).tolist()
        graphs, pairs = sums[:, 3:].sum(axis=0).tolist()
        return {
            "train/loss": loss,
            "train/prior": prior,
            **({"train/layer_loss": of_layers[0][0]} if of_layers else {}),
            "learning_rate": float(self.scheduler.get_last_lr()[0]),
            "train/seconds": seconds,
            "train/graphs_per_s": graphs / seconds,
            "train/pairs_per_s": pairs / seconds,
        }

    def _step(self, chosen: Sequence[list[int]]) -> np.ndarray:
        """Learn from chosen graphs of every stream.

        Returns:
            What this rank had of each, (streams, 5): sums of errors and of priors, and rows, graphs and pairs.
        """
        minibatches, counts = zip(*map(self._minibatch, self.streams.parts, chosen), strict=True)
        with self._dropout_of_this_rank(), on_device(self.ranks.device):
            loss, errors, priors = self.objective(minibatches)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training.gradient_clip)
        self.optimizer.step()
        self.scheduler.step()
        self.average.update_parameters(self.model)
        had = zip(errors, priors, counts, strict=True)
        return np.array([(error.item() * (n > 0), n * prior.item(), n, *more) for error, prior, (n, *more) in had])

    def _minibatch(self, stream: Stream, chosen: list[int]) -> tuple[Minibatch, tuple[int, int, int]]:
        """This rank's part of chosen graphs, and how many rows, graphs and pairs it has."""
        rows = [stream.batches.rows(key) for key in chosen]
        pairs = [rows[number] * stream.batches.nodes(key) for number, key in enumerate(chosen)]
        own = self.ranks.share(pairs)
        counts = sum(rows[own]), len(chosen[own]), sum(pairs[own])
        # Ranks have different numbers of rows, and their gradients are averaged as if all had the same.
        share = self.ranks.size * counts[0] / sum(rows)
        # A rank that is left with nothing takes part in the averaging all the same, with a graph that does not count.
        own = own if share else slice(0, 1)
        device = self.ranks.device
        graphs, its_rows, log_ms, positions = stream.batches.collate(chosen[own])
        graphs.x = graphs.x + self._noise(stream.batches, chosen, own)
        weights = stream.weights[positions].to(device)
        return (
            Minibatch(
                graphs.to(device),
                rows_to(its_rows, device),
                log_ms.to(device),
                weights,
                stream.share * share,
                stream.prior,
            ),
            counts,
        )

    def _noise(self, batches: Batches, chosen: list[int], own: slice) -> Tensor:
        """Noise for the graphs of this rank: cut out of that for all, which every rank draws alike."""
        nodes = [batches.nodes(key) for key in chosen]
        before, here = sum(nodes[: own.start]), sum(nodes[own])
        return self.size_noise * torch.randn(sum(nodes), len(NODE_FEATURES))[before : before + here]

    @contextmanager
    def _dropout_of_this_rank(self) -> Iterator[None]:
        """Of a single CPU, torch's random state serves the noise and then dropout.

        Otherwise dropout draws from a state that follows from seed, step and rank, and leaves that of the noise as it
        is on all ranks.
        """
        if self.ranks.size == 1 and self.ranks.device.type == "cpu":
            yield
            return
        with torch.random.fork_rng(devices=[]):
            step = self.training.seed * 1_000_003 + self.scheduler.last_epoch
            torch.manual_seed(step * self.ranks.size + self.ranks.rank)
            yield

    def _validate(self) -> float:
        predicted = predict_ms(self.result, self.dataset, self.split.validation)
        measured = np.array([self.dataset.samples[p].record.time_ms for p in self.split.validation])
        return float(absolute_percentage_errors(measured, predicted).mean())

    def _state(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "history": self.history,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": {"last_epoch": self.scheduler.last_epoch},
            "random": torch.get_rng_state(),
            "ranks": self.ranks.size,
            "split": self.split.fingerprint,
            "training": asdict(self.training),
            "config": self.model.config.to_dict(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        # A setting that came later had its default before.
        training = {**asdict(TrainingConfig()), **state["training"]}
        same = (self.split.fingerprint, asdict(self.training), self.model.config.to_dict())
        if (state["split"], training, state["config"]) != same:
            path = str(self.checkpoint)
            raise ValueError(f"checkpoint {path!r} belongs to another run: give another folder or delete it")
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.last_epoch = state["scheduler"]["last_epoch"]
        torch.set_rng_state(state["random"])
        self.epoch = state["epoch"]
        self.history = state.get("history", [])
