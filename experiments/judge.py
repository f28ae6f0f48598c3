"""How good a trained model is on the validation rows, as tables and a plot, and how fast."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments.loggers import Loggers
from experiments.op_classes import op_class_times
from experiments.tables import ScoredRows, file_label, show
from experiments.throughput import prediction_speed, speed_line
from gnnperf.batches import predict_ms
from gnnperf.dataset import Dataset
from gnnperf.model import Ensemble


def judge(model: Ensemble, dataset: Dataset, positions: Sequence[int], logger: Loggers) -> dict[str, Any]:
    """Score the validation rows at ``positions``, print and log; no other row is looked at.

    Returns:
        The scores over all rows, and how fast they were predicted.
    """
    start = time.perf_counter()
    predicted_ms = predict_ms(model, dataset, positions)
    speed = prediction_speed(dataset, positions, time.perf_counter() - start)
    rows = ScoredRows(dataset, positions, {"gnnperf": predicted_ms})
    scores = rows.scores()
    tables = {"validation": ("validation rows", scores)}
    for name, key in (("family", lambda r: r.family), ("device", lambda r: r.device), ("file", file_label)):
        tables[f"validation_by_{name}"] = (f"validation rows by {name}", _named(rows.by(name, key)))
    tables |= _by_op_class(model, dataset, positions, rows)
    for name, (title, table) in tables.items():
        show(title, table)
        logger.table(name, table)
    logger.figure("validation_scatter", rows.scatter("gnnperf"))
    print(speed_line("predict", speed))
    return {**{f"validation/{name}": value for name, value in scores.loc["gnnperf"].items()}, **speed}


def _by_op_class(
    model: Ensemble, dataset: Dataset, positions: Sequence[int], rows: ScoredRows
) -> dict[str, tuple[str, pd.DataFrame]]:
    times = op_class_times(model, dataset, positions)
    label = "dominant op class"
    return {
        "validation_by_dominant_op_class": (
            f"validation rows by {label}, which takes most of the predicted time",
            _named(rows.by_labels(label, times.dominant())),
        ),
        "validation_predicted_by_op_class": (
            "predicted times by op class in validation rows; only totals are measured",
            times.table(),
        ),
    }


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """The errors of the only predictor, as what they are."""
    return table.rename(columns={"gnnperf": "MAPE %"})
