"""Scores of several predictors on the same rows, and the plot of predicted against measured times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gnnperf.dataset import Dataset
from gnnperf.hardware import load_device
from gnnperf.metrics import Array, absolute_percentage_errors, score
from gnnperf.records import Record


class ScoredRows:
    """Measured rows and what each predictor says of them.

    Args:
        dataset: Where the rows come from.
        positions: Which samples.
        predicted_ms: For every predictor, (len(positions),).
    """

    def __init__(self, dataset: Dataset, positions: Sequence[int], predicted_ms: dict[str, Array]) -> None:
        self.records = [dataset.samples[p].record for p in positions]
        self.measured_ms: Array = np.array([record.time_ms for record in self.records])
        self.predicted_ms = predicted_ms

    def scores(self, keep: Callable[[Record], bool] = lambda record: True) -> pd.DataFrame:
        """A line for every predictor: how many rows, MAPE, median, Acc10, and the mean of MAPE over families."""
        return self.scores_at([keep(record) for record in self.records])

    def scores_at(self, chosen: Sequence[bool]) -> pd.DataFrame:
        """The same of chosen rows, (rows,)."""
        rows = np.array(chosen, dtype=bool)
        families = pd.Series([record.family for record in self.records])[rows]
        lines = {}
        for name, predicted_ms in self.predicted_ms.items():
            scores = score(self.measured_ms[rows], predicted_ms[rows], families)
            lines[name] = {
                "rows": scores.rows,
                "MAPE %": scores.mape_percent,
                "median %": scores.median_percent,
                "Acc10 %": scores.acc10_percent,
                "mean over families %": scores.group_mape_percent,
            }
        return pd.DataFrame.from_dict(lines, orient="index").rename_axis("predictor")

    def by(self, label: str, key: Callable[[Record], str]) -> pd.DataFrame:
        """MAPE of every predictor in every group of rows, largest group first."""
        return self.by_labels(label, [key(record) for record in self.records])

    def by_labels(self, label: str, labels: Sequence[str]) -> pd.DataFrame:
        """The same where the group of every row is given, (rows,)."""
        groups = pd.Series(labels, name=label)
        errors = pd.DataFrame(
            {name: absolute_percentage_errors(self.measured_ms, p) for name, p in self.predicted_ms.items()}
        )
        table = errors.groupby(groups).mean()
        table.insert(0, "rows", groups.value_counts())
        return table.sort_values("rows", ascending=False, kind="stable")

    def scatter(self, name: str) -> Figure:
        """Predicted against measured milliseconds of one predictor, a color for every device."""
        figure = Figure(figsize=(7, 6), layout="constrained")
        axes = figure.subplots()
        devices = np.array([record.device for record in self.records])
        for device in sorted(set(devices)):
            chosen = devices == device
            axes.scatter(self.measured_ms[chosen], self.predicted_ms[name][chosen], s=4, alpha=0.5, label=device)
        ends = [self.measured_ms.min(), self.measured_ms.max()]
        axes.plot(ends, ends, color="black", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="measured ms", ylabel="predicted ms", title=name)
        axes.legend(markerscale=3)
        return figure


def on_cpu(record: Record) -> bool:
    """Whether the row was measured on a CPU."""
    return load_device(record.device).kind == "cpu"


def file_label(record: Record) -> str:
    """The file of a row, without what all files share."""
    return record.source_file.removeprefix("results/benchmark-").removesuffix(".csv")


def show(title: str, table: pd.DataFrame, decimals: int = 1) -> None:
    """Print a table, its fractions with so many decimals."""
    print(f"\n{title}\n{table.to_string(float_format=lambda value: f'{value:.{decimals}f}')}", flush=True)


def improvement(table: pd.DataFrame, name: str, other: str) -> str:
    """A line that says how many times smaller the error of ``name`` is than that of ``other``."""
    parts = []
    for column in ("MAPE %", "median %", "mean over families %"):
        mine, theirs = float(table[column][name]), float(table[column][other])
        parts.append(f"{column.removesuffix(' %')} {mine:.1f} % against {theirs:.1f} % (ratio {mine / theirs:.2f})")
    return f"{name} against {other}: {'; '.join(parts)}"
