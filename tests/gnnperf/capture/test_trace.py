"""What becomes a node, and who depends on whom."""

import pytest
import torch
import torch.nn.functional as F
from graph_queries import Wrapped, cost, links, named, only, ops, shapes
from torch import nn
from torch.utils.checkpoint import checkpoint

from gnnperf.capture import capture
from gnnperf.cost import node_cost, unknown_ops


def graph_of(function, *args: torch.Tensor, **parts: nn.Module):
    return capture(Wrapped(lambda self, *args: function(*args), **parts), args)


X = torch.randn(2, 4, 6)


def test_views_cost_nothing_and_vanish() -> None:
    def views(x: torch.Tensor) -> torch.Tensor:
        x = x.relu().view(8, 6).t().reshape(3, 2, 8).transpose(0, 1)[0].unsqueeze(0).expand(5, 3, 8)
        return x.detach().squeeze().chunk(2, -1)[1].flatten(0, 0).permute(1, 0, 2).sigmoid()

    graph = graph_of(views, X)
    assert ops(graph) == ["relu", "sigmoid"]
    assert links(graph) == {("relu_0", "sigmoid_1")}
    (edge,) = graph.edges
    assert edge.tensor.shape == (3, 5, 4)
    # expand repeated one dimension of 5: those bytes lie in memory once
    assert edge.tensor.broadcast == (1,) and edge.tensor.bytes == 3 * 4 * 4
    assert cost(graph, "sigmoid").bytes_read == 3 * 4 * 4 and cost(graph, "sigmoid").bytes_written == 3 * 5 * 4 * 4


def test_reshape_that_must_copy_is_a_copy() -> None:
    assert ops(graph_of(lambda x: x.transpose(1, 2).reshape(2, 24), X)) == ["copy"]
    assert ops(graph_of(lambda x: x.transpose(1, 2).contiguous(), X)) == ["copy"]
    assert ops(graph_of(lambda x: x.contiguous().reshape(2, 24).sin(), X)) == ["sin"]


def test_in_place_ops_change_what_their_readers_see() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        view = y[:, 0]
        y.mul_(2).add_(1)
        return view.sin()

    graph = graph_of(run, X)
    assert links(graph) == {("exp_0", "mul_1"), ("mul_1", "add_2"), ("add_2", "sin_3")}


def test_a_reader_before_the_write_depends_on_the_older_value() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        before = y.sin()
        y.zero_()
        return before + y.cos()

    graph = graph_of(run, X)
    assert ops(graph) == ["exp", "sin", "fill", "cos", "add"]
    assert links(graph) >= {("exp_0", "sin_1"), ("exp_0", "fill_2"), ("fill_2", "cos_3"), ("sin_1", "add_4")}
    assert ("exp_0", "cos_3") not in links(graph)
    assert cost(graph, "fill").bytes_read == 0


def test_memory_that_is_used_again_makes_no_edge() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):  # freed results would come back at the same place
            x.exp()
        return x.sin()

    graph = graph_of(run, X)
    assert graph.edges == () and len(graph.nodes) == 51


def test_adding_in_place_to_a_slice_writes_it_once() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        y[:, 1] += 1
        return y.sin()

    graph = graph_of(run, X)
    assert ops(graph) == ["exp", "add", "sin"]
    assert shapes(only(graph, "add")) == ([(2, 6)], [(2, 6)])
    assert links(graph) == {("exp_0", "add_1"), ("add_1", "sin_2")}


def test_out_arguments_are_written_not_read() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        torch.add(x, 1, out=out)
        return out.sin()

    graph = graph_of(run, X)
    assert links(graph) == {("add_0", "sin_1")}
    assert cost(graph, "add").bytes == 2 * 48 * 4


def test_allocation_is_no_op() -> None:
    assert ops(graph_of(lambda x: x.new_empty(2).copy_(x.sum((1, 2))), X)) == ["reduce_sum", "copy"]


