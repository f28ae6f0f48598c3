"""Real processes of the training main: several together, killed ones, sweeps, and one that has no wandb."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from wandb_file import history

from experiments.train import train

ROOT = Path(__file__).parents[2]
PYTHON = [sys.executable, "-W", "ignore"]
TIMEOUT_S = 600
# Fails if wandb is looked for at all, then runs the main with the arguments that are left.
WITHOUT_WANDB = """
import runpy
import sys
class Blocked:
    def find_spec(self, name, *_):
        assert name.partition(".")[0] != "wandb", "wandb was imported"
sys.meta_path.insert(0, Blocked())
runpy.run_module("experiments.train", run_name="__main__", alter_sys=True)
assert "wandb" not in sys.modules
"""


@pytest.fixture
def arguments(measurements):
    """Overrides for a run of a few seconds."""

    def arguments(folder: Path, **more: str) -> list[str]:
        values = {**measurements, "model.width": "16", "trainer.members": "1", "trainer.epochs": "2", **more}
        return [f"{key}={value}" for key, value in {"hydra.run.dir": str(folder), **values}.items()]

    return arguments


def _environment() -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
    return {**environment, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PYTHON, *command], cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return done


def test_two_processes_train_what_one_trains(arguments, configure, tmp_path):
    own = {"experiment": "quick", "data.networks": "null", "model.dropout": "0", "trainer.graphs_per_step": "5"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "experiments.train"]
    printed = _run(*torchrun, *arguments(tmp_path / "two", **own)).stdout
    assert printed.count("12 rows to train on") == printed.count("weights in") == 1
    metrics = train(configure("train", **own, **{"trainer.members": "1", "folder": str(tmp_path / "one")}))
    one, two = (load_file(tmp_path / run / "weights" / "model.safetensors") for run in ("one", "two"))
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-5, atol=1e-5)
    files = {path.name for path in (tmp_path / "two").iterdir()}
    assert files - {path.name for path in (tmp_path / "one").iterdir()} == {".hydra", "train.log", "epochs.csv"}
    epochs = pd.read_csv(tmp_path / "two" / "epochs.csv")
    assert epochs["epoch"].tolist() == [1, 2]
    assert epochs["train/loss"].tolist()[-1] == pytest.approx(metrics["train/loss"], rel=1e-4)


def test_a_mistake_is_said_once_whatever_the_number_of_processes(tmp_path):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "experiments.train"]
    command = [*PYTHON, *torchrun, f"hydra.run.dir={tmp_path}", "data.clones.timm=/nowhere"]
    done = subprocess.run(
        command, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode != 0 and done.stderr.startswith("error: there is no folder")
    assert done.stderr.count("error: ") == 1 and "experiments/data.py" not in done.stderr


def test_a_sweep_leaves_a_run_for_every_seed(arguments, tmp_path):
    overrides = arguments(tmp_path / "unused", **{"trainer.epochs": "1", "trainer.seed": "0,1", "logger": "csv"})
    _run("-m", "experiments.train", "--multirun", f"hydra.sweep.dir={tmp_path}/sweep", *overrides)
    runs = sorted(path.parent for path in (tmp_path / "sweep").rglob("weights"))
    assert [re.findall(r"trainer\.seed=\d", run.name) for run in runs] == [["trainer.seed=0"], ["trainer.seed=1"]]
    one, other = (load_file(run / "weights" / "model.safetensors") for run in runs)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    assert all((run / "epochs.csv").exists() and "data." not in run.name for run in runs)
    assert not (tmp_path / "unused").exists()


def test_without_a_logger_wandb_is_never_imported(arguments, tmp_path):
    _run("-c", WITHOUT_WANDB, *arguments(tmp_path / "run", logger="none"))
    assert (tmp_path / "run" / "weights").exists() and not list(tmp_path.rglob("*wandb*"))


def test_a_killed_run_goes_on_as_if_nothing_had_been(arguments, configure, tmp_path, monkeypatch):
    own = {"trainer.epochs": "60", "trainer.members": "2"}
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [*PYTHON, "-m", "experiments.train", *arguments(killed, **own)]
    with subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + TIMEOUT_S
        while not (killed / "checkpoint-0.pt").exists() and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(random.uniform(0, 1))
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "it was through before it was killed"
    monkeypatch.setenv("WANDB_MODE", "offline")
    for folder in (killed, whole):
        train(configure("train", **own, logger="wandb", folder=str(folder)))
    one, other = (load_file(folder / "weights" / "model.safetensors") for folder in (killed, whole))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    epochs, expected = (pd.read_csv(folder / "epochs.csv") for folder in (killed, whole))
    assert epochs["epoch"].tolist() == list(range(1, 121))
    assert epochs["train/loss"].tolist() == expected["train/loss"].tolist()
    (run,) = (killed / "wandb").glob("offline-run-*")
    logged = [step for step in history(run) if "train/loss" in step]
    assert [step["epoch"] for step in logged] == list(range(1, 121))
    assert [step["train/loss"] for step in logged] == expected["train/loss"].tolist()
