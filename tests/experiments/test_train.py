import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import experiments.judge
import experiments.train
from experiments.evaluate import evaluate
from experiments.train import train
from gnnperf.weights import load_weights

ROOT = Path(__file__).parents[2]


def test_a_run_leaves_weights_numbers_tables_and_plots(configure, tmp_path, capsys):
    config = configure("train", logger="csv")
    metrics = train(config)
    folder = tmp_path / "train"
    assert json.loads((folder / "metrics.json").read_text()) == metrics
    assert metrics["rows"] == {"train": 12, "validation": 3, "test": 9, "left_out": 0}
    assert metrics["epoch"] == 2
    assert metrics["skipped"]["no measurement"] == 3
    loaded = load_weights(folder / "weights")
    assert loaded.training_devices == {"i9-10940x", "rtx-3090", "rtx-4090"}
    assert "attention" in loaded.training_ops and "conv" in loaded.training_ops
    assert loaded.facts["training_split"] == metrics["split"]
    assert loaded.model.config.width == 16
    (low, high), (wide_low, wide_high) = loaded.interval_log_ratio(False), loaded.interval_log_ratio(True)
    assert low < high and wide_high - wide_low == pytest.approx(2.5 * (high - low))
    epochs = pd.read_csv(folder / "epochs.csv")
    assert epochs["epoch"].tolist() == [1, 2, 3, 4] and epochs["model"].tolist() == [1, 1, 2, 2]
    assert len(loaded.model.members) == 2 and {"train/loss", "learning_rate"} <= set(epochs)
    assert {path.name for path in folder.iterdir()} == {
        "checkpoint-0.pt",
        "checkpoint-1.pt",
        "epochs.csv",
        "metrics.json",
        "train_config.json",
        "validation.csv",
        "validation_by_device.csv",
        "validation_by_dominant_op_class.csv",
        "validation_by_family.csv",
        "validation_by_file.csv",
        "validation_predicted_by_op_class.csv",
        "validation_scatter.png",
        "weights",
    }
    assert "validation rows by device" in capsys.readouterr().out


def test_nothing_of_the_machine_is_in_the_weights(configure, tmp_path):
    train(configure("train"))
    text = (tmp_path / "train" / "weights" / "model.json").read_text()
    assert str(tmp_path.parent) not in text and "clone" not in text


def test_test_rows_are_not_looked_at(configure, tmp_path, monkeypatch):
    looked_at = []
    for module, name in (
        (experiments.train, "predict_ms"),
        (experiments.judge, "predict_ms"),
        (experiments.judge, "op_class_times"),
    ):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda m, d, p, real=real: looked_at.extend(p) or real(m, d, p))
    split = {}
    make_split = experiments.train.make_split
    monkeypatch.setattr(experiments.train, "make_split", lambda c, s: split.setdefault("it", make_split(c, s)))
    train(configure("train"))
    assert split["it"].test and looked_at and not set(looked_at) & set(split["it"].test)


def test_networks_and_kernels_are_learned_together(configure, kernels, tmp_path):
    absent = [f"data.clones.{name}=null" for name in ("torchvision", "justus", "help")]
    config = configure("train", *absent, data="everything", **{"data.clones.neusight": kernels}, logger="csv")
    metrics = train(config)
    # six of eight networks' families and all kernels
    assert metrics["rows"] == {"train": 12 + 32, "validation": 3, "test": 9, "left_out": 0}
    assert metrics["train/layer_loss"] > 0
    assert {"train/loss", "train/layer_loss"} <= set(pd.read_csv(tmp_path / "train" / "epochs.csv"))
    loaded = load_weights(tmp_path / "train" / "weights")
    assert loaded.training_devices == {"i9-10940x", "rtx-3090", "rtx-4090", "p4", "l4"}
    assert loaded.facts["experiment"]["data"]["sources"] == ["timm", "neusight"]


def test_kernels_alone_are_learned_and_tested_on_a_gpu_left_out(configure, kernels, tmp_path):
    absent = [f"data.clones.{name}=null" for name in ("timm", "torchvision", "justus", "help")]
    chosen = {"data": "everything", "data.clones.neusight": kernels, "split": "unseen_device_kernels"}
    quick = {"trainer.layer_steps": "2", "split.validation.share": "0"}
    metrics = train(configure("train", *absent, **chosen, **quick))
    assert metrics["rows"] == {"train": 12, "validation": 0, "test": 8, "left_out": 12}
    weights = str(tmp_path / "train" / "weights")
    table = evaluate(configure("evaluate", *absent, **chosen, weights=weights, **{"split.validation.share": "0"}))
    assert table["rows"].tolist() == [8] * 5
    groups = [pd.read_csv(tmp_path / "evaluate" / f"test_of_unseen_{name}.csv") for name in ("devices", "shapes")]
    assert [group["rows"].tolist() for group in groups] == [[4] * 5] * 2


def test_a_run_goes_on_where_it_stopped(configure, tmp_path, monkeypatch, capsys):
    def interrupted(self, numbers):
        if numbers["epoch"] == 2:
            raise KeyboardInterrupt
        real(self, numbers)

    real = experiments.train.Loggers.log
    monkeypatch.setattr(experiments.train.Loggers, "log", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(configure("train", logger="csv"))
    monkeypatch.undo()
    metrics = train(configure("train", logger="csv"))
    assert "going on after epoch 1" in capsys.readouterr().out
    assert metrics["epoch"] == 2
    assert pd.read_csv(tmp_path / "train" / "epochs.csv")["epoch"].tolist() == [1, 2, 3, 4]
    again = train(configure("train", logger="csv"))  # finished: nothing is trained again
    assert again["validation/MAPE %"] == metrics["validation/MAPE %"]


def test_intervals_can_be_taken_over(configure, tmp_path, capsys):
    train(configure("train"))
    honest = load_weights(tmp_path / "train" / "weights")
    train(
        configure("train", "split=all", folder=str(tmp_path / "ship"), intervals_from=str(tmp_path / "train/weights"))
    )
    shipped = load_weights(tmp_path / "ship" / "weights")
    assert shipped.interval_log_ratio(False) == honest.interval_log_ratio(False)
    assert "too narrow" not in capsys.readouterr().out
    train(configure("train", "split=all", folder=str(tmp_path / "careless")))
    assert "the intervals are too narrow" in capsys.readouterr().out


@pytest.mark.parametrize("main", ["train", "evaluate"])
def test_a_users_mistake_is_one_line_and_exit_code_2(main, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "GNNPERF_TIMM_RESULTS"}
    command = [sys.executable, "-m", f"experiments.{main}", f"hydra.run.dir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: no measurements: give data.clones.timm=FOLDER")
