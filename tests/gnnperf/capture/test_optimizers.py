"""Optimizers of the user: taken over whatever they are, and left as they were."""

import copy
from collections.abc import Callable

import pytest
import torch
from graph_queries import only
from torch import nn, optim

from gnnperf.capture import capture
from gnnperf.cost import node_cost
from gnnperf.graph import ComputationGraph

X = torch.randn(4, 32)


def step(module: nn.Module, optimizer: object, **options: object) -> ComputationGraph:
    return capture(module, X, mode="training", optimizer=optimizer, **options)  # type: ignore[arg-type]


CLASSES = "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax NAdam RAdam RMSprop Rprop SGD".split()


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("used", [False, True])
def test_an_optimizer_and_its_class_give_the_same_graph(name: str, used: bool) -> None:
    module, cls = nn.Linear(32, 64), getattr(optim, name)
    optimizer = cls(module.parameters())
    if used:
        module(X).sum().backward()
        optimizer.step()
    before = copy.deepcopy((module.state_dict(), optimizer.state_dict(), optimizer.param_groups))
    for precision in ("fp32", "fp16"):
        given, made = (step(module, o, precision=precision) for o in (optimizer, cls))
        assert given == made
    after = (module.state_dict(), optimizer.state_dict(), optimizer.param_groups)
    torch.testing.assert_close(after, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("make", "plain"),
    [
        (lambda p: optim.Adam(p, lr=torch.tensor(0.1), capturable=True), "adam"),
        (lambda p: optim.AdamW(p, fused=True), "adamw"),
        (lambda p: optim.AdamW(p, foreach=True), "adamw"),
        (lambda p: optim.Adam(p, differentiable=True), "adam"),
        (lambda p: optim.SGD(p, lr=torch.tensor(0.1), momentum=0.9), "momentum"),
    ],
)
def test_which_kernels_the_user_asks_for_does_not_matter(make: Callable[..., optim.Optimizer], plain: str) -> None:
    module = nn.Linear(32, 64)
    assert step(module, make(list(module.parameters()))) == step(module, plain)


def test_amsgrad_keeps_one_more_state() -> None:
    module = nn.Linear(32, 64)
    graph = step(module, optim.Adam(module.parameters(), amsgrad=True))
    assert node_cost(only(graph, "optimizer_step")).bytes == (28 + 8) * (32 * 64 + 64)


def test_adafactor_keeps_a_row_and_a_column_of_every_matrix() -> None:
    graph = step(nn.Linear(32, 64), optim.Adafactor)
    state = 64 + 32 + 64  # of the weight (64, 32), and all of the bias
    assert graph.optimizer_state_bytes == 4 * state
    assert node_cost(only(graph, "optimizer_step")).bytes == 4 * (3 * (32 * 64 + 64) + 2 * state)


def test_averaged_sgd_keeps_the_average_alone() -> None:
    graph = step(nn.Linear(32, 64), optim.ASGD)
    assert node_cost(only(graph, "optimizer_step")).bytes == 20 * (32 * 64 + 64)


def test_muon_takes_groups_of_matrices_alone() -> None:
    module = nn.Linear(32, 64)
    graph = step(module, optim.Muon([module.weight]))
    assert node_cost(only(graph, "optimizer_step")).bytes == 20 * 32 * 64
    with pytest.raises(ValueError, match=r"Muon cannot be made with its default hyperparameters .*; give an optimizer"):
        step(module, optim.Muon)


def test_a_scheduler_and_hooks_stay_with_the_users_optimizer() -> None:
    module, called = nn.Linear(32, 64), []
    optimizer = optim.AdamW([{"params": [module.weight], "lr": 0.1}, {"params": [module.bias]}])
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    optimizer.register_step_pre_hook(lambda *_: called.append(1))
    before = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    assert step(module, optimizer) == step(module, "adamw")
    assert (optimizer.state_dict(), scheduler.state_dict()) == before
    assert not called


class Own(optim.Optimizer):
    """An optimizer whose rate has another name and which knows more than its groups."""

    def __init__(self, params: object, rate: float) -> None:
        super().__init__(params, {"rate": rate})  # type: ignore[arg-type]
        self.scale = 2.0

    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-self.scale * group["rate"])


def test_a_class_of_the_user_is_given_as_an_optimizer() -> None:
    module = nn.Linear(32, 64)
    graph = step(module, Own(module.parameters(), rate=0.1))
    assert node_cost(only(graph, "optimizer_step")).bytes == 12 * (32 * 64 + 64)
    with pytest.raises(ValueError, match=r"Own cannot be made .*'rate'.*; give an optimizer") as raised:
        step(module, Own)
    assert "\n" not in str(raised.value)
