import random
from dataclasses import replace

import pytest
import torch

from gnnperf.features import NODE_FEATURES
from gnnperf.model import PerformanceModel
from gnnperf.splits import Split
from gnnperf.streams import Streams
from gnnperf.trainer import Trainer
from gnnperf.training import TrainingConfig, family_weights, make_optimizer, model_config, rate_factor, roofline_prior

CONFIG = model_config(width=16, layers=2, embedding=4, dropout=0.2)
TRAINING = TrainingConfig(epochs=2, graphs_per_step=7, layers_per_step=9, layer_steps=4, averaging=0.9)
NETWORKS, LAYERS = tuple(range(54)), tuple(range(54, 87))


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def test_steps_follow_the_networks_and_layers_come_along(joint_dataset):
    streams = Streams(joint_dataset, (*NETWORKS, *LAYERS), TRAINING)
    assert streams.steps == 3 and [part.layers for part in streams.parts] == [False, True]
    plan = list(streams.plan(0))
    assert [len(networks) for networks, _ in plan] == [7, 7, 4]
    assert sorted(key for networks, _ in plan for key in networks) == list(range(18))
    assert [len(layers) for _, layers in plan] == [3, 3, 3]
    assert {key for _, layers in plan for key in layers} <= set(range(18, 29))
    assert plan == list(streams.plan(0)) != list(streams.plan(1))


def test_of_one_kind_there_is_one_stream(joint_dataset):
    networks, layers = (Streams(joint_dataset, positions, TRAINING) for positions in (NETWORKS, LAYERS))
    assert [len(chosen) for chosen in networks.plan(0)] == [1] * 3 and not networks.parts[0].layers
    assert [len(chosen) for chosen in layers.plan(0)] == [1] * 4 and layers.parts[0].layers


def test_families_are_balanced_in_each_stream(joint_dataset):
    networks, layers = Streams(joint_dataset, (*NETWORKS, *LAYERS), TRAINING).parts
    expected = family_weights(joint_dataset, NETWORKS, TRAINING.family_balance)
    assert torch.equal(networks.weights[:54], expected[:54])
    # 15 rows of linear layers in a file, and 6 of ReLU in each of three
    raw = torch.tensor([15**-0.5] * 15 + [6**-0.5] * 18)
    torch.testing.assert_close(layers.weights[54:], raw / raw.mean())
    assert (layers.share, layers.prior, networks.share, networks.prior) == (0.3, 0.0, 1.0, 0.2)


def test_without_layers_the_recipe_is_followed_to_the_bit(toy_dataset):
    """The recipe written out once more, as it was before there were layers."""
    trainer = Trainer(toy_dataset, Split(NETWORKS, (), ()), CONFIG, TRAINING, None)
    trainer.run(lambda numbers: None)
    torch.manual_seed(TRAINING.seed)
    batches = trainer.streams.parts[0].batches
    model = PerformanceModel(CONFIG).train()
    optimizer = make_optimizer(model, TRAINING)
    weights = family_weights(toy_dataset, NETWORKS, TRAINING.family_balance)
    average: dict[str, torch.Tensor] = {}
    for epoch in range(2):
        for step, (batch, rows, log_ms, positions) in enumerate(
            batches.order(TRAINING.graphs_per_step, random.Random(epoch)), start=3 * epoch
        ):
            batch.x = batch.x + trainer.size_noise * torch.randn(len(batch.x), len(NODE_FEATURES))
            times = model(batch, rows)
            errors = (times.total_ms.clamp(min=1e-6).log() - log_ms).abs()
            loss = (weights[positions] * errors).mean() + TRAINING.prior * roofline_prior(times, batch, rows)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), TRAINING.gradient_clip)
            for group in optimizer.param_groups:
                group["lr"] = TRAINING.learning_rate * rate_factor(step, 6)
            optimizer.step()
            for name, parameter in model.named_parameters():
                if name in average:
                    average[name].lerp_(parameter.detach(), 1 - TRAINING.averaging)
                else:
                    average[name] = parameter.detach().clone()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, trainer.model.state_dict()[name]), name
    for name, parameter in trainer.result.named_parameters():
        assert torch.equal(parameter, average[name]), name


def test_layers_add_their_share_of_the_mean_to_the_gradient(joint_dataset):
    """Of one step of plain descent without noise, dropout and prior, the change is that of the two gradients."""
    training = replace(
        TRAINING,
        epochs=1,
        graphs_per_step=100,
        layers_per_step=100,
        layer_weight=0.25,
        optimizer="sgd",
        weight_decay=0.0,
        learning_rate=1.0,
        prior=0.0,
        size_noise=0.0,
        gradient_clip=1e9,
    )
    config = replace(CONFIG, dropout=0.0)

    def change(positions: tuple[int, ...]) -> dict[str, torch.Tensor]:
        trainer = Trainer(joint_dataset, Split(positions, (), ()), config, training, None)
        before = _weights(trainer.model)
        trainer._step(next(iter(trainer.streams.plan(0))))
        return {name: tensor - before[name] for name, tensor in _weights(trainer.model).items()}

    both, networks, layers = change((*NETWORKS, *LAYERS)), change(NETWORKS), change(LAYERS)
    assert max(tensor.abs().max() for tensor in layers.values()) > 1e-3
    for name, tensor in both.items():  # the layers alone count a quarter, too
        torch.testing.assert_close(tensor, networks[name] + layers[name], rtol=1e-4, atol=1e-6)
    training = replace(training, layer_weight=0.5)
    for name, tensor in change(LAYERS).items():
        torch.testing.assert_close(tensor, 2 * layers[name], rtol=1e-4, atol=1e-6)


def test_both_streams_are_learned_and_a_resumed_run_equals_the_uninterrupted_one(joint_dataset, tmp_path):
    split = Split((*NETWORKS, *LAYERS), (), ())
    training = replace(TRAINING, epochs=12, learning_rate=1e-2)
    whole = Trainer(joint_dataset, split, CONFIG, training, None)
    whole.run(lambda numbers: None)
    for key in ("train/loss", "train/layer_loss"):
        assert whole.history[-1][key] < 0.7 * whole.history[0][key]

    def interrupted(numbers: dict[str, float]) -> None:
        if numbers["epoch"] == 3:
            raise KeyboardInterrupt

    path = tmp_path / "checkpoint.pt"
    with pytest.raises(KeyboardInterrupt):
        Trainer(joint_dataset, split, CONFIG, training, path).run(interrupted)
    resumed = Trainer(joint_dataset, split, CONFIG, training, path)
    assert resumed.epoch == 2
    resumed.run(lambda numbers: None)
    for name, tensor in whole.result.state_dict().items():
        assert torch.equal(tensor, resumed.result.state_dict()[name]), name


def test_layers_alone_are_trained_on(joint_dataset):
    trainer = Trainer(joint_dataset, Split(LAYERS, LAYERS, ()), CONFIG, replace(TRAINING, epochs=5), None)
    trainer.run(lambda numbers: None)
    first, *_, last = trainer.history
    assert last["train/loss"] < first["train/loss"] and "train/layer_loss" not in last
    assert trainer.scheduler.last_epoch == 5 * TRAINING.layer_steps and "validation/mape_percent" in last
