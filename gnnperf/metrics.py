"""How good predictions of times are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

# Numbers, such as a time for every measurement.
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """Errors of predicted against measured times.

    Attributes:
        rows: How many times were compared.
        mape_percent: Mean absolute percentage error.
        median_percent: Median absolute percentage error.
        acc10_percent: Share of rows within 10 %.
        group_mape_percent: Mean over groups (families) of the MAPE of each.
    """

    rows: int
    mape_percent: float
    median_percent: float
    acc10_percent: float
    group_mape_percent: float


def absolute_percentage_errors(measured_ms: Array, predicted_ms: Array) -> Array:
    """``100 * |predicted - measured| / measured`` for each row."""
    return 100 * np.abs(predicted_ms - measured_ms) / measured_ms


def score(measured_ms: Array, predicted_ms: Array, groups: pd.Series | None = None) -> Scores:
    """Compare times; all are milliseconds, (rows,).

    Raises:
        ValueError: If there is nothing to compare or a prediction is not a number.
    """
    if not len(measured_ms):
        raise ValueError("there are no rows to score")
    if not np.isfinite(predicted_ms).all():
        raise ValueError("a prediction is not a finite number")
    errors = absolute_percentage_errors(measured_ms, predicted_ms)
    by_group = pd.Series(errors).groupby(np.asarray(groups)).mean() if groups is not None else pd.Series(errors)
    return Scores(
        rows=len(errors),
        mape_percent=float(errors.mean()),
        median_percent=float(np.median(errors)),
        acc10_percent=float(100 * (errors <= 10).mean()),
        group_mape_percent=float(by_group.mean()),
    )
