"""Score trained weights beside the baselines.

``python -m experiments.evaluate data.clones.timm=FOLDER weights=FOLDER``; see ``conf/evaluate.yaml``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import hydra
import numpy as np
import pandas as pd
from omegaconf import DictConfig, ListConfig

from data_collection.mains import one_line_errors
from experiments.data import load_dataset, make_split
from experiments.loggers import open_logger
from experiments.op_classes import op_class_times
from experiments.settings import published
from experiments.tables import ScoredRows, file_label, improvement, on_cpu, show
from experiments.throughput import prediction_speed, speed_line
from gnnperf.baselines import BASELINES, GradientBoosting
from gnnperf.batches import predict_ms
from gnnperf.dataset import Dataset
from gnnperf.metrics import Array
from gnnperf.model import Ensemble
from gnnperf.records import Record
from gnnperf.splits import Split
from gnnperf.weights import load_weights

STRONGEST = "LightGBM"


def evaluate(config: DictConfig) -> pd.DataFrame:
    """Print and log the scores of all predictors on the test rows.

    Returns:
        The table over all test rows.

    Raises:
        ValueError: If the split has no test rows, or weights were trained on another split.
    """
    dataset = load_dataset(config.data)
    split = make_split(config.split, dataset.samples)
    if not split.test:
        raise ValueError("the split has no test rows: take split=unseen_architectures, or import more networks")
    models = _models(config.weights, split)
    predicted, speeds = _baselines(dataset, split, config.seed), {}
    for name, model in models.items():
        predicted[name], speeds[name] = _timed(model, dataset, split)
    rows = ScoredRows(dataset, split.test, predicted)
    tables = {**_tables(rows, dataset, split, models), **_groups(rows, split)}
    facts = {"split": split.fingerprint, "weights": str(config.weights), "experiment": published(config)}
    with open_logger(config.logger, config.folder, facts, "evaluate") as logger:
        for name, table in tables.items():
            show(_title(name), table)
            logger.table(name, table)
        for name in models:
            logger.figure(f"test_scatter_{Path(name).name}", rows.scatter(name))
        logger.summary("evaluation", {name: {**tables["test"].loc[name], **speeds[name]} for name in models})
    for name, speed in speeds.items():
        print(f"\n{name}: {speed_line('predict', speed)}")
    for part in ("test", "test_inference", "test_training"):
        for name in models if part in tables else ():
            print(f"\n{_TITLES[part]}: {improvement(tables[part], name, STRONGEST)}")
    print(f"tables and plots in {config.folder}")
    return tables["test"]


_TITLES = {
    "test": "test rows",
    "test_inference": "test rows of inference",
    "test_training": "test rows of training steps",
    "test_gpu": "test rows of inference on GPUs",
    "test_cpu": "test rows of inference on CPUs",
    "test_by_family": "MAPE % of test rows by family",
    "test_by_device": "MAPE % of test rows by device",
    "test_by_file": "MAPE % of test rows by file",
    "test_by_dominant_op_class": "MAPE % of test rows by the op class that takes most of the predicted time",
    "test_predicted_by_op_class": "predicted times by op class in test rows; only totals are measured",
}


def _title(name: str) -> str:
    """Of a table, those of groups among them."""
    return _TITLES.get(name, f"test rows of {name.removeprefix('test_of_').replace('_', ' ')}")


def _timed(model: Ensemble, dataset: Dataset, split: Split) -> tuple[Array, dict[str, float]]:
    """Predictions of the test rows, and how fast they came."""
    start = time.perf_counter()
    predicted_ms = np.asarray(predict_ms(model, dataset, split.test))
    return predicted_ms, prediction_speed(dataset, split.test, time.perf_counter() - start)


def _tables(rows: ScoredRows, dataset: Dataset, split: Split, models: dict[str, Ensemble]) -> dict[str, pd.DataFrame]:
    """Scores of all rows and of parts; op classes are those of the first model, since only a model tells them."""
    tables = {"test": rows.scores(), **_parts(rows)}
    for name, key in (("family", lambda r: r.family), ("device", lambda r: r.device), ("file", file_label)):
        tables[f"test_by_{name}"] = rows.by(name, key)
    for model in list(models.values())[:1]:
        times = op_class_times(model, dataset, split.test)
        tables["test_by_dominant_op_class"] = rows.by_labels("dominant op class", times.dominant())
        tables["test_predicted_by_op_class"] = times.table()
    return tables


def _groups(rows: ScoredRows, split: Split) -> dict[str, pd.DataFrame]:
    """Scores of the groups of the split, where it has several."""
    groups = {name: set(positions) for name, positions in split.groups.items() if positions}
    if len(split.groups) < 2:
        return {}
    return {f"test_of_{name}": rows.scores_at([p in own for p in split.test]) for name, own in groups.items()}


def _parts(rows: ScoredRows) -> dict[str, pd.DataFrame]:
    """Scores of those parts of the rows that there are."""
    parts: dict[str, Callable[[Record], bool]] = {
        "test_inference": lambda r: r.mode == "inference",
        "test_training": lambda r: r.mode == "training",
        "test_gpu": lambda r: r.mode == "inference" and not on_cpu(r),
        "test_cpu": lambda r: r.mode == "inference" and on_cpu(r),
    }
    return {name: rows.scores(keep) for name, keep in parts.items() if any(map(keep, rows.records))}


def _models(weights: str | ListConfig, split: Split) -> dict[str, Ensemble]:
    """The models, each named ``gnnperf`` or, of several, by the run that made it."""
    folders = [weights] if isinstance(weights, str) else list(weights)
    models = {}
    for folder in folders:
        loaded = load_weights(folder)
        if loaded.facts.get("training_split") != split.fingerprint:
            raise ValueError(
                f"the weights in {str(folder)!r} were trained on another split than the one to test on, so they may "
                "have seen test rows: run experiments.train with the same data and split first"
            )
        models["gnnperf" if len(folders) == 1 else f"gnnperf ({Path(folder).absolute().parent.name})"] = loaded.model
    return models


def _baselines(dataset: Dataset, split: Split, seed: int) -> dict[str, Array]:
    predicted = {}
    for name, baseline in BASELINES.items():
        predictor = GradientBoosting(seed) if baseline is GradientBoosting else baseline()
        predicted[name] = predictor.fit(dataset, split.train, split.validation).predict_ms(dataset, split.test)
    return predicted


@hydra.main(version_base="1.3", config_path="../conf", config_name="evaluate")
@one_line_errors
def main(config: DictConfig) -> None:
    """Evaluate as configured."""
    evaluate(config)


if __name__ == "__main__":
    main()
