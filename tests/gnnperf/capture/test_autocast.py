"""What runs in which precision under CUDA's autocast, by the op reference in torch's documentation."""

import re
from pathlib import Path

import pytest
import torch
from graph_queries import Wrapped, dtypes, links, named, only, ops
from torch import nn
from torch.utils.checkpoint import checkpoint

from gnnperf.capture import autocast, capture

HALF, FULL = "float16", "float32"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn(self.conv(x)).relu().mean((2, 3))
        x = self.linear(self.linear(self.norm(x)))
        return x.softmax(-1)


def test_the_graph_differs_from_fp32_exactly_by_the_casts() -> None:
    module, x = Block(), torch.randn(2, 3, 8, 8)
    full, lower = capture(module, x), capture(module, x, precision="amp")
    assert ops(full) == ["conv", "batch_norm", "relu", "reduce_mean", "layer_norm", "linear", "linear", "softmax"]
    casts = [(node.inputs[0].kind, node.inputs[0].dtype, node.outputs[0].dtype) for node in named(lower, "cast")]
    down, up = (FULL, HALF), (HALF, FULL)
    assert casts == [
        ("input", *down),
        ("parameter", *down),  # the convolution's weight and bias
        ("parameter", *down),
        ("activation", *up),  # layer norm runs in fp32
        ("activation", *down),
        ("parameter", *down),  # the linear layer's weight and bias, once for two calls
        ("parameter", *down),
    ]
    assert [op for op in ops(lower) if op != "cast"] == ops(full)
    runs_in = {node.op: node.inputs[0].dtype for node in lower.nodes if node.op != "cast"}
    assert runs_in == {
        "conv": HALF,
        "batch_norm": HALF,
        "relu": HALF,
        "reduce_mean": HALF,
        "layer_norm": FULL,
        "linear": HALF,
        "softmax": HALF,
    }
    assert dtypes(only(lower, "batch_norm")) == [HALF, FULL, FULL, FULL, FULL]
    assert only(lower, "batch_norm").outputs[0].dtype == HALF
    assert set(dtypes(only(lower, "layer_norm"))) == {FULL}
    assert only(lower, "softmax").outputs[0].dtype == FULL  # one kernel reads fp16 and writes fp32
    assert ("cast_1", "conv_3") in links(lower) and ("cast_0", "conv_3") in links(lower)


def test_bf16_casts_before_softmax_as_cuda_has_no_kernel_for_it() -> None:
    graph = capture(Block(), torch.randn(2, 3, 8, 8), precision="amp_bf16")
    assert dtypes(only(graph, "conv"))[0] == "bfloat16"
    assert dtypes(only(graph, "softmax")) == [FULL]
    assert ops(graph)[-2:] == ["cast", "softmax"]


class Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x @ x.transpose(1, 2)).softmax(-1) @ x).softmax(-1).log_softmax(-1)


@pytest.mark.parametrize(
    ("module", "x"),
    [(Block(), torch.randn(2, 3, 8, 8)), (Attention(), torch.randn(3, 4, 5)), (nn.ReLU(), torch.ones(2))],
)
def test_bf16_graphs_made_from_fp16_ones_equal_captured_ones(module: nn.Module, x: torch.Tensor) -> None:
    made = autocast.with_bf16_autocast(capture(module, x, precision="amp"))
    made.validate()
    captured = capture(module, x, precision="amp_bf16")
    assert (made.nodes, made.edges) == (captured.nodes, captured.edges)
    assert made == captured
    assert made.rescale(7) == captured.rescale(7)
    with pytest.raises(ValueError, match="only an amp graph"):
        autocast.with_bf16_autocast(made)


def amp(function, *args: torch.Tensor):
    return capture(Wrapped(lambda self, *args: function(*args)), args, precision="amp")


X, HALVED = torch.randn(4, 4), torch.randn(4, 4).half()


@pytest.mark.parametrize(
    ("function", "args", "runs_in"),
    [
        (torch.matmul, (X, X), [HALF, HALF]),
        (torch.bmm, (X[None], X[None]), [HALF, HALF]),
        (torch.addmm, (X, X, X), [HALF, HALF, HALF]),
        (lambda x, y: torch.einsum("ij,jk->ik", x, y), (X, X), [HALF, HALF]),
        (nn.functional.scaled_dot_product_attention, (X[None], X[None], X[None]), [HALF] * 3),
        (torch.exp, (HALVED,), [FULL]),
        (torch.log, (HALVED,), [FULL]),
        (lambda x: x.pow(2), (HALVED,), [FULL]),
        (torch.rsqrt, (HALVED,), [FULL]),
        (nn.functional.softplus, (HALVED,), [FULL]),
        (lambda x: nn.functional.layer_norm(x, (4,)), (HALVED,), [FULL]),
        (lambda x: nn.functional.rms_norm(x, (4,)), (HALVED,), [FULL]),
        (lambda x: nn.functional.group_norm(x, 2), (HALVED,), [FULL]),
        (lambda x: torch.cdist(x, x), (HALVED,), [FULL, FULL]),
        (lambda x: nn.functional.interpolate(x[None], scale_factor=2), (HALVED,), [FULL]),
        (torch.sum, (HALVED,), [HALF]),
        (lambda x: x.cumsum(0), (HALVED,), [HALF]),
        (torch.relu, (HALVED,), [HALF]),
        (torch.add, (X, HALVED), [FULL, HALF]),  # promoted inside the kernel
        (torch.dot, (X[0], HALVED[0]), [FULL, FULL]),  # the widest operand decides
        (torch.dot, (HALVED[0], HALVED[0]), [HALF, HALF]),
        (torch.addcmul, (HALVED, X, HALVED), [FULL, FULL, FULL]),
        (torch.mm, (X.double(), X.double()), ["float64", "float64"]),  # never cast
    ],
)
def test_cast_rules(function, args: tuple[torch.Tensor, ...], runs_in: list[str]) -> None:
    graph = amp(function, *args)
    *casts, op = graph.nodes
    assert {node.op for node in casts} <= {"cast"}
    assert dtypes(op) == runs_in


