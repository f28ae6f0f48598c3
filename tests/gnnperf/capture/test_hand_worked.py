"""Small networks whose graphs and costs are worked out by hand. fp32 is 4 bytes an element, int64 is 8."""

import pytest
import torch
from graph_queries import Wrapped, cost, links, named, only, ops, shapes
from torch import nn

from gnnperf.capture import capture
from gnnperf.cost import node_cost, unknown_ops


@torch.library.custom_op("gnnperf_tests::widen", mutates_args=())
def widen(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(x, weight)


@widen.register_fake
def _(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(x, weight)  # made of ops that must not show up on their own


@torch.library.custom_op("gnnperf_tests::widen_without_fake", mutates_args=())
def widen_without_fake(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(x, weight)


@pytest.mark.parametrize("op", [widen, widen_without_fake])
def test_a_custom_op_is_one_unknown_node_priced_by_its_bytes(op) -> None:
    class Widen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(op(x, self.weight))

    graph = capture(Widen(), torch.randn(2, 3))
    name = op._qualname
    assert ops(graph) == [name, "relu"]
    assert unknown_ops(graph) == {name: 1}
    priced = cost(graph, name)
    assert not priced.known and priced.op_class == "unknown" and priced.flops == 0
    assert priced.bytes_read == (2 * 3 + 5 * 3) * 4
    assert priced.parameter_bytes == 5 * 3 * 4
    assert priced.bytes_written == 2 * 5 * 4
    assert links(graph) == {(f"{name}_0", "relu_1")}


def test_a_custom_op_named_like_a_known_one_stays_unknown() -> None:
    @torch.library.custom_op("gnnperf_tests::relu", mutates_args=())
    def relu(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    relu.register_fake(torch.empty_like)
    graph = capture(Wrapped(lambda self, x: relu(x)), torch.randn(2, 3))
    assert unknown_ops(graph) == {"gnnperf_tests::relu": 1}


def test_zero_size_tensor() -> None:
    graph = capture(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(2, 0, 4))
    linear = cost(graph, "linear")
    assert linear.flops == 0
    assert linear.bytes_read == linear.parameter_bytes == (4 * 3 + 3) * 4
    assert linear.bytes_written == 0
    assert cost(graph, "relu").bytes == 0


def test_scalar_input() -> None:
    graph = capture(Wrapped(lambda self, x, scale: x * scale), (torch.randn(2, 3), torch.tensor(2.0)))
    assert [t.shape for t in graph.inputs] == [(2, 3), ()]
    mul = cost(graph, "mul")
    assert (mul.flops, mul.bytes_read, mul.bytes_written) == (6, 6 * 4 + 4, 6 * 4)


def test_only_scalar_inputs() -> None:
    graph = capture(Wrapped(lambda self, x: x.exp()), torch.tensor(2.0))
    assert graph.batch_size == 1 and ops(graph) == ["exp"]
    assert cost(graph, "exp").bytes == 8


def test_several_outputs() -> None:
    graph = capture(
        Wrapped(lambda self, x: (x + 1, {"pooled": x.mean(1), "again": [x.sum(0)]}, None, "text")), torch.randn(2, 3)
    )
    assert [t.shape for t in graph.outputs] == [(2, 3), (2,), (3,)]
    assert ops(graph) == ["add", "reduce_mean", "reduce_sum"]
    assert cost(graph, "reduce_mean").flops == 6 and cost(graph, "reduce_mean").bytes == (6 + 2) * 4
    assert cost(graph, "reduce_sum").flops == 6 and cost(graph, "reduce_sum").bytes == (6 + 3) * 4


def test_tied_weights_are_stored_once_and_read_by_both() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(tokens))

    graph = capture(Tied(), torch.zeros(2, 3, dtype=torch.int64))
    assert (graph.parameter_count, graph.parameter_bytes) == (40, 160)
    embedding, head = cost(graph, "embedding"), cost(graph, "linear")
    picked = 2 * 3 * 4 * 4
    assert (embedding.flops, embedding.bytes_read, embedding.bytes_written) == (0, picked + 6 * 8, picked)
    assert embedding.parameter_bytes == picked
    assert head.flops == 2 * (2 * 3) * 4 * 10
    assert (head.bytes_read, head.parameter_bytes, head.bytes_written) == (picked + 160, 160, 2 * 3 * 10 * 4)


def test_in_place_slicing_costs_the_slice_and_feeds_later_readers() -> None:
    def write(self: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        out[:, 2] = y
        return out.sum(1)

    graph = capture(Wrapped(write), (torch.randn(4, 5, 6), torch.randn(4, 6)))
    assert ops(graph) == ["copy", "copy", "reduce_sum"]
    clone, put = (node_cost(node) for node in named(graph, "copy"))
    assert clone.bytes == 2 * (4 * 5 * 6) * 4
    assert (put.bytes_read, put.bytes_written) == (4 * 6 * 4, 4 * 6 * 4)
    assert links(graph) == {("copy_0", "copy_1"), ("copy_1", "reduce_sum_2")}


def test_in_place_slicing_of_what_the_module_made_on_the_default_device() -> None:
    def write(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(4, 5)
        out[:, 2] = x.relu()
        out[:, 3] += 1
        return out.sum(1)

    graph = capture(Wrapped(write), torch.randn(4))
    assert ops(graph) == ["fill", "relu", "copy", "add", "reduce_sum"]
    assert cost(graph, "fill").bytes_written == 20 * 4 and cost(graph, "fill").bytes_read == 0
    assert cost(graph, "copy").bytes == 2 * 4 * 4
    assert cost(graph, "add").bytes == 2 * 4 * 4 and cost(graph, "add").flops == 4
    assert links(graph) >= {("relu_1", "copy_2"), ("copy_2", "add_3"), ("add_3", "reduce_sum_4")}


def test_indexed_writes_cost_what_they_touch() -> None:
    def write(self: nn.Module, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        x[rows] = 0.0  # 3 rows of 8
        x.index_add_(0, rows, x[rows])
        return x.index_put((rows,), x[rows])

    graph = capture(Wrapped(write), (torch.randn(100, 8), torch.tensor([1, 5, 7])))
    zeroing, adding, fresh = (node_cost(node) for node in named(graph, "scatter"))
    rows_bytes, row_indices = 3 * 8 * 4, 3 * 8
    assert (zeroing.bytes_read, zeroing.bytes_written) == (row_indices + 4, rows_bytes)
    assert adding.flops == 3 * 8
    assert (adding.bytes_read, adding.bytes_written) == (row_indices + 2 * rows_bytes, rows_bytes)
    whole = 100 * 8 * 4
    assert (fresh.bytes_read, fresh.bytes_written) == (whole + row_indices + rows_bytes, whole + rows_bytes)
    for gather in named(graph, "gather"):
        assert node_cost(gather).bytes_read == rows_bytes + row_indices
        assert node_cost(gather).bytes_written == rows_bytes


def test_python_if_on_shapes() -> None:
    module = Wrapped(lambda self, x: x.relu() if x.shape[1] > 3 else x.sigmoid())
    assert ops(capture(module, torch.randn(2, 4))) == ["relu"]
    assert ops(capture(module, torch.randn(2, 3))) == ["sigmoid"]


def test_lstm_with_two_layers_and_two_directions() -> None:
    graph = capture(nn.LSTM(5, 7, num_layers=2, bidirectional=True, batch_first=True), torch.randn(3, 11, 5))
    lstm = cost(graph, "lstm")
    weights = 2 * (28 * 5 + 28 * 7) + 2 * (28 * 14 + 28 * 7)  # two directions of two layers; 4 gates of 7
    biases = 2 * 2 * (28 + 28)
    steps = 3 * 11
    assert lstm.flops == steps * 2 * weights + steps * 10 * (2 * 2 * 28)
    assert lstm.parameter_bytes == (weights + biases) * 4 == graph.parameter_bytes
    state = (2 * 2) * 3 * 7
    assert lstm.bytes_read == (steps * 5 + 2 * state + weights + biases) * 4
    assert lstm.bytes_written == (steps * 14 + 2 * state) * 4
    attributes = only(graph, "lstm").attributes
    assert attributes["hidden_size"] == 7 and attributes["time_steps"] == 11
    assert set(ops(graph)) == {"lstm", "fill"}
    assert [t.shape for t in graph.outputs] == [(3, 11, 14), (4, 3, 7), (4, 3, 7)]


def test_lstm_with_a_projection() -> None:
    graph = capture(nn.LSTM(5, 7, proj_size=2), torch.randn(11, 3, 5))
    weights = 28 * 5 + 28 * 2 + 2 * 7
    assert cost(graph, "lstm").parameter_bytes == (weights + 2 * 28) * 4
    products = 33 * 2 * weights
    assert products <= cost(graph, "lstm").flops <= products + 33 * 10 * 30
    assert only(graph, "lstm").attributes["hidden_size"] == 7
    assert [t.shape for t in graph.outputs] == [(11, 3, 2), (1, 3, 2), (1, 3, 7)]


def test_gru() -> None:
    graph = capture(nn.GRU(4, 6), torch.randn(5, 2, 4))
    gru = cost(graph, "gru")
    weights = 18 * 4 + 18 * 6
    assert gru.flops == 10 * 2 * weights + 10 * 10 * 18
    assert gru.parameter_bytes == (weights + 2 * 18) * 4
    assert gru.bytes_written == (5 * 2 * 6 + 2 * 6) * 4


def test_recurrent_weights_stay_weights_when_autocast_casts_them() -> None:
    module = nn.LSTM(5, 7)
    lower, full = (capture(module, torch.randn(11, 3, 5), precision=p) for p in ("amp", "fp32"))
    assert cost(lower, "lstm").flops == cost(full, "lstm").flops
    assert cost(lower, "lstm").parameter_bytes == cost(full, "lstm").parameter_bytes / 2


def test_packed_sequence_runs_only_its_tokens() -> None:
    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3, 2], batch_first=True)
        return self.lstm(packed)[0].data

    graph = capture(Wrapped(run, lstm=nn.LSTM(4, 6, batch_first=True)), torch.randn(3, 5, 4))
    weights, tokens = 24 * 4 + 24 * 6, 5 + 3 + 2
    assert cost(graph, "lstm").flops == tokens * 2 * weights + tokens * 10 * 24
    assert [t.shape for t in graph.outputs] == [(10, 6)]


@pytest.mark.parametrize(
    ("module", "shape", "out", "flops"),
    [
        # 2 * (elements of the result) * (channels of a group * kernel), and one addition a result element for the bias
        (nn.Conv2d(8, 12, 3, padding=1, groups=4), (2, 8, 5, 5), (2, 12, 5, 5), 2 * 600 * (2 * 9) + 600),
        (nn.Conv2d(3, 4, 3, dilation=2), (1, 3, 9, 9), (1, 4, 5, 5), 2 * 100 * (3 * 9) + 100),
        (nn.Conv1d(4, 6, 3, stride=2, bias=False), (2, 4, 9), (2, 6, 4), 2 * 48 * (4 * 3)),
        (nn.Conv3d(2, 3, (1, 2, 3)), (1, 2, 4, 4, 4), (1, 3, 4, 3, 2), 2 * 72 * (2 * 6) + 72),
        # transposed: every input element meets the kernels of its group's result channels
        (nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2), (1, 6, 3, 3), (1, 4, 6, 6), 2 * 54 * (2 * 4) + 144),
        (nn.ConvTranspose1d(3, 5, 4, bias=False), (2, 3, 7), (2, 5, 10), 2 * 42 * (5 * 4)),
        (nn.ConvTranspose3d(2, 3, 2, bias=False), (1, 2, 2, 2, 2), (1, 3, 3, 3, 3), 2 * 16 * (3 * 8)),
    ],
)
def test_convolutions(module: nn.Module, shape: tuple[int, ...], out: tuple[int, ...], flops: int) -> None:
    graph = capture(module, torch.randn(shape))
    (node,) = graph.nodes
    assert node.op == ("conv_transpose" if module.transposed else "conv")
    assert node.attributes["groups"] == module.groups
    priced = node_cost(node)
    weights = sum(p.numel() for p in module.parameters()) * 4
    assert priced.flops == flops and priced.matrix
    assert priced.parameter_bytes == weights
    assert priced.bytes_read == torch.Size(shape).numel() * 4 + weights
    assert priced.bytes_written == torch.Size(out).numel() * 4


def test_einsum() -> None:
    graph = capture(
        Wrapped(lambda self, x, y: torch.einsum("bij,bjk->bik", x, y)), (torch.randn(2, 3, 4), torch.randn(2, 4, 5))
    )
    assert ops(graph) == ["matmul"]
    matmul = cost(graph, "matmul")
    assert matmul.flops == 2 * 2 * 3 * 4 * 5
    assert (matmul.bytes_read, matmul.bytes_written) == ((2 * 3 * 4 + 2 * 4 * 5) * 4, 2 * 3 * 5 * 4)


@pytest.mark.parametrize(
    ("function", "arguments", "flops"),
    [
        (torch.mv, ((3, 4), (4,)), 2 * 3 * 4),
        (torch.dot, ((4,), (4,)), 2 * 4),
        (torch.addmm, ((3, 5), (3, 4), (4, 5)), 2 * 3 * 4 * 5 + 3 * 5),
        (torch.baddbmm, ((2, 3, 5), (2, 3, 4), (2, 4, 5)), 2 * 2 * 3 * 4 * 5 + 2 * 3 * 5),
        (torch.addbmm, ((3, 5), (2, 3, 4), (2, 4, 5)), 2 * 2 * 3 * 4 * 5 + 3 * 5),
        (torch.matmul, ((2, 1, 3, 4), (6, 4, 5)), 2 * 2 * 6 * 3 * 4 * 5),
        (nn.functional.bilinear, ((7, 3), (7, 4), (5, 3, 4)), 2 * 7 * 5 * 3 * 4),
    ],
)
def test_matrix_products(function, arguments: tuple[tuple[int, ...], ...], flops: int) -> None:
    graph = capture(Wrapped(lambda self, *args: function(*args)), tuple(torch.randn(s) for s in arguments))
    products = [node for node in graph.nodes if node_cost(node).op_class == "matmul"]
    assert [node_cost(node).flops for node in products] == [flops]


def test_embedding_bag() -> None:
    graph = capture(nn.EmbeddingBag(10, 4, mode="sum"), torch.zeros(3, 5, dtype=torch.int64))
    bag = cost(graph, "embedding_bag")
    assert bag.flops == 3 * 5 * 4
    assert bag.bytes_read == 3 * 5 * 4 * 4 + 3 * 5 * 8 + 3 * 8  # rows, indices, where bags start
    assert bag.parameter_bytes == 3 * 5 * 4 * 4
    assert bag.bytes_written == 3 * 4 * 4 + 3 * 5 * 8 + 3 * 8  # sums, the bag of every index, sizes of bags


class MixtureOfExperts(nn.Module):
    """Top-2 of 4 experts, as eager code has it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 4, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 6)) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, 6)
        weights, chosen = torch.topk(self.gate(tokens).softmax(-1), 2, dim=-1)
        out = torch.zeros_like(tokens)
        for e, expert in enumerate(self.experts):
            row, rank = torch.where(chosen == e)
            out.index_add_(0, row, expert(tokens[row]) * weights[row, rank, None])
        return out.reshape(x.shape)


def test_mixture_of_experts_shares_the_tokens_evenly() -> None:
    graph = capture(MixtureOfExperts(), torch.randn(2, 4, 6))
    each = 8 * 2 // 4  # 8 tokens, 2 experts each, among 4
    gate, *experts = named(graph, "linear")
    assert node_cost(gate).flops == 2 * 8 * 6 * 4
    assert [shapes(node)[0][0] for node in experts] == [(each, 6), (each, 10)] * 4
    flops = sum(node_cost(node).flops for node in experts)
    assert flops == 4 * each * ((2 * 6 * 10 + 10) + (2 * 10 * 6 + 6))
    assert sum(node_cost(node).parameter_bytes for node in experts) == 4 * (60 + 10 + 60 + 6) * 4
    for node in named(graph, "scatter"):
        priced, rows = node_cost(node), each * 6 * 4
        assert priced.flops == each * 6
        assert (priced.bytes_read, priced.bytes_written) == (2 * rows + each * 8, rows)
    tokens_of_expert = [node for node in named(graph, "gather") if node.outputs[0].shape == (each, 6)]
    assert [node_cost(node).bytes_read for node in tokens_of_expert] == [each * 6 * 4 + each * 8] * 4
    assert unknown_ops(graph) == {}
    assert any("balanced over 4 experts" in warning for warning in graph.warnings)
    assert graph.rescale(6).content_hash == capture(MixtureOfExperts(), torch.randn(6, 4, 6)).content_hash


def test_mixture_of_experts_that_does_not_divide_evenly_is_not_rescaled() -> None:
    graph = capture(MixtureOfExperts(), torch.randn(1, 3, 6))  # 6 choices among 4 experts: 2 each
    assert shapes(named(graph, "linear")[1])[0][0] == (2, 6)
    with pytest.raises(ValueError, match="cannot be rescaled from batch 1 to 4: its sizes grow unevenly"):
        graph.rescale(4)
