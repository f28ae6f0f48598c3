"""Layers whose gradients want care: recurrent ones, complex ones."""

import pytest
import torch
from graph_queries import Wrapped, cost, named, only
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from gnnperf.capture import capture
from gnnperf.graph import ComputationGraph

STEPS = 5 * 3
SEQUENCE = torch.randn(5, 3, 8)


def step(layer: nn.Module, before: nn.Module | None = None) -> ComputationGraph:
    module = Wrapped(lambda self, x: self.layer(self.before(x))[0], layer=layer, before=before or nn.Identity())
    return capture(module, SEQUENCE, mode="training", loss=torch.sum)


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


@pytest.mark.parametrize(("op", "gates"), [("lstm", 4), ("gru", 3), ("rnn", 1)])
def test_a_recurrent_layer_pays_for_the_gradients_that_are_wanted(op: str, gates: int) -> None:
    cls = getattr(nn, op.upper())
    of_data, of_state, work = gates * 6 * 8, gates * 6 * 6, 20 * gates * 6
    first, later = step(cls(8, 6)), step(cls(8, 6), nn.Linear(8, 8))
    assert cost(first, f"{op}_backward").flops == STEPS * (2 * of_state + 2 * (of_data + of_state) + work)
    assert cost(later, f"{op}_backward").flops == STEPS * (4 * (of_data + of_state) + work)
    between = step(frozen(cls(8, 6)), nn.Linear(8, 8))
    assert cost(between, f"{op}_backward").flops == STEPS * (2 * (of_data + of_state) + work)


def test_a_frozen_lstm_by_hand() -> None:
    assert cost(step(frozen(nn.LSTM(8, 6)), nn.Linear(8, 8)), "lstm_backward").flops == 17_280


@pytest.mark.parametrize("names", [["weight_hh_l0"], ["weight_ih_l0", "weight_hh_l0"]])
@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN])
def test_computed_weights_cost_what_parameters_cost(cls: type[nn.Module], names: list[str]) -> None:
    computed = cls(8, 6)
    for name in names:
        weight_norm(computed, name)
    op = cls.__name__.lower()
    graph, plain = step(computed, nn.Linear(8, 8)), step(cls(8, 6), nn.Linear(8, 8))
    for node in (op, f"{op}_backward"):
        assert cost(graph, node).flops == cost(plain, node).flops


def test_directions_and_projections_by_hand() -> None:
    graph = step(nn.LSTM(8, 6, 2, bidirectional=True, proj_size=3))
    first, second = 24 * 8 + 24 * 3 + 3 * 6, 24 * (2 * 3) + 24 * 3 + 3 * 6  # of one direction, data, state, projection
    products = 2 * 2 * (first + second) - 2 * (24 * 8)
    gates = 2 * 2 * (24 + 24 + 3) // 2
    assert cost(graph, "lstm_backward").flops == STEPS * (2 * products + 20 * gates)


def test_a_gradient_for_the_initial_state_alone_keeps_what_the_backward_pass_reads() -> None:
    layer = frozen(nn.GRU(8, 6))
    module = Wrapped(
        lambda self, x: self.layer(x, self.initial(x[0]).unsqueeze(0))[0], layer=layer, initial=nn.Linear(8, 6)
    )
    graph = capture(module, SEQUENCE, mode="training", loss=torch.sum)
    assert only(graph, "gru_backward").attributes["gradients"] == [1]
    assert cost(graph, "gru_backward").flops == STEPS * (2 * 18 * 6 + 20 * 18)


def test_gradients_flow_through_complex_layers() -> None:
    module = nn.Sequential(nn.Linear(4, 4, dtype=torch.complex64), nn.Linear(4, 4, dtype=torch.complex64))
    x = torch.randn(2, 4, dtype=torch.complex64)
    graph = capture(module, x, mode="training", loss=lambda out: out.abs().sum())
    assert [node.attributes["gradients"] for node in named(graph, "linear_backward")] == [[0, 1, 2], [1, 2]]
