"""Where the numbers of a run go: CSV and PNG files in its folder, and Weights & Biases beside them.

wandb is imported only where it is asked for, and works offline unless the user says otherwise: no account, no network.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from omegaconf import DictConfig


class Logger(Protocol):
    """Takes what a run produces; names are file names without a suffix."""

    def log(self, numbers: Mapping[str, float]) -> None:
        """The numbers of one epoch; ``epoch`` is one of them."""

    def table(self, name: str, table: pd.DataFrame) -> None:
        """A table with its index as columns."""

    def figure(self, name: str, figure: Figure) -> None:
        """A plot."""

    def close(self) -> None:
        """Nothing follows."""


class Files:
    """Tables as CSV and plots as PNG in ``folder``; with ``epochs``, also ``epochs.csv``.

    A run that goes on adds to the epochs that are there.
    """

    def __init__(self, folder: Path, epochs: bool) -> None:
        self._folder = folder
        self._epochs = epochs
        folder.mkdir(parents=True, exist_ok=True)

    def log(self, numbers: Mapping[str, float]) -> None:
        """Add a row, and columns where they are new; an epoch that is done again takes the place of the old one."""
        if not self._epochs:
            return
        path = self._folder / "epochs.csv"
        rows: list[Mapping[str, Any]] = []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                rows = [row for row in csv.DictReader(file) if int(row["epoch"]) < numbers["epoch"]]
        rows.append(numbers)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)

    def table(self, name: str, table: pd.DataFrame) -> None:
        """Write ``name.csv``."""
        table.to_csv(self._folder / f"{name}.csv")

    def figure(self, name: str, figure: Figure) -> None:
        """Write ``name.png``."""
        figure.savefig(self._folder / f"{name}.png", dpi=120)

    def close(self) -> None:
        """Everything is written already."""


class Wandb:
    """A run of Weights & Biases, its files in ``folder``."""

    def __init__(self, folder: Path, project: str, config: dict[str, Any]) -> None:
        os.environ.setdefault("WANDB_MODE", "offline")
        import wandb

        self._wandb = wandb
        self._run = wandb.init(
            project=project,
            dir=str(folder),
            config=config,
            settings=wandb.Settings(console="off", silent=True, quiet=True),
        )

    def log(self, numbers: Mapping[str, float]) -> None:
        """Log at step ``epoch``."""
        self._run.log(dict(numbers), step=int(numbers["epoch"]))

    def table(self, name: str, table: pd.DataFrame) -> None:
        """Log a table; one of a single column of numbers also as numbers ``name/row`` that can be compared."""
        self._run.log({name: self._wandb.Table(dataframe=table.reset_index())})
        if "MAPE %" in table:
            self._run.summary.update({f"{name}/{row}": value for row, value in table["MAPE %"].items()})

    def figure(self, name: str, figure: Figure) -> None:
        """Log an image, drawn here: wandb's own way to draw figures needs a pyplot that nobody imported."""
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        self._run.log({name: self._wandb.Image(np.asarray(canvas.buffer_rgba()))})

    def close(self) -> None:
        """Flush and end the run."""
        self._run.finish()


class Loggers:
    """Several loggers as one, closed at the end of a ``with`` block."""

    def __init__(self, loggers: list[Logger]) -> None:
        self._loggers = loggers

    def log(self, numbers: Mapping[str, float]) -> None:
        """To all of them, like what follows."""
        for logger in self._loggers:
            logger.log(numbers)

    def table(self, name: str, table: pd.DataFrame) -> None:
        """A table."""
        for logger in self._loggers:
            logger.table(name, table)

    def figure(self, name: str, figure: Figure) -> None:
        """A plot."""
        for logger in self._loggers:
            logger.figure(name, figure)

    def close(self) -> None:
        """The end."""
        for logger in self._loggers:
            logger.close()

    def __enter__(self) -> Loggers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_logger(logger: DictConfig, folder: str | Path, config: dict[str, Any]) -> Loggers:
    """The loggers that the group ``logger`` asks for; files are always written.

    Args:
        logger: The group.
        folder: Of the run.
        config: Plain values that describe the run, the split's fingerprint among them.

    Raises:
        ValueError: If the kind is unknown.
    """
    if logger.kind not in ("wandb", "csv", "none"):
        raise ValueError(f"logger.kind is {logger.kind!r}: write wandb, csv or none")
    loggers: list[Logger] = [Files(Path(folder), epochs=logger.kind != "none")]
    if logger.kind == "wandb":
        loggers.append(Wandb(Path(folder), logger.project, config))
    return Loggers(loggers)