def test_kinds_of_tensors() -> None:
    class Kinds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6))
            self.register_buffer("buffer", torch.randn(6))
            self.plain = torch.randn(6)
            self.listed = [torch.randn(6)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * self.weight
            x = x + self.buffer
            x = x / self.plain
            return x - self.listed[0]

    graph = capture(Kinds(), X)
    assert [[t.kind for t in node.inputs] for node in graph.nodes] == [
        ["input", "parameter"],
        ["activation", "constant"],
        ["activation", "constant"],
        ["activation", "constant"],
    ]
    assert node_cost(graph.nodes[0]).parameter_bytes == 6 * 4
    assert graph.parameter_bytes == 24 and graph.buffer_bytes == 24


def test_buffers_that_the_forward_updates_are_left_alone() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.calls

    module = Counter()
    graph = capture(module, X)
    assert module.calls == 0
    assert ops(graph) == ["add", "mul"] and links(graph) == {("add_0", "mul_1")}


def test_constants_of_the_default_device_meet_inputs() -> None:
    graph = graph_of(lambda x: x * torch.arange(6) + torch.tensor([1.0, 2, 3, 4, 5, 6]), X)
    assert ops(graph) == ["fill", "mul", "add"]
    assert links(graph) == {("fill_0", "mul_1"), ("mul_1", "add_2")}
    assert int(torch.tensor(3)) == 3


def test_python_numbers_from_constants_are_known() -> None:
    assert ops(graph_of(lambda x: x * torch.linspace(0, 1, 5).tolist()[1], X)) == ["fill", "mul"]


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_reparameterized_weights(norm) -> None:
    graph = capture(norm(nn.Linear(6, 3)), X)
    assert unknown_ops(graph) == {}
    assert ops(graph)[-1] == "linear"
    assert node_cost(graph.nodes[-1]).flops == 2 * 8 * 6 * 3 + 8 * 3
    assert graph.parameter_count >= 6 * 3 + 3


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_checkpointing_in_eval() -> None:
    for reentrant in (True, False):
        graph = capture(
            Wrapped(lambda self, x, r=reentrant: checkpoint(self.linear, x, use_reentrant=r), linear=nn.Linear(6, 3)), X
        )
        assert ops(graph) == ["linear"]


@pytest.mark.parametrize(
    ("function", "args", "op", "flops", "bytes_moved"),
    [
        (lambda x: F.interpolate(x, scale_factor=2), (X[None],), "resize", 2 * 192, (48 + 192) * 4),
        (lambda x: F.interpolate(x, (8, 12), mode="bilinear"), (X[None],), "resize", 2 * 4 * 192, (48 + 192) * 4),
        (lambda x: F.pixel_shuffle(x, 2), (torch.randn(1, 8, 3, 3),), "pixel_shuffle", 0, 2 * 72 * 4),
        (lambda x: F.pad(x, (1, 1)), (X,), "pad", 0, (48 + 64) * 4),
        (lambda x: F.max_pool2d(x, 2), (torch.randn(1, 2, 4, 4),), "max_pool", 8 * 4, 32 * 4 + 8 * 4 + 8 * 8),
        (lambda x: F.avg_pool2d(x, 3, 1), (torch.randn(1, 2, 4, 4),), "avg_pool", 8 * 9, (32 + 8) * 4),
        (lambda x: F.avg_pool1d(x, 3), (X,), "avg_pool", 16 * 3, (48 + 16) * 4),
        (lambda x: F.adaptive_avg_pool2d(x, 2), (torch.randn(1, 2, 4, 4),), "adaptive_avg_pool", 32, (32 + 8) * 4),
        (lambda x: x.topk(3).values, (torch.randn(2, 8),), "topk", 16 * 3, 16 * 4 + 6 * (4 + 8)),
        (lambda x: x.sum(), (X,), "reduce_sum", 48, (48 + 1) * 4),
        (lambda x: x.max(), (X,), "reduce_max", 48, (48 + 1) * 4),
        (lambda x: x.max(-1), (X,), "reduce_max", 48, 48 * 4 + 8 * (4 + 8)),
        (lambda x: torch.maximum(x, x + 0), (X,), "maximum", 48, 3 * 48 * 4),
        (lambda x: torch.where(x, 1.0, 0.0), (X > 0,), "where", 48, 48 + 2 * 4 + 48 * 4),
        (lambda x: torch.full((3, 5), 2.0, device=x.device), (X,), "fill", 0, 15 * 4),
        (lambda x: torch.cat([x, x], -1), (X,), "concat", 0, 4 * 48 * 4),
        (lambda x: torch.stack([x, x], -1), (X,), "concat", 0, 4 * 48 * 4),
        (lambda x: x.repeat(3, 1, 1), (X,), "repeat", 0, 4 * 48 * 4),
        (lambda x: x.tril(), (X,), "tril", 0, 2 * 48 * 4),
        (lambda x: x.cumsum(1), (X,), "cumsum", 3 * 48, 2 * 48 * 4),
        (lambda x: x.norm(dim=1), (X,), "reduce_norm", 3 * 48, (48 + 12) * 4),
        (lambda x: x.half(), (X,), "cast", 0, 48 * (4 + 2)),
        (lambda x: x << x, (torch.ones(3, dtype=torch.int32),), "bitwise_left_shift", 3, 3 * 3 * 4),
    ],
)
def test_the_cost_of_single_ops(function, args, op: str, flops: int, bytes_moved: int) -> None:
    graph = graph_of(function, *args)
    assert unknown_ops(graph) == {}
    priced = cost(graph, op)
    assert priced.flops == flops
    assert priced.bytes == bytes_moved


def test_axes_count_from_the_front() -> None:
    for function, axes in [
        (lambda x: x.softmax(-1), [2]),
        (lambda x: x.sort().values, [2]),
        (lambda x: x.topk(2, dim=1).values, [1]),
        (lambda x: torch.stack([x, x], -1), [3]),
        (lambda x: torch.cat([x, x], -2), [1]),
        (lambda x: x.mean((-1, 0)), [2, 0]),
    ]:
        (node,) = graph_of(function, X).nodes
        assert node.attributes["axes"] == axes


def test_deep_copies_are_not_made_of_other_objects_twice() -> None:
    shared = nn.Linear(6, 6)
    graph = capture(nn.Sequential(shared, nn.Sequential(shared)), X)
    assert graph.parameter_count == 42 and len(named(graph, "linear")) == 2
