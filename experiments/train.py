"""Train the model: ``python -m experiments.train data.clone=FOLDER``; see ``conf/train.yaml``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.data import load_dataset, make_split
from experiments.loggers import Loggers, open_logger
from experiments.mains import one_line_errors
from experiments.tables import ScoredRows, file_label, show
from gnnperf.batches import predict_ms
from gnnperf.dataset import Dataset
from gnnperf.features import OPS
from gnnperf.model import Ensemble, PerformanceModel
from gnnperf.splits import Split
from gnnperf.trainer import Trainer
from gnnperf.training import TrainingConfig, model_config
from gnnperf.weights import load_weights, save_weights

_INTERVALS = ("interval_log_ratio", "zero_shot_interval_log_ratio")


def train(config: DictConfig) -> dict[str, Any]:
    """Train, save the weights and the metrics, and log validation errors.

    Returns:
        What is in ``metrics.json``.

    Raises:
        ValueError: If the configuration does not fit the data or an earlier run in the same folder.
    """
    folder = Path(config.folder)
    dataset = load_dataset(config.data)
    split = make_split(config.split, dataset.samples)
    intervals = _taken_over(config.intervals_from)
    plain = OmegaConf.to_container(OmegaConf.masked_copy(config, ["data", "split", "model", "training"]), resolve=True)
    assert isinstance(plain, dict)
    facts: dict[str, Any] = {"training_split": split.fingerprint, "experiment": _without_paths(plain)}
    with open_logger(config.logger, folder, {**facts, **_sizes(dataset, split)}) as logger:
        model, metrics = _members(config, dataset, split, folder, logger)
        if split.validation:
            metrics |= _judge(model, dataset, split, logger)
        facts |= intervals or _intervals(model, dataset, split, config.zero_shot_stretch)
        facts |= _seen(dataset, split)
        save_weights(folder / "weights", model, facts)
        metrics = {**_sizes(dataset, split), **metrics}
        (folder / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    print(f"weights in {folder / 'weights'}, numbers in {folder / 'metrics.json'}")
    return metrics


def _members(
    config: DictConfig, dataset: Dataset, split: Split, folder: Path, logger: Loggers
) -> tuple[Ensemble, dict[str, Any]]:
    """Train as many models as are asked for, one after the other, each from a seed of its own."""
    members: list[PerformanceModel] = []
    metrics: dict[str, Any] = {}
    sizes = model_config(**config.model)
    for number in range(config.members):
        training = TrainingConfig(**{**config.training, "seed": config.training.seed + number})
        trainer = Trainer(dataset, split, sizes, training, folder / f"checkpoint-{training.seed}.pt")
        done = {"model": number + 1, "epoch": number * training.epochs}
        with _matmul_precision(config.matmul_precision):
            metrics = _run(trainer, logger, done, f"model {number + 1} of {config.members}")
        members.append(trainer.result)
    return Ensemble(members).eval(), metrics


@contextmanager
def _matmul_precision(precision: str) -> Iterator[None]:
    """Let torch multiply fp32 matrices in ``precision``, for a while."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _run(trainer: Trainer, logger: Loggers, done: Mapping[str, int], title: str) -> dict[str, Any]:
    """Train with a progress bar, logging epochs on from ``done``; the numbers of the last epoch."""
    if trainer.epoch:
        print(f"{title}: going on after epoch {trainer.epoch}", flush=True)
    start = time.perf_counter()
    last: dict[str, Any] = {}
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns) as progress:
        task = progress.add_task(title, total=trainer.training.epochs, completed=trainer.epoch)

        def report(numbers: Mapping[str, float]) -> None:
            last.update(numbers)
            logger.log({**numbers, **done, "epoch": done["epoch"] + numbers["epoch"]})
            text = f"{title}, loss {last['train/loss']:.3f}"
            if "validation/mape_percent" in last:
                text += f", validation {last['validation/mape_percent']:.1f} %"
            progress.update(task, advance=1, description=text)

        trainer.run(report)
    return {**last, "training_seconds": round(time.perf_counter() - start, 1)}


def _judge(model: Ensemble, dataset: Dataset, split: Split, logger: Loggers) -> dict[str, Any]:
    """Scores on the validation rows, as tables and a plot; no test row is looked at."""
    rows = ScoredRows(dataset, split.validation, {"gnnperf": predict_ms(model, dataset, split.validation)})
    scores = rows.scores()
    show("validation rows", scores)
    logger.table("validation", scores)
    for name, key in (("family", lambda r: r.family), ("device", lambda r: r.device), ("file", file_label)):
        table = rows.by(name, key).rename(columns={"gnnperf": "MAPE %"})
        show(f"validation rows by {name}", table)
        logger.table(f"validation_by_{name}", table)
    logger.figure("validation_scatter", rows.scatter("gnnperf"))
    return {f"validation/{name}": value for name, value in scores.loc["gnnperf"].items()}


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


def _without_paths(config: dict[Any, Any]) -> dict[Any, Any]:
    """What may be published with the weights: no folder of the machine that trained them."""
    return {**config, "data": {key: config["data"][key] for key in ("networks",)}}


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
@one_line_errors
def main(config: DictConfig) -> None:
    """Train as configured."""
    train(config)


if __name__ == "__main__":
    main()
