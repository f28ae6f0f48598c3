import pytest
import torch
from graph_queries import Wrapped, named, ops, shapes

from gnnperf.capture import capture


def graph_of(function, *args: torch.Tensor):
    return capture(Wrapped(lambda self, *args: function(*args)), args)


X = torch.randn(4, 6)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: (x > 0).nonzero(), (24, 2)),
        (lambda x: x[x > 0], (24,)),
        (lambda x: x.masked_select(x > 0), (24,)),
        (lambda x: torch.unique(x), (24,)),
        (lambda x: torch.where(x > 0)[0], (24,)),
        (lambda x: x[x[:, 0] > 0], (4, 6)),
    ],
)
def test_sizes_that_depend_on_data_are_bounded_and_said(function, shape: tuple[int, ...]) -> None:
    graph = graph_of(function, X)
    assert [t.shape for t in graph.outputs] == [shape]
    (warning,) = graph.warnings
    assert "depend" in warning and "bounded by all" in warning and "\n" not in warning


def test_masks_that_the_module_makes_itself_are_counted() -> None:
    graph = graph_of(lambda x: x.sum() + (torch.arange(5) > 1).nonzero().sum(), X)
    (node,) = named(graph, "nonzero")
    assert shapes(node) == ([(5,)], [(3, 1)])
    assert graph.warnings == ()


def test_assigning_by_mask() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        y[y > 3] = 0.0
        return y

    assert ops(graph_of(run, X)) == ["exp", "gt", "fill", "scatter"]


@pytest.mark.parametrize("top", [1, 2])
def test_tokens_are_shared_evenly_among_experts_however_they_are_found(top: int) -> None:
    tokens, experts = 8, 4
    gate = torch.randn(tokens, experts)

    def by_equality(gate: torch.Tensor) -> torch.Tensor:
        return torch.where(gate.topk(top, dim=-1)[1] == 2)[0]

    def by_one_hot(gate: torch.Tensor) -> torch.Tensor:
        mask = torch.nn.functional.one_hot(gate.topk(top, dim=-1)[1], experts).permute(2, 1, 0)
        return torch.where(mask[2])[1]

    def by_flat_mask(gate: torch.Tensor) -> torch.Tensor:
        return (gate.topk(top, dim=-1)[1].view(-1) == 2).nonzero()[:, 0]

    for function in (by_equality, by_one_hot, by_flat_mask):
        graph = graph_of(function, gate)
        assert [t.shape for t in graph.outputs] == [(tokens * top // experts,)], function.__name__
        assert "balanced over 4 experts" in graph.warnings[0]


def test_bincount_of_experts_has_one_count_each() -> None:
    graph = graph_of(lambda gate: gate.argmax(-1).bincount(), torch.randn(8, 4))
    assert [t.shape for t in graph.outputs] == [(4,)]
    with pytest.raises(ValueError, match="give it minlength="):
        graph_of(lambda x: x.bincount(), torch.zeros(8, dtype=torch.int64))
    with pytest.raises(ValueError, match="give it output_size="):
        graph_of(lambda x: x.repeat_interleave(x), torch.ones(8, dtype=torch.int64))


def test_packed_sequence_of_lengths_that_are_an_input() -> None:
    def run(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True).data

    graph = graph_of(run, torch.randn(3, 5, 4), torch.tensor([5, 3, 2]))
    assert [t.shape for t in graph.outputs] == [(15, 4)]
    assert "bounded by 5 steps" in graph.warnings[0]
