import pytest
import torch
from graph_queries import Wrapped, ops
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gnnperf.capture import capture, shape_rules
from gnnperf.capture.aten import describe


def define(name: str, function, fake=None) -> torch._ops.OpOverload:
    op = torch.library.custom_op(f"gnnperf_tests::{name}", function, mutates_args=())
    if fake is not None:
        op.register_fake(fake)
    return op


def fails(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("only on Tuesdays\nreally")


def large(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def pair(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.clone(), x.new_zeros(7, dtype=torch.int64)


def test_an_op_that_runs_nowhere_is_an_error_with_the_remedy() -> None:
    op = define("fails", fails)
    with pytest.raises(
        ValueError, match=r"'gnnperf_tests::fails' runs neither on .* \(only on Tuesdays\); register a fake"
    ):
        capture(Wrapped(lambda self, x: op(x)), torch.randn(2, 3))


def test_an_op_without_a_fake_is_not_run_on_huge_zeros() -> None:
    op = define("large", large)
    with pytest.raises(ValueError, match="'gnnperf_tests::large' cannot run without data; register a fake"):
        capture(Wrapped(lambda self, x: op(x)), torch.empty(1 << 29, device="meta"))


def test_several_results_of_an_op_without_a_fake() -> None:
    op = define("pair", pair)
    graph = capture(Wrapped(lambda self, x: op(x)), torch.randn(2, 3))
    assert ops(graph) == ["gnnperf_tests::pair"]
    assert [(t.shape, t.dtype) for t in graph.outputs] == [((2, 3), "float32"), ((7,), "int64")]


class Checked(TorchDispatchMode):
    """Compare every shape rule that applies with torch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        expected, info = op(*args, **(kwargs or {})), describe(op)
        known = None if info.written else shape_rules.result(info.name, args)
        if known is not None:
            self.seen.add(info.name)
            pairs = zip(*((r,) if isinstance(r, torch.Tensor) else r for r in (known, expected)), strict=True)
            for position, (ours, torchs) in enumerate(pairs):
                if info.name == "native_batch_norm" and position > 0:
                    continue  # CUDA returns empty statistics here, meta does not
                assert (ours.shape, ours.stride(), ours.dtype) == (torchs.shape, torchs.stride(), torchs.dtype), op
        return expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_shape_rules_agree_with_torch(dtype: torch.dtype) -> None:
    def m(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    channels_last = m(2, 3, 4, 5).to(memory_format=torch.channels_last)
    operands = [
        m(2, 3, 4, 5),
        channels_last,
        m(2, 3, 5, 4).transpose(2, 3),
        m(3, 1, 1).expand(2, 3, 4, 5),
        m(1, 1, 1, 1),
    ]
    with torch.no_grad(), Checked() as checked:
        for x in operands:
            if dtype.is_floating_point:
                torch.relu(x), torch.nn.functional.gelu(x), torch.sigmoid(x), torch.exp(x), torch.rsqrt(x)
                torch.nn.functional.layer_norm(x, x.shape[-1:]), torch.nn.functional.layer_norm(x, x.shape[-2:])
            for y in [*operands, m(5), m(4, 1), m(3, 1, 1), m(), 2, 2.5]:
                x + y, x * y, x / y, x - y
        if dtype.is_floating_point:
            torch.nn.functional.grid_sample(m(2, 3, 4, 5), m(2, 6, 7, 2), align_corners=False)
            for x in operands[:3]:
                nn.BatchNorm2d(3, device="meta", dtype=torch.float32).eval()(x)
    if dtype.is_floating_point:
        assert checked.seen >= {
            "relu",
            "gelu",
            "add",
            "mul",
            "native_layer_norm",
            "native_batch_norm",
            "grid_sampler_2d",
        }
