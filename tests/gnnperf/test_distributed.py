import json
import os
import pickle
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from gnnperf.distributed import Ranks, start_ranks
from gnnperf.splits import Split
from gnnperf.trainer import Trainer
from gnnperf.training import TrainingConfig, model_config

SCRIPT = Path(__file__).with_name("train_toy.py")
SIZES = {"width": 16, "layers": 2, "embedding": 4, "dropout": 0.0}
# The last of the minibatches has a single graph: one of two ranks is left with nothing.
SPLIT = Split(tuple(p for p in range(54) if p % 6 < 3), tuple(p for p in range(54) if p % 6 >= 3), ())
TRAINING = TrainingConfig(epochs=2, graphs_per_step=4, averaging=0.9, learning_rate=1e-2)


def torchrun(processes: int, *command: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*start, f"--nproc-per-node={processes}", *command], capture_output=True, text=True, timeout=600
    )


def train_together(toy_dataset, folder: Path, **more) -> subprocess.CompletedProcess[str]:
    """Two ranks train; each leaves ``result`` with its rank."""
    (folder / "dataset.pkl").write_bytes(pickle.dumps(toy_dataset))
    asked = {
        "dataset": str(folder / "dataset.pkl"),
        "train": SPLIT.train,
        "validation": SPLIT.validation,
        "model": SIZES,
        "training": asdict(TRAINING),
        "checkpoint": str(folder / "checkpoint.pt"),
        "result": str(folder / "result"),
        **more,
    }
    return torchrun(2, str(SCRIPT), json.dumps(asked))


@pytest.fixture(scope="module")
def together(toy_dataset, tmp_path_factory) -> list[dict]:
    """What each of two ranks has in the end."""
    folder = tmp_path_factory.mktemp("ranks")
    done = train_together(toy_dataset, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["epoch", "1", "epoch", "2"]  # the first alone reports
    assert sorted(p.name for p in folder.iterdir()) == ["checkpoint.pt", "dataset.pkl", "result.0", "result.1"]
    return [torch.load(folder / f"result.{rank}", weights_only=True) for rank in (0, 1)]


def test_two_processes_train_the_model_that_one_trains(toy_dataset, together):
    assert len(SPLIT.train) // 3 % TRAINING.graphs_per_step == 1
    alone = Trainer(toy_dataset, SPLIT, model_config(**SIZES), TRAINING, None)
    before = {name: tensor.clone() for name, tensor in alone.model.state_dict().items()}
    alone.run(lambda numbers: None)
    for name, tensor in alone.result.state_dict().items():
        torch.testing.assert_close(together[0]["weights"][name], tensor, rtol=1e-5, atol=1e-5)
        assert torch.equal(together[0]["weights"][name], together[1]["weights"][name]), name
    moved = [(alone.result.state_dict()[name] - tensor).abs().max() for name, tensor in before.items()]
    assert max(moved) > 1e-2
    for key in ("train/loss", "train/prior", "learning_rate"):
        ours = [epoch[key] for epoch in together[0]["history"]]
        assert ours == pytest.approx([epoch[key] for epoch in alone.history], rel=1e-4)
    last = "validation/mape_percent"
    assert together[0]["history"][-1][last] == pytest.approx(alone.history[-1][last], rel=1e-4)


@pytest.mark.parametrize("first", [0, 54])
def test_layers_are_shared_as_networks_are(joint_dataset, tmp_path, first):
    """Beside the networks, and alone; a last minibatch of one graph leaves a rank with nothing."""
    split = Split(tuple(range(first, len(joint_dataset.samples))), (), ())
    training = replace(TRAINING, graphs_per_step=17, layers_per_step=15, layer_steps=3)
    done = train_together(joint_dataset, tmp_path, train=split.train, validation=(), training=asdict(training))
    assert done.returncode == 0, done.stderr
    together = [torch.load(tmp_path / f"result.{rank}", weights_only=True) for rank in (0, 1)]
    alone = Trainer(joint_dataset, split, model_config(**SIZES), training, None)
    alone.run(lambda numbers: None)
    for name, tensor in alone.result.state_dict().items():
        torch.testing.assert_close(together[0]["weights"][name], tensor, rtol=1e-5, atol=1e-5)
        assert torch.equal(together[0]["weights"][name], together[1]["weights"][name]), name
    for key in ("train/loss", *(["train/layer_loss"] if first == 0 else [])):
        ours = [epoch[key] for epoch in together[0]["history"]]
        assert ours == pytest.approx([epoch[key] for epoch in alone.history], rel=1e-4)


@pytest.mark.slow
def test_two_killed_processes_go_on_as_if_nothing_had_been(toy_dataset, together, tmp_path):
    killed = train_together(toy_dataset, tmp_path, kill={"step": 5})
    assert killed.returncode != 0 and "SIGKILL" in killed.stderr
    assert not (tmp_path / "result.0").exists()
    resumed = train_together(toy_dataset, tmp_path)
    assert resumed.returncode == 0 and resumed.stdout.split() == ["epoch", "2"]
    for rank in (0, 1):
        result = torch.load(tmp_path / f"result.{rank}", weights_only=True)
        assert all(torch.equal(result["weights"][name], t) for name, t in together[rank]["weights"].items())


def test_ranks_draw_the_same_noise_and_drop_different_states(toy_dataset, monkeypatch):
    noise: dict[int, list[torch.Tensor]] = {0: [], 1: []}
    dropped: dict[int, list[torch.Tensor]] = {0: [], 1: []}
    for rank in (0, 1):
        trainer = Trainer(toy_dataset, SPLIT, model_config(**SIZES), TRAINING, None)
        monkeypatch.setattr(trainer, "ranks", Ranks(rank, 2))
        batches = trainer.streams.parts[0].batches
        for chosen in batches.plan(4, None):
            with trainer._dropout_of_this_rank():
                dropped[rank].append(torch.rand(4 + rank))
            noise[rank].append(trainer._noise(batches, chosen, slice(0, len(chosen))))
            trainer._step([chosen])
    assert len(noise[0]) == 3 and all(torch.equal(*pair) for pair in zip(noise[0], noise[1], strict=True))
    assert not any(torch.equal(one, other[:4]) for one, other in zip(dropped[0], dropped[1], strict=True))
    assert not torch.equal(dropped[0][0], dropped[0][1])


def test_work_is_divided_whole_and_evenly():
    costs = [5.0, 1.0, 1.0, 1.0, 4.0, 4.0, 2.0]
    for size in (1, 2, 3, 20):
        shares = [Ranks(rank, size).share(costs) for rank in range(size)]
        assert [cost for share in shares for cost in costs[share]] == costs
    assert [sum(costs[Ranks(rank, 2).share(costs)]) for rank in (0, 1)] == [8, 10]
    assert [len(costs[Ranks(rank, 2).share([3.0])]) for rank in (0, 1)] in ([1, 0], [0, 1])


def test_one_process_needs_no_others():
    ranks = start_ranks()
    assert ranks == Ranks() and ranks.first
    ranks.check_equal(1, "a number")
    assert ranks.sum([1, 2]) == [1, 2] and ranks.from_first(lambda: 3) == ranks.on_first(lambda: 3) == 3
    module = torch.nn.Linear(1, 1)
    assert ranks.together(module) is module


def test_unknown_accelerators_and_missing_gpus_are_errors(monkeypatch):
    with pytest.raises(ValueError, match="write cpu or cuda"):
        start_ranks("tpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setitem(os.environ, "LOCAL_RANK", "1")
    with pytest.raises(ValueError, match="process 1 has no GPU: torch sees 1; take cpu"):
        start_ranks("cuda")
