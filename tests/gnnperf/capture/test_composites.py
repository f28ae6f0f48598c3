import pytest
import torch
import torch.nn.functional as F
from graph_queries import Wrapped, cost, named, only, ops, shapes
from torch import nn

from gnnperf.capture import capture


def attention_by_function(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    q = k = v = x.unflatten(-1, (2, 4)).transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v)


class ByMultiheadAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def bert(implementation: str) -> tuple[nn.Module, torch.Tensor]:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        attn_implementation=implementation,
    )
    return transformers.BertModel(config), torch.ones(3, 5, dtype=torch.int64)


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (Wrapped(attention_by_function), torch.randn(3, 5, 8)),
        (ByMultiheadAttention(), torch.randn(3, 5, 8)),
        bert("sdpa"),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(3, 5, 8)),
    ],
    ids=["function", "multihead", "bert", "encoder"],
)
@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_attention_is_one_node_however_it_is_called(module: nn.Module, x: torch.Tensor, precision: str) -> None:
    graph = capture(module, x, precision=precision)
    node = only(graph, "attention")
    assert shapes(node)[0][:3] == [(3, 2, 5, 4)] * 3 and shapes(node)[1] == [(3, 2, 5, 4)]
    assert node.attributes["attention_implementation"] == "fused"
    assert not {"softmax", "matmul"} & set(ops(graph))
    pairs = 3 * 2 * 5 * 5
    assert cost(graph, "attention").flops == 2 * pairs * (4 + 4)


def test_merging_the_heads_after_fused_attention_is_a_view() -> None:
    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.out(attention_by_function(self, x).transpose(1, 2).reshape(3, 5, 8))

    assert ops(capture(Wrapped(run, out=nn.Linear(8, 8)), torch.randn(3, 5, 8))) == ["attention", "linear"]


def test_eager_attention_stays_decomposed() -> None:
    graph = capture(*bert("eager"))
    assert "attention" not in ops(graph)
    assert len(named(graph, "matmul")) == 2 and len(named(graph, "softmax")) == 1


def test_multihead_attention_that_returns_its_weights_stays_decomposed() -> None:
    graph = capture(Wrapped(lambda self, x: self.a(x, x, x), a=nn.MultiheadAttention(8, 2)), torch.randn(3, 5, 8))
    assert "attention" not in ops(graph)
    assert len(named(graph, "matmul")) == 2 and len(named(graph, "softmax")) == 1


def test_attention_with_mask_groups_and_dropout() -> None:
    q, kv, mask = torch.randn(2, 8, 5, 4), torch.randn(2, 2, 7, 4), torch.ones(5, 7, dtype=torch.bool)

    def run(self: nn.Module, q: torch.Tensor, kv: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, kv, kv, mask, dropout_p=0.25, enable_gqa=True)

    graph = capture(Wrapped(run), (q, kv, mask))
    node = only(graph, "attention")
    assert shapes(node) == ([q.shape, kv.shape, kv.shape, mask.shape], [q.shape])
    assert node.attributes["dropout"] == 0.25
    assert cost(graph, "attention").flops == 2 * (2 * 8 * 5 * 7) * (4 + 4)
    assert cost(graph, "attention").bytes_read == (2 * 8 * 5 * 4 + 2 * 2 * 2 * 7 * 4) * 4 + 5 * 7


def test_attention_that_does_not_fit_raises_as_torch_does() -> None:
    with pytest.raises(ValueError, match="scaled_dot_product_attention: query, key and value do not fit"):
        capture(
            Wrapped(lambda self, q, k: F.scaled_dot_product_attention(q, k, k)),
            (torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 5)),
        )


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 3, 4), (2, 3, 5, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_one_node_for_every_rank(shape: tuple[int, ...], bias: bool) -> None:
    graph = capture(nn.Linear(4, 6, bias=bias), torch.randn(shape))
    node = only(graph, "linear")
    assert len(graph.nodes) == 1
    assert shapes(node) == ([shape, (6, 4), *([(6,)] if bias else [])], [(*shape[:-1], 6)])
    rows = torch.Size(shape[:-1]).numel()
    assert cost(graph, "linear").flops == 2 * rows * 4 * 6 + (rows * 6 if bias else 0)


def test_linear_is_one_node_with_autograd_too() -> None:
    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return self.linear(x)

    graph = capture(Wrapped(run, linear=nn.Linear(4, 6)), torch.randn(2, 3, 4))
    assert ops(graph) == ["linear"]


def test_a_product_with_a_weight_is_a_linear_layer_and_one_of_activations_is_not() -> None:
    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ self.weight) @ (x @ self.weight).transpose(-1, -2)

    assert ops(capture(Products(), torch.randn(2, 4))) == ["linear", "linear", "matmul"]


def test_rms_norm_is_one_node() -> None:
    graph = capture(nn.RMSNorm(8), torch.randn(2, 8))
    assert ops(graph) == ["rms_norm"]
    assert cost(graph, "rms_norm").bytes == (16 + 8 + 16) * 4


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_one_node_and_return_the_shapes_of_a_real_run(cls: type[nn.Module]) -> None:
    for options in ({}, {"batch_first": True}, {"bidirectional": True, "num_layers": 2}, {"bias": False}):
        layer, x = cls(5, 7, **options), torch.randn(3, 4, 5)
        graph = capture(layer, x)
        (node,) = [n for n in graph.nodes if n.op != "fill"]
        assert node.op == cls.__name__.lower()
        out, state = layer(x)
        real = [out.shape, *(t.shape for t in (state if isinstance(state, tuple) else (state,)))]
        assert [t.shape for t in node.outputs] == real
    unbatched = capture(cls(5, 7), torch.randn(4, 5))
    assert unbatched.outputs[0].shape == (4, 7)


def test_transformer_encoder_shows_its_ops_and_takes_a_padding_mask() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    graph = capture(encoder, {"src": torch.randn(3, 5, 8), "src_key_padding_mask": torch.zeros(3, 5, dtype=torch.bool)})
    assert (
        ops(graph).count("attention") == 2 and ops(graph).count("linear") == 8 and ops(graph).count("layer_norm") == 4
    )
    assert torch.backends.mha.get_fastpath_enabled()


def test_half_precision_softmax_that_asks_for_fp32_is_one_kernel() -> None:
    graph = capture(Wrapped(lambda self, x: F.softmax(x, -1, dtype=torch.float32)), torch.randn(2, 3), precision="fp16")
    assert ops(graph) == ["softmax"]
    assert cost(graph, "softmax").bytes == 6 * 2 + 6 * 4
