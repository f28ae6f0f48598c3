"""Where the numbers of a run go: CSV and PNG files in its folder, and Weights & Biases beside them.

wandb is imported only where it is asked for, and works offline unless the user says otherwise: no account, no network.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from omegaconf import DictConfig

from gnnperf.output import replace_whole


class Logger(Protocol):
    """Takes what a run produces; names are file names without a suffix."""

    def log(self, numbers: Mapping[str, float]) -> None:
        """The numbers of one epoch; ``epoch`` is one of them, and one that is logged again replaces what it was."""

    def table(self, name: str, table: pd.DataFrame) -> None:
        """A table with its index as columns."""

    def figure(self, name: str, figure: Figure) -> None:
        """A plot."""

    def summary(self, name: str, numbers: Mapping[str, Any]) -> None:
        """What came out in the end, plain values."""

    def close(self, done: bool = True) -> None:
        """Nothing follows; with ``done``, since the run is through."""


class Files:
    """Tables as CSV, plots as PNG and plain values as JSON in ``folder``; with ``epochs``, also ``epochs.csv``.

    A run that goes on adds to the epochs that are there. No file is ever half written.
    """

    def __init__(self, folder: Path, epochs: bool, job: str, config: Mapping[str, Any]) -> None:
        self._folder = folder
        self._epochs = epochs
        folder.mkdir(parents=True, exist_ok=True)
        self.summary(f"{job}_config", config)

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
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns)
        writer.writeheader()
        writer.writerows(rows)
        replace_whole(path, text.getvalue().encode())

    def table(self, name: str, table: pd.DataFrame) -> None:
        """Write ``name.csv``."""
        table.to_csv(self._folder / f"{name}.csv")

    def figure(self, name: str, figure: Figure) -> None:
        """Write ``name.png``."""
        figure.savefig(self._folder / f"{name}.png", dpi=120)

    def summary(self, name: str, numbers: Mapping[str, Any]) -> None:
        """Write ``name.json``."""
        replace_whole(self._folder / f"{name}.json", (json.dumps(numbers, indent=1) + "\n").encode())

    def close(self, done: bool = True) -> None:
        """Everything is written already."""


class Wandb:
    """A run of Weights & Biases, its files in ``folder``.

    A run that goes on keeps its id, which stands in ``wandb_id.txt``. Offline, wandb begins a new folder each time that
    a process starts; as all epochs are logged again, the last one holds the whole run, and the others go at the end.

    Args:
        folder: Of the run.
        project: To file it under.
        job: What the run does.
        config: Plain values that describe it.
        goes_on: Whether it is the run that was in the folder before, if there was one.
    """

    def __init__(self, folder: Path, project: str, job: str, config: dict[str, Any], goes_on: bool) -> None:
        os.environ.setdefault("WANDB_MODE", "offline")
        import wandb

        known = folder / "wandb_id.txt"
        before = known.read_text(encoding="utf-8").strip() if goes_on and known.exists() else None
        self._wandb = wandb
        self._run = wandb.init(
            project=project,
            dir=str(folder),
            job_type=job,
            config=config,
            id=before,
            resume="allow" if before and os.environ["WANDB_MODE"] == "online" else None,
            settings=wandb.Settings(console="off", silent=True, quiet=True),
        )
        if goes_on:
            replace_whole(known, f"{self._run.id}\n".encode())

    def log(self, numbers: Mapping[str, float]) -> None:
        """Log at step ``epoch``, unless the run on the server has it from before an interruption."""
        epoch = int(numbers["epoch"])
        if not (self._run.resumed and epoch < self._run.starting_step):
            self._run.log(dict(numbers), step=epoch)

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

    def summary(self, name: str, numbers: Mapping[str, Any]) -> None:
        """Show the numbers with the run."""
        self._run.summary.update(dict(numbers))

    def close(self, done: bool = True) -> None:
        """Flush and end; a run that is through takes the place of its earlier parts, a failed one leaves them."""
        self._run.finish(exit_code=int(not done))
        # Its service would sometimes write nothing of a run that goes on in the same process.
        self._wandb.teardown()
        own = Path(self._run.dir).parent
        if not done:
            return
        for folder in own.parent.glob(f"offline-run-*-{self._run.id}*"):
            if folder.name != own.name:
                shutil.rmtree(folder)


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

    def summary(self, name: str, numbers: Mapping[str, Any]) -> None:
        """What came out."""
        for logger in self._loggers:
            logger.summary(name, numbers)

    def close(self, done: bool = True) -> None:
        """The end."""
        for logger in self._loggers:
            logger.close(done)

    def __enter__(self) -> Loggers:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.close(done=error is None)


def open_logger(
    logger: DictConfig, folder: str | Path, config: dict[str, Any], job: str = "train", goes_on: bool = False
) -> Loggers:
    """The loggers that the group ``logger`` asks for; files are always written.

    Args:
        logger: The group.
        folder: Of the run.
        config: Plain values that describe the run, the split's fingerprint among them.
        job: What the run does, in a word.
        goes_on: Whether the run may have begun in an earlier process; it then logs the epochs from the first again.

    Raises:
        ValueError: If the kind is unknown.
    """
    if logger.kind not in ("wandb", "csv", "none"):
        raise ValueError(f"logger.kind is {logger.kind!r}: write wandb, csv or none")
    loggers: list[Logger] = [Files(Path(folder), logger.kind != "none", job, config)]
    if logger.kind == "wandb":
        loggers.append(Wandb(Path(folder), logger.project, job, config, goes_on))
    return Loggers(loggers)
