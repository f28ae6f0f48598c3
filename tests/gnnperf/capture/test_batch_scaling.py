import pytest
import timm
import torch
from graph_queries import Wrapped, named, ops
from torch import nn

from gnnperf.capture import capture
from gnnperf.cost import node_cost
from gnnperf.graph import ComputationGraph


def at(module: nn.Module, batch_size: int, shape: tuple[int, ...] = (3, 64, 64), precision: str = "fp32"):
    return capture(module, torch.empty(batch_size, *shape, device="meta"), precision=precision)


def assert_same(rescaled: ComputationGraph, traced: ComputationGraph) -> None:
    assert rescaled.batch_size == traced.batch_size
    for a, b in zip(rescaled.nodes, traced.nodes, strict=True):
        assert (a.name, a.op, a.attributes, a.module) == (b.name, b.op, b.attributes, b.module)
        assert [t.shape for t in (*a.inputs, *a.outputs)] == [t.shape for t in (*b.inputs, *b.outputs)], a.name
        assert node_cost(a) == node_cost(b), a.name
    assert [t.shape for t in (*rescaled.inputs, *rescaled.outputs)] == [
        t.shape for t in (*traced.inputs, *traced.outputs)
    ]
    assert rescaled.content_hash == traced.content_hash


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet18", 64),
        ("test_vit", 160),
        ("efficientnet_cc_b0_4e", 64),  # weights mixed for every sample, groups that grow with the batch
        ("mobilenetv3_small_050", 64),
        ("test_nfnet", 64),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_rescaled_graphs_equal_traces(name: str, size: int, precision: str) -> None:
    module, shape = timm.create_model(name), (3, size, size)
    graph = at(module, 4, shape, precision)
    assert graph.rescale_error == "" and graph.smallest_batch_size == 1
    for batch_size in (1, 7, 32):
        assert_same(graph.rescale(batch_size), at(module, batch_size, shape, precision))
    assert_same(at(module, 1, shape, precision).rescale(4), graph)
    assert_same(graph.rescale(9).rescale(4), graph)


def test_a_window_transformer_copies_from_batch_2_on() -> None:
    module = timm.create_model("swin_tiny_patch4_window7_224", img_size=56, depths=(1, 1), num_heads=(3, 6))
    graph = at(module, 4, (3, 56, 56))
    assert graph.smallest_batch_size == 2
    assert_same(graph.rescale(2), at(module, 2, (3, 56, 56)))
    assert_same(graph.rescale(11), at(module, 11, (3, 56, 56)))
    assert graph.rescale_problem(2) == "" and graph.rescale_problem(1) == "below batch 2 it runs other ops"
    with pytest.raises(ValueError, match=r"from batch 4 to 1: below batch 2 it runs other ops; capture it again"):
        graph.rescale(1)
    with pytest.raises(ValueError, match=r"from batch 1 to 4: it runs other ops at batch 64; capture it again"):
        at(module, 1, (3, 56, 56)).rescale(4)


def test_a_network_that_fills_a_cache_is_captured_as_it_runs_afterwards() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias, self.cache = nn.Parameter(torch.randn(6)), None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.cache is None:
                self.cache = self.bias.exp()
            return x + self.cache

    graph = at(Cached(), 4, (6,))
    assert ops(graph) == ["add"]
    assert graph.rescale(8).nodes[0].outputs[0].shape == (8, 6)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.relu() if x.shape[0] == 4 else x, "it runs other ops at batch 64"),
        (lambda x: x.flatten().outer(x.flatten()).flatten().relu(), "its sizes grow unevenly"),
        (lambda x: x.view(4, 6), "it does not run at batch 64"),
    ],
)
def test_networks_that_do_not_scale_say_so(function, reason: str) -> None:
    graph = at(Wrapped(lambda self, x: function(x)), 4, (6,))
    assert graph.rescale_error.startswith(reason)
    assert graph.rescale(4) is graph
    with pytest.raises(
        ValueError, match=f"cannot be rescaled from batch 4 to 5: {reason}.*; capture it again"
    ) as raised:
        graph.rescale(5)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.cat([part.relu() for part in x.split(4)]), "it runs other ops at batch 64"),
        (lambda x: torch.cdist(x, x), "it runs other ops at batch 64"),  # another way above 25 rows
        (lambda x: x[: min(len(x), 10)].relu(), "its sizes grow unevenly"),
    ],
)
def test_what_changes_at_larger_batches_is_seen(function, reason: str, batch_size: int) -> None:
    graph = at(Wrapped(lambda self, x: function(x)), batch_size, (6,))
    assert graph.rescale_error == reason


def test_a_network_whose_sizes_are_multiples_of_the_batch_is_traced_no_more_than_needed() -> None:
    for batch_size, sizes in ((1, [1, 64]), (2, [2, 1, 64]), (40, [40, 1, 80])):
        seen: list[int] = []
        at(Wrapped(lambda self, x, seen=seen: seen.append(x.shape[0]) or x.relu()), batch_size, (6,))
        assert seen == sizes


def test_a_graph_holds_from_the_smallest_batch_that_was_tried_on() -> None:
    graph = at(Wrapped(lambda self, x: x.relu() if x.shape[0] > 3 else x), 4, (6,))
    assert graph.smallest_batch_size == 4 and ops(graph.rescale(5)) == ["relu"]
    with pytest.raises(ValueError, match="below batch 4 it runs other ops"):
        graph.rescale(3)


def test_sizes_with_a_constant_part_are_checked_by_a_third_trace() -> None:
    module = Wrapped(lambda self, x: torch.cat([x, x.new_zeros(1, 6)]).relu())
    assert_same(at(module, 4, (6,)).rescale(9), at(module, 9, (6,)))


def test_what_does_not_lead_with_the_batch_stays() -> None:
    module = Wrapped(lambda self, x, y: x + y)
    graph = capture(module, (torch.randn(4, 5, 6), torch.randn(5, 6))).rescale(2)
    assert [t.shape for t in graph.inputs] == [(2, 5, 6), (5, 6)]


def test_matrix_of_all_pairs_grows_in_both_dimensions() -> None:
    module = Wrapped(lambda self, x: (x @ x.T).softmax(-1))
    graph = at(module, 4, (6,)).rescale(10)
    assert_same(graph, at(module, 10, (6,)))
    assert node_cost(named(graph, "matmul")[0]).flops == 2 * 10 * 10 * 6


def test_expanded_tensors_cost_no_more_at_larger_batches() -> None:
    module = Wrapped(lambda self, x, w: x + w.expand(x.shape[0], 6))
    for batch_size in (1, 4):
        graph = capture(module, (torch.randn(batch_size, 6), torch.randn(6))).rescale(8)
        assert node_cost(graph.nodes[0]).bytes_read == 8 * 6 * 4 + 6 * 4


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, True, "8", None])
def test_batch_sizes_are_checked(batch_size: object) -> None:
    graph = at(nn.ReLU(), 2, (3,))
    with pytest.raises(ValueError, match="batch size must be a positive integer, not"):
        graph.rescale(batch_size)  # type: ignore[arg-type]