def test_sums_accumulate_in_fp32_without_a_cast() -> None:
    graph = amp(torch.sum, HALVED)
    assert ops(graph) == ["reduce_sum"] and graph.outputs[0].dtype == FULL


def test_a_part_of_the_module_switches_autocast_off() -> None:
    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        assert torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") is torch.float16
        with torch.autocast("cuda", enabled=False):
            x = x @ x
        return x @ x

    first, second = named(capture(Wrapped(run), X, precision="amp"), "matmul")
    assert dtypes(first) == [FULL, FULL] and dtypes(second) == [HALF, HALF]
    assert not torch.is_autocast_enabled("cuda")


def test_a_region_for_the_device_of_a_tensor_is_one_of_cuda() -> None:
    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        assert torch.is_autocast_enabled(x.device.type)
        assert torch.get_autocast_dtype(x.device.type) is torch.float16
        with torch.autocast(device_type=x.device.type, enabled=False):
            x = x @ x
        return x @ x

    first, second = named(capture(Wrapped(run), X, precision="amp"), "matmul")
    assert dtypes(first) == [FULL, FULL] and dtypes(second) == [HALF, HALF]
    with pytest.raises(RuntimeError):  # outside of a capture torch answers as ever
        torch.autocast("meta")


@pytest.mark.parametrize("device", ["cuda", "meta"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_module_may_bring_its_own_autocast(device: str, dtype: torch.dtype) -> None:
    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, dtype=dtype):
            y = x @ x
        return x @ y.float()

    first, second = named(capture(Wrapped(run), X), "matmul")
    lower = str(dtype).removeprefix("torch.")
    assert dtypes(first) == [lower, lower] and dtypes(second) == [FULL, FULL]


def test_frozen_weights_are_cast_every_time_as_torch_does_not_keep_their_casts() -> None:
    linear = nn.Linear(4, 4, bias=False)
    twice = nn.Sequential(linear, linear)
    assert ops(capture(twice, X, precision="amp")).count("cast") == 1 + 1
    linear.requires_grad_(False)
    assert ops(capture(twice, X, precision="amp")).count("cast") == 1 + 2


def test_the_lists_are_those_of_the_installed_torch() -> None:
    header = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
    if not header.exists():
        pytest.skip("this torch comes without its headers")
    text = header.read_text()

    def listed(macro: str) -> set[str]:
        body = text.split(f"#define {macro}(_)")[1].split("#define")[0].split("#else")[0]
        found = re.findall(r"_\((\w+)(?:, (\w+))?\)", body.replace("\\\n", " "))
        return {f"{op}.{overload}" if overload else op for op, overload in found}

    fused = {"_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "_scaled_dot_product_flash_attention"}  # inside others
    assert listed("AT_FORALL_LOWER_PRECISION_FP") - fused == autocast.LOWER_PRECISION - set(autocast.RECURRENT.split())
    assert listed("AT_FORALL_FP32") == autocast.FP32 - {"norm.Scalar", "norm.ScalarOpt_dim"}
    assert listed("AT_FORALL_FP32_SET_OPT_DTYPE") == autocast.FP32_RESULT
    assert listed("AT_FORALL_PROMOTE") == autocast.WIDEST


def test_weights_are_cast_again_in_every_pass() -> None:
    graph = capture(nn.Linear(4, 4), X, mode="training", precision="amp", accumulation_steps=2)
    assert [n.phase for n in named(graph, "cast")].count("forward") == 2 * 3  # input, weight and bias


def test_a_checkpoint_casts_its_weights_again() -> None:
    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(lambda x: self.first(x).tanh().sin(), x, use_reentrant=False))

    module = Wrapped(run, first=nn.Linear(4, 4), last=nn.Linear(4, 4))
    graph = capture(module, X, mode="training", precision="amp")
    weights = [n for n in named(graph, "cast") if n.inputs[0].kind == "parameter"]
    assert [n.phase for n in weights] == ["forward"] * 4 + ["backward"] * 2


def test_a_region_of_the_module_keeps_casts_while_it_lasts() -> None:
    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            with torch.autocast("cuda", dtype=torch.float16):
                x = self.linear(self.linear(x)).float()
        return x

    module = Wrapped(run, linear=nn.Linear(4, 4, bias=False))
    casts = [n for n in named(capture(module, X), "cast") if n.inputs[0].kind == "parameter"]
    assert len(casts) == 2
    inside = [n for n in named(capture(module, X, precision="amp"), "cast") if n.inputs[0].kind == "parameter"]
    assert len(inside) == 1  # the outermost region is that of the whole step


class Square(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x @ x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        (x,) = ctx.saved_tensors
        return gradient @ x.T + x.T @ gradient


def test_a_function_of_the_user_gets_the_inputs_that_it_asks_for() -> None:
    module = Wrapped(lambda self, x: Square.apply(self.linear(x)), linear=nn.Linear(4, 4))
    graph = capture(module, X, mode="training", precision="amp", loss=torch.sum)
    assert [dtypes(n) for n in named(graph, "matmul")] == [[FULL, FULL]] * 3
    plain = capture(module, X, mode="training", loss=torch.sum)
    assert [dtypes(n) for n in named(plain, "matmul")] == [[FULL, FULL]] * 3
