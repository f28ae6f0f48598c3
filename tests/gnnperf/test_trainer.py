import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnperf.batches import predict_ms
from gnnperf.features import NODE_FEATURES, SIZE_FEATURES
from gnnperf.splits import Split
from gnnperf.trainer import Trainer
from gnnperf.training import TrainingConfig, model_config

CONFIG = model_config(width=16, layers=2, embedding=4)
TRAINING = TrainingConfig(epochs=6, graphs_per_step=4, averaging=0.9, learning_rate=1e-2)
SPLIT = Split(tuple(p for p in range(54) if p % 6 < 3), tuple(p for p in range(54) if p % 6 >= 3), ())


def _interrupted(trainer: Trainer, epochs: int) -> list[dict[str, float]]:
    """Run until ``epochs`` are done, as if the process had been killed while it worked on the next."""
    numbers: list[dict[str, float]] = []

    def report(values: dict[str, float]) -> None:
        if values["epoch"] > epochs:
            raise KeyboardInterrupt
        numbers.append(dict(values))

    with pytest.raises(KeyboardInterrupt):
        trainer.run(report)
    return numbers


def _learned(numbers: dict[str, float]) -> dict[str, float]:
    """What does not depend on the speed of the machine."""
    return {key: value for key, value in numbers.items() if key != "train/seconds" and not key.endswith("_per_s")}


def test_the_loss_falls_and_held_out_rows_are_predicted(toy_dataset):
    numbers: list[dict[str, float]] = []
    trainer = Trainer(toy_dataset, SPLIT, CONFIG, replace(TRAINING, epochs=25), None)
    model = trainer.run(lambda values: numbers.append(dict(values)))
    assert numbers[0]["train/loss"] > 0.5 > 0.2 > numbers[-1]["train/loss"]
    assert [n["epoch"] for n in numbers] == list(range(1, 26))
    assert [n["epoch"] for n in numbers if "validation/mape_percent" in n] == [5, 10, 15, 20, 25]
    measured = np.array([toy_dataset.samples[p].record.time_ms for p in SPLIT.validation])
    error = 100 * np.abs(predict_ms(model, toy_dataset, SPLIT.validation) / measured - 1).mean()
    assert error < 25  # the roofline is 50 to 67 % off
    assert error == pytest.approx(numbers[-1]["validation/mape_percent"])


def test_a_resumed_run_equals_the_uninterrupted_one(toy_dataset, tmp_path):
    whole: list[dict[str, float]] = []
    trainer = Trainer(toy_dataset, SPLIT, CONFIG, TRAINING, None)
    trainer.run(lambda values: whole.append(dict(values)))
    path = tmp_path / "run" / "checkpoint.pt"
    parts = _interrupted(Trainer(toy_dataset, SPLIT, CONFIG, TRAINING, path), 2)
    parts += _interrupted(Trainer(toy_dataset, SPLIT, CONFIG, TRAINING, path), 4)
    resumed = Trainer(toy_dataset, SPLIT, CONFIG, TRAINING, path)
    assert resumed.epoch == 4
    torch.rand(5)  # whatever happens in between
    resumed = Trainer(toy_dataset, SPLIT, CONFIG, TRAINING, path)
    resumed.run(lambda values: parts.append(dict(values)))
    assert resumed.history == parts
    assert [_learned(n) for n in parts] == [_learned(n) for n in whole]
    for name, tensor in trainer.result.state_dict().items():
        assert torch.equal(tensor, resumed.result.state_dict()[name]), name
    assert not list(tmp_path.rglob("*.partial"))


def test_a_finished_run_is_not_trained_again(toy_dataset, tmp_path):
    path = tmp_path / "checkpoint.pt"
    short = replace(TRAINING, epochs=1)
    first = Trainer(toy_dataset, SPLIT, CONFIG, short, path).run(lambda values: None)
    second = Trainer(toy_dataset, SPLIT, CONFIG, short, path).run(lambda values: pytest.fail("trained again"))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize(
    "other",
    [
        {"training": replace(TRAINING, epochs=1, learning_rate=1e-3)},
        {"config": model_config(width=8, layers=2, embedding=4)},
        {"split": Split(SPLIT.train[:-1], SPLIT.validation, ())},
    ],
)
def test_a_checkpoint_of_another_run_is_refused(toy_dataset, tmp_path, other):
    path = tmp_path / "checkpoint.pt"
    run = {"split": SPLIT, "config": CONFIG, "training": replace(TRAINING, epochs=1)}
    Trainer(toy_dataset, **run, checkpoint=path).run(lambda values: None)
    with pytest.raises(ValueError, match="belongs to another run"):
        Trainer(toy_dataset, **{**run, **other}, checkpoint=path)


def test_the_result_averages_the_weights(toy_dataset):
    trainer = Trainer(
        toy_dataset, SPLIT, CONFIG, replace(TRAINING, epochs=1, graphs_per_step=100, averaging=0.75), None
    )
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.run(lambda values: None)  # one step: the average starts from the weights after it
    first = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    for name, average in trainer.result.named_parameters():
        torch.testing.assert_close(average, first[name])
    assert any((before[name] != first[name]).any() for name in before)
    trainer._train_epoch()
    for name, average in trainer.result.named_parameters():
        expected = 0.75 * first[name] + 0.25 * dict(trainer.model.named_parameters())[name]
        torch.testing.assert_close(average, expected.detach())


def test_the_seed_decides(toy_dataset):
    short = replace(TRAINING, epochs=1)
    one, two, other = (
        predict_ms(Trainer(toy_dataset, SPLIT, CONFIG, t, None).run(lambda values: None), toy_dataset, SPLIT.validation)
        for t in (short, short, replace(short, seed=1))
    )
    assert (one == two).all() and (one != other).any()


def test_noise_is_put_on_sizes_alone(toy_dataset, monkeypatch):
    trainer = Trainer(toy_dataset, SPLIT, CONFIG, replace(TRAINING, graphs_per_step=100, size_noise=0.5), None)
    seen = []
    real = trainer.model.forward
    monkeypatch.setattr(trainer.model, "forward", lambda batch, rows: seen.append(batch.x) or real(batch, rows))
    order = trainer.streams.parts[0].batches.order(100, random.Random(trainer.training.seed * 100_003))
    trainer._train_epoch()
    change = seen[0] - next(iter(order))[0].x
    sizes = torch.tensor([name in SIZE_FEATURES for name in NODE_FEATURES])
    assert (change[:, ~sizes] == 0).all() and change[:, sizes].std().item() == pytest.approx(0.5, rel=0.2)
