"""What is given to a module and what it gives back, in forms other than plain tensors."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from graph_queries import Wrapped, named, only, ops
from torch import nn

from gnnperf.capture import capture

X = torch.randn(4, 8)


@dataclass(frozen=True)
class Inner:
    logits: torch.Tensor
    name: str = "inner"


@dataclass
class Outer:
    inner: Inner
    others: list[torch.Tensor] = field(default_factory=list)


def test_tensors_in_dataclasses_are_outputs() -> None:
    module = Wrapped(lambda self, x: Outer(Inner(self.a(x)), [x]), a=nn.Linear(8, 5))
    assert [t.shape for t in capture(module, X).outputs] == [(4, 5), (4, 8)]
    assert "nll_loss" in ops(capture(module, X, mode="training"))  # the default loss sees them as well


def test_tensors_in_dataclasses_are_inputs() -> None:
    given = Outer(Inner(X), [X])
    module = Wrapped(lambda self, given: self.a(given.inner.logits) + self.a(given.others[0]), a=nn.Linear(8, 5))
    graph = capture(module, (given,))
    assert [(t.shape, t.kind) for t in graph.inputs] == [((4, 8), "input")]
    assert given.inner.logits is X and ops(graph) == ["linear", "linear", "add"]


def test_a_tensor_given_twice_stays_one() -> None:
    x = torch.randn(2, 3, 8)
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    same = capture(attention, (x, x, x))
    assert [n.outputs[0].shape[-1] for n in named(same, "linear")] == [24, 8]  # one packed projection, and the last
    assert len(same.inputs) == 1
    apart = capture(attention, (x, x.clone(), x.clone()))
    assert [n.outputs[0].shape[-1] for n in named(apart, "linear")] == [8, 8, 8, 8]
    assert len(apart.inputs) == 3


def test_an_input_that_requires_a_gradient_gets_one() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    for precision in ("fp32", "fp16"):
        graph = capture(nn.Linear(8, 5), x, mode="training", precision=precision)
        assert only(graph, "linear_backward").attributes["gradients"] == [0, 1, 2]
    without_parameters = capture(nn.Tanh(), x, mode="training", loss=torch.sum)
    assert "tanh_backward" in ops(without_parameters)
    assert x.grad is None
    with pytest.raises(ValueError, match="nothing to train"):
        capture(nn.Tanh(), X, mode="training", loss=torch.sum)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (X.to_sparse, r"sparse inputs \(sparse_coo\) are not captured: give a dense tensor, x.to_dense\(\)"),
        (X.to_sparse_csr, r"sparse inputs \(sparse_csr\) are not captured"),
        (lambda: torch.nested.nested_tensor([X, X[:2]]), "nested inputs are not captured: give a padded tensor"),
        (lambda: torch.nested.nested_tensor([X, X[:2]], layout=torch.jagged), "nested inputs are not captured"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_no_plain_array_is_refused(make: Callable[[], torch.Tensor], message: str) -> None:
    x = make()
    with pytest.raises(ValueError, match=message) as raised:
        capture(nn.Linear(8, 5), x)
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match=message):
        capture(nn.Linear(8, 5), {"input": [X, x]})


@pytest.mark.parametrize("table", [nn.Embedding(100, 8, sparse=True), nn.EmbeddingBag(100, 8, sparse=True, mode="sum")])
def test_sparse_gradients_are_refused_with_the_remedy(table: nn.Module) -> None:
    module, ids = nn.Sequential(table, nn.Flatten(), nn.LazyLinear(5)), torch.zeros(4, 3, dtype=torch.int64)
    module(ids)
    assert ops(capture(module, ids))  # inference makes none
    with pytest.raises(ValueError, match=r"sparse tensors are not captured: .* capture it with sparse=False") as raised:
        capture(module, ids, mode="training")
    assert "\n" not in str(raised.value)


def test_a_module_that_makes_sparse_tensors_is_refused() -> None:
    with pytest.raises(ValueError, match="sparse tensors are not captured"):
        capture(Wrapped(lambda self, x: x.to_sparse()), X)


def test_hooks_of_parameters_are_told() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 5))
    module[0].weight.register_hook(lambda gradient: gradient * 2)
    module[1].bias.register_post_accumulate_grad_hook(lambda parameter: None)
    graph = capture(module, X, mode="training")
    assert graph.warnings == ("hooks of parameters are not captured: 0.weight, 1.bias",)
    assert capture(module, X).warnings == ()
    assert graph.rescale(7).content_hash == capture(module, torch.randn(7, 8), mode="training").content_hash


def test_a_module_that_draws_while_it_is_copied_leaves_the_random_state() -> None:
    class Drawing(nn.Linear):
        def __deepcopy__(self, memo: dict[int, object]) -> nn.Module:
            torch.rand(3)
            return nn.Linear(8, 5)

    module = Drawing(8, 5)
    state = torch.get_rng_state()
    capture(module, X)
    assert torch.equal(torch.get_rng_state(), state)
