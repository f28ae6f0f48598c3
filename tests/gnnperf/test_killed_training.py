"""Real processes that die while they train, of which the next one goes on as if nothing had been."""

import json
import pickle
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnperf.checkpoint import read_checkpoint
from gnnperf.splits import Split
from gnnperf.trainer import Trainer
from gnnperf.training import TrainingConfig, model_config

SCRIPT = Path(__file__).with_name("train_toy.py")
SIZES = {"width": 16, "layers": 2, "embedding": 4, "dropout": 0.2}
SPLIT = Split(tuple(p for p in range(54) if p % 6 < 3), tuple(p for p in range(54) if p % 6 >= 3), ())
STEPS_AN_EPOCH = 3
TRAINING = TrainingConfig(epochs=200, graphs_per_step=4, averaging=0.9, learning_rate=1e-2)


@pytest.fixture
def start(toy_dataset, tmp_path):
    """Start a process that trains on and, if told so, dies; its checkpoint is ``checkpoint.pt`` in the folder."""
    (tmp_path / "dataset.pkl").write_bytes(pickle.dumps(toy_dataset))

    def start(**more: Any) -> subprocess.Popen[str]:
        asked = {
            "dataset": str(tmp_path / "dataset.pkl"),
            "train": SPLIT.train,
            "validation": SPLIT.validation,
            "model": SIZES,
            "training": asdict(TRAINING),
            "checkpoint": str(tmp_path / "checkpoint.pt"),
            **more,
        }
        return subprocess.Popen([sys.executable, str(SCRIPT), json.dumps(asked)], stdout=subprocess.PIPE, text=True)

    return start


def test_a_killed_training_equals_the_uninterrupted_one(toy_dataset, tmp_path, start):
    """Killed in the middle of an epoch, then in the middle of writing a checkpoint, then at any moment."""
    checkpoint = tmp_path / "checkpoint.pt"
    for kill, done in (({"step": 2 * STEPS_AN_EPOCH + 2}, 2), ({"write": 3}, 4)):
        with start(kill=kill) as process:
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert read_checkpoint(checkpoint)["epoch"] == done
    partial = checkpoint.with_suffix(".partial")
    assert 0 < partial.stat().st_size < checkpoint.stat().st_size
    with start() as process:
        assert process.stdout is not None and process.stdout.readline() == "epoch 5\n"
        time.sleep(random.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "it was through before it was killed"

    resumed = Trainer(toy_dataset, SPLIT, model_config(**SIZES), TRAINING, checkpoint)
    assert 4 <= resumed.epoch < TRAINING.epochs
    resumed.run(lambda numbers: None)
    whole = Trainer(toy_dataset, SPLIT, model_config(**SIZES), TRAINING, None)
    whole.run(lambda numbers: None)
    for name, tensor in whole.result.state_dict().items():
        assert torch.equal(tensor, resumed.result.state_dict()[name]), name
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
    assert [epoch["epoch"] for epoch in resumed.history] == list(range(1, TRAINING.epochs + 1))
    assert [epoch["train/loss"] for epoch in resumed.history] == [epoch["train/loss"] for epoch in whole.history]
    assert not partial.exists()
