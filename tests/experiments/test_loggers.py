import os
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from omegaconf import OmegaConf
from wandb_file import history

from experiments.loggers import open_logger

TABLE = pd.DataFrame({"MAPE %": [3.0, 4.0]}, index=pd.Index(["a", "b"], name="family"))


def _figure() -> Figure:
    figure = Figure()
    figure.subplots().plot([1, 2])
    return figure


def _use(logger: dict[str, str], folder: Path) -> None:
    with open_logger(OmegaConf.create(logger), folder, {"split": "0123"}) as loggers:
        loggers.log({"epoch": 1, "loss": 0.5})
        loggers.log({"epoch": 2, "loss": 0.4, "validation": 9.0})
        loggers.table("table", TABLE)
        loggers.figure("plot", _figure())
        loggers.summary("metrics", {"rows": 3})


def test_files(tmp_path):
    _use({"kind": "csv"}, tmp_path)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert pd.read_csv(tmp_path / "table.csv", index_col=0).equals(TABLE)
    epochs = pd.read_csv(tmp_path / "epochs.csv")
    assert epochs["loss"].tolist() == [0.5, 0.4] and epochs["validation"].isna().tolist() == [True, False]


def test_an_epoch_done_again_replaces_the_old_one(tmp_path):
    with open_logger(OmegaConf.create({"kind": "csv"}), tmp_path, {}) as loggers:
        for epoch, loss in ((1, 0.5), (2, 0.4), (3, 0.3)):
            loggers.log({"epoch": epoch, "loss": loss})
    with open_logger(OmegaConf.create({"kind": "csv"}), tmp_path, {}) as loggers:
        loggers.log({"epoch": 2, "loss": 0.45})
    assert pd.read_csv(tmp_path / "epochs.csv")["loss"].tolist() == [0.5, 0.45]


def test_none_keeps_tables_and_plots_only(tmp_path):
    _use({"kind": "none"}, tmp_path)
    files = ["metrics.json", "plot.png", "table.csv", "train_config.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_wandb_works_offline_and_asks_for_nothing(tmp_path, monkeypatch):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    _use({"kind": "wandb", "project": "test"}, tmp_path / "run")
    monkeypatch.setenv("WANDB_MODE", os.environ.pop("WANDB_MODE"))
    assert os.environ["WANDB_MODE"] == "offline"
    (run,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
    assert list(run.glob("*.wandb")) and list(run.rglob("plot*.png")) and list(run.rglob("table*.json"))
    assert (tmp_path / "run" / "epochs.csv").exists() and (tmp_path / "run" / "plot.png").exists()


def test_a_run_that_goes_on_is_one_run_with_every_epoch_once(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    logger = OmegaConf.create({"kind": "wandb", "project": "test"})
    for epochs in (2, 3):
        with open_logger(logger, tmp_path, {}, goes_on=True) as loggers:
            for epoch in range(1, epochs + 1):
                loggers.log({"epoch": epoch, "loss": 1 / epoch})
            loggers.summary("metrics", {"validation/MAPE %": 5.0})
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    assert (tmp_path / "wandb_id.txt").read_text().strip() in run.name
    assert [(step["epoch"], step["loss"]) for step in history(run)] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert pd.read_csv(tmp_path / "epochs.csv")["epoch"].tolist() == [1, 2, 3]


def test_a_run_that_fails_leaves_what_was_logged_before(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    logger = OmegaConf.create({"kind": "wandb", "project": "test"})
    with open_logger(logger, tmp_path, {}, goes_on=True) as loggers:
        loggers.log({"epoch": 1, "loss": 1.0})
    with pytest.raises(ValueError), open_logger(logger, tmp_path, {}, goes_on=True):
        raise ValueError("a checkpoint of another run")
    steps = [history(run) for run in (tmp_path / "wandb").glob("offline-run-*")]
    assert sorted(len(run) for run in steps) == [0, 1]


def test_other_jobs_are_runs_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    for _ in range(2):
        open_logger(OmegaConf.create({"kind": "wandb", "project": "test"}), tmp_path, {}, "evaluate").close()
    assert len({run.name.split("-")[-1] for run in (tmp_path / "wandb").glob("offline-run-*")}) == 2
    assert not (tmp_path / "wandb_id.txt").exists() and (tmp_path / "evaluate_config.json").exists()


def test_an_unknown_kind_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="write wandb, csv or none"):
        open_logger(OmegaConf.create({"kind": "print"}), tmp_path, {})
