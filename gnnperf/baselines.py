"""Predictors to beat, on the same samples as the model.

All of them read the same graphs, devices and software. The calibrated ones are also told the file that a row comes
from, which the model is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, Self

import lightgbm
import numpy as np
import torch

from gnnperf.aggregates import AGGREGATES, aggregate, class_rooflines_ms, node_table
from gnnperf.dataset import Dataset
from gnnperf.metrics import Array


class Baseline(Protocol):
    """What every baseline can do."""

    def fit(self, dataset: Dataset, train: Sequence[int], validation: Sequence[int] = ()) -> Self:
        """Learn from the samples at positions ``train``; ``validation`` only decides where to stop."""

    def predict_ms(self, dataset: Dataset, positions: Sequence[int]) -> Array:
        """Milliseconds of the samples at ``positions``, (len(positions),)."""


class Roofline:
    """The spec sheet alone: for every node the longer of computing and moving bytes, without launches."""

    def fit(self, dataset: Dataset, train: Sequence[int], validation: Sequence[int] = ()) -> Self:
        """Nothing is learned."""
        return self

    def predict_ms(self, dataset: Dataset, positions: Sequence[int]) -> Array:
        """Milliseconds, (len(positions),)."""
        return np.array([class_rooflines_ms(dataset, dataset.samples[p]).sum() for p in positions])


class CalibratedRoofline:
    """The roofline times the median of measured over roofline in the training rows of the same file.

    A file without training rows takes the median of all.
    """

    def __init__(self) -> None:
        self._ratio: dict[str, float] = {}
        self._overall = 1.0

    def fit(self, dataset: Dataset, train: Sequence[int], validation: Sequence[int] = ()) -> Self:
        """Take the medians.

        Raises:
            ValueError: If there are no training rows.
        """
        ratio = _measured_ms(dataset, train) / Roofline().predict_ms(dataset, train)
        self._overall = float(np.median(ratio))
        self._ratio = {file: float(np.median(ratio[rows])) for file, rows in _by_file(dataset, train).items()}
        return self

    def predict_ms(self, dataset: Dataset, positions: Sequence[int]) -> Array:
        """Milliseconds, (len(positions),)."""
        scale = np.array([self._ratio.get(file, self._overall) for file in _files(dataset, positions)])
        return scale * Roofline().predict_ms(dataset, positions)


class LogLinear:
    """Least squares of log time on the logarithms of FLOPs, activation bytes and parameter bytes, for each file.

    A file with fewer than ``MIN_ROWS`` training rows takes the regression over all rows.
    """

    MIN_ROWS = 20

    def __init__(self) -> None:
        self._weights: dict[str, Array] = {}
        self._overall = np.zeros(4)

    def fit(self, dataset: Dataset, train: Sequence[int], validation: Sequence[int] = ()) -> Self:
        """Solve the regressions.

        Raises:
            ValueError: If there are no training rows.
        """
        target = np.log(_measured_ms(dataset, train))
        inputs = self._inputs(dataset, train)
        self._overall = _least_squares(inputs, target)
        self._weights = {
            file: _least_squares(inputs[rows], target[rows])
            for file, rows in _by_file(dataset, train).items()
            if len(rows) >= self.MIN_ROWS
        }
        return self

    def predict_ms(self, dataset: Dataset, positions: Sequence[int]) -> Array:
        """Milliseconds, (len(positions),)."""
        weights = [self._weights.get(file, self._overall) for file in _files(dataset, positions)]
        return np.exp((self._inputs(dataset, positions) * np.array(weights).reshape(-1, 4)).sum(axis=1))

    def _inputs(self, dataset: Dataset, positions: Sequence[int]) -> Array:
        """(rows, 4): one, and the logarithms."""
        rows = []
        for position in positions:
            table = node_table(dataset, dataset.samples[position])
            totals = table.count @ np.stack([table.flops, table.written_bytes, table.parameter_bytes], axis=1)
            rows.append([1.0, *np.log1p(totals)])
        return np.array(rows).reshape(-1, 4)


class GradientBoosting:
    """LightGBM on ``gnnperf.aggregates.AGGREGATES`` with the file as a category.

    It learns how far the logarithm of the time lies from that of the roofline, by Huber's loss, which is the absolute
    error beyond 10 %; boosting stops where the absolute error of the validation rows no longer improves. Objective,
    target and leaves were chosen by the validation rows of the unseen architectures.

    Args:
        seed: Of the rows and columns that each tree sees.
    """

    PARAMETERS: ClassVar[dict[str, Any]] = {
        "objective": "huber",
        "alpha": 0.1,
        "metric": "l1",
        "learning_rate": 0.05,
        "num_leaves": 63,
        "min_data_in_leaf": 20,
        "feature_fraction": 0.5,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "lambda_l2": 1.0,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    ROUNDS = 3000
    PATIENCE = 100

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._files: dict[str, int] = {}
        self._roofline = Roofline()
        self._booster: lightgbm.Booster | None = None

    def fit(self, dataset: Dataset, train: Sequence[int], validation: Sequence[int] = ()) -> Self:
        """Grow trees; without validation rows all ``ROUNDS`` are grown.

        Raises:
            ValueError: If there are no training rows.
        """
        self._files = {file: number for number, file in enumerate(sorted(set(_files(dataset, train))))}
        names = ["file", *AGGREGATES]
        learned = lightgbm.Dataset(
            self._inputs(dataset, train),
            self._target(dataset, train),
            feature_name=names,
            categorical_feature=["file"],
            free_raw_data=False,
        )
        watched: list[lightgbm.Dataset] = []
        callbacks: list[Callable[..., Any]] = []
        if len(validation):
            inputs = self._inputs(dataset, validation)
            watched = [lightgbm.Dataset(inputs, self._target(dataset, validation), reference=learned)]
            callbacks = [lightgbm.early_stopping(self.PATIENCE, verbose=False)]
        self._booster = lightgbm.train(
            {**self.PARAMETERS, "seed": self._seed, "num_threads": _threads()},
            learned,
            self.ROUNDS,
            valid_sets=watched,
            callbacks=callbacks,
        )
        return self

    def predict_ms(self, dataset: Dataset, positions: Sequence[int]) -> Array:
        """Milliseconds, (len(positions),)."""
        assert self._booster is not None, "fit comes first"
        log_ratio = np.asarray(self._booster.predict(self._inputs(dataset, positions), num_threads=_threads()))
        return self._roofline.predict_ms(dataset, positions) * np.exp(log_ratio)

    def _target(self, dataset: Dataset, positions: Sequence[int]) -> Array:
        return np.log(_measured_ms(dataset, positions) / self._roofline.predict_ms(dataset, positions))

    def _inputs(self, dataset: Dataset, positions: Sequence[int]) -> Array:
        """(rows, 1 + ``AGGREGATES``); a file that was not trained on is a missing value."""
        files = [self._files.get(file, np.nan) for file in _files(dataset, positions)]
        rows = [[file, *aggregate(dataset, dataset.samples[p])] for file, p in zip(files, positions, strict=True)]
        return np.array(rows).reshape(-1, 1 + len(AGGREGATES))


BASELINES: dict[str, type[Baseline]] = {
    "roofline, spec sheet only": Roofline,
    "roofline, calibrated by file": CalibratedRoofline,
    "log-linear by file": LogLinear,
    "LightGBM": GradientBoosting,
}


def _threads() -> int:
    """As many as torch may use; more than two gain nothing on so few rows."""
    return min(2, torch.get_num_threads())


def _measured_ms(dataset: Dataset, positions: Sequence[int]) -> Array:
    if not len(positions):
        raise ValueError("there are no training rows to fit a baseline to: check the split and what was skipped")
    return np.array([dataset.samples[p].record.time_ms for p in positions])


def _files(dataset: Dataset, positions: Sequence[int]) -> list[str]:
    return [dataset.samples[p].record.source_file for p in positions]


def _by_file(dataset: Dataset, positions: Sequence[int]) -> dict[str, list[int]]:
    """Rows, as places in ``positions``, of every file."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, file in enumerate(_files(dataset, positions)):
        rows[file].append(row)
    return rows


def _least_squares(inputs: Array, target: Array) -> Array:
    return np.asarray(np.linalg.lstsq(inputs, target, rcond=None)[0], dtype=np.float64)
