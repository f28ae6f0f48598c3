"""Train the model: ``python -m experiments.train data.clones.timm=FOLDER``; see ``conf/train.yaml``.

``torchrun --nproc-per-node=2 -m experiments.train`` divides the work among processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch
from omegaconf import DictConfig
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from data_collection.mains import hydra_writes_once, one_line_errors, only_first_prints
from experiments.data import load_dataset_together, make_split
from experiments.judge import judge
from experiments.loggers import Loggers, open_logger
from experiments.settings import model_sizes, published, training_config
from experiments.throughput import speed_line, training_speed
from gnnperf.batches import predict_ms
from gnnperf.dataset import Dataset
from gnnperf.distributed import Ranks, start_ranks
from gnnperf.features import OPS
from gnnperf.model import Ensemble, PerformanceModel
from gnnperf.splits import Split
from gnnperf.trainer import Trainer
from gnnperf.weights import load_weights, save_weights

_INTERVALS = ("interval_log_ratio", "zero_shot_interval_log_ratio")


def train(config: DictConfig) -> dict[str, Any]:
    """Train, save the weights and the metrics, and log validation errors.

    Under ``torchrun`` all processes train together, and the first alone writes, logs, prints and judges.

    Returns:
        What is in ``metrics.json``; nothing in any but the first process.

    Raises:
        ValueError: If the configuration does not fit the data or an earlier run in the same folder.
    """
    ranks = start_ranks(config.trainer.accelerator)
    with only_first_prints(ranks):
        return _train(config, ranks)


def _train(config: DictConfig, ranks: Ranks) -> dict[str, Any]:
    folder = Path(config.folder)
    dataset = load_dataset_together(config.data, ranks)
    split = make_split(config.split, dataset.samples)
    intervals = _taken_over(config.intervals_from)
    facts: dict[str, Any] = {"training_split": split.fingerprint, "experiment": published(config)}
    sizes = _sizes(dataset, split)
    logger = ranks.on_first(lambda: open_logger(config.logger, folder, {**facts, **sizes}, goes_on=True))
    with logger or Loggers([]) as logger:
        model, metrics = _members(config, dataset, split, folder, logger, ranks)
        if not ranks.first:
            return {}
        if split.validation:
            metrics |= judge(model, dataset, split.validation, logger)
        facts |= intervals or _intervals(model, dataset, split, config.zero_shot_stretch)
        facts |= _seen(dataset, split)
        save_weights(folder / "weights", model, facts)
        metrics = {**sizes, **metrics}
        logger.summary("metrics", metrics)
    print(f"weights in {folder / 'weights'}, numbers in {folder / 'metrics.json'}")
    return metrics


def _members(
    config: DictConfig, dataset: Dataset, split: Split, folder: Path, logger: Loggers, ranks: Ranks
) -> tuple[Ensemble, dict[str, Any]]:
    """Train as many models as are asked for, one after the other, each from a seed of its own."""
    members: list[PerformanceModel] = []
    history: list[dict[str, float]] = []
    count = config.trainer.members
    for number in range(count):
        training = training_config(config, number)
        checkpoint = folder / f"checkpoint-{training.seed}.pt"
        trainer = Trainer(dataset, split, model_sizes(config), training, checkpoint, ranks)
        with _matmul_precision(config.trainer.matmul_precision):
            _run(trainer, logger, number, f"model {number + 1} of {count}")
        members.append(trainer.result)
        history += trainer.history
    speed = training_speed(history)
    print(speed_line("train", speed))
    return Ensemble(members).eval(), {**(history[-1] if history else {}), **speed}


@contextmanager
def _matmul_precision(precision: str) -> Iterator[None]:
    """Let torch multiply fp32 matrices in ``precision``, for a while."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _run(trainer: Trainer, logger: Loggers, member: int, title: str) -> None:
    """Train with a progress bar; epochs are logged from the first, and count on from those of earlier members."""
    epochs = trainer.training.epochs

    def log(numbers: Mapping[str, float]) -> None:
        logger.log({**numbers, "model": member + 1, "epoch": member * epochs + numbers["epoch"]})

    if trainer.epoch:
        print(f"{title}: going on after epoch {trainer.epoch}", flush=True)
    for numbers in trainer.history:
        log(numbers)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns) as progress:
        task = progress.add_task(title, total=epochs, completed=trainer.epoch)
        watched = ""

        def report(numbers: Mapping[str, float]) -> None:
            nonlocal watched
            log(numbers)
            if "validation/mape_percent" in numbers:
                watched = f", validation {numbers['validation/mape_percent']:.1f} %"
            progress.update(task, advance=1, description=f"{title}, loss {numbers['train/loss']:.3f}{watched}")

        trainer.run(report)


def _taken_over(folder: str | None) -> dict[str, Any]:
    """The intervals of other weights."""
    return {name: load_weights(folder).facts[name] for name in _INTERVALS} if folder is not None else {}


def _intervals(model: Ensemble, dataset: Dataset, split: Split, stretch: float) -> dict[str, Any]:
    """The 5 % and 95 % quantile of log(measured / predicted) of validation rows, of training rows without any."""
    held_out = split.validation if split.validation and not set(split.validation) & set(split.train) else ()
    if not held_out:
        print("no row was held out, so the intervals are too narrow: take them over with intervals_from=WEIGHTS")
    positions = held_out or split.train
    measured_ms = np.array([dataset.samples[p].record.time_ms for p in positions])
    low, high = np.quantile(np.log(measured_ms / predict_ms(model, dataset, positions)), (0.05, 0.95))
    low, high = float(low), float(high)
    return dict(zip(_INTERVALS, ([low, high], [stretch * low, stretch * high]), strict=True))


def _seen(dataset: Dataset, split: Split) -> dict[str, list[str]]:
    """Devices, ops and modes of the training rows."""
    samples = [dataset.samples[p] for p in split.train]
    ops = {int(op) for graph in {s.graph for s in samples} for op in dataset.graphs[graph].op.unique()}
    return {
        "training_devices": sorted({s.record.device for s in samples}),
        "training_ops": sorted(OPS[op] for op in ops if op),
        "training_modes": sorted({s.record.mode for s in samples}),
    }


def _sizes(dataset: Dataset, split: Split) -> dict[str, Any]:
    return {
        "split": split.fingerprint,
        "rows": {part: len(getattr(split, part)) for part in ("train", "validation", "test", "left_out")},
        "graphs": len(dataset.graphs),
        "skipped": dict(dataset.skipped),
    }


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
@one_line_errors
def main(config: DictConfig) -> None:
    """Train as configured."""
    train(config)


if __name__ == "__main__":
    hydra_writes_once()
    main()
