"""Results that are remembered are those that torch would give again."""

import pytest
import torch
from graph_queries import Wrapped, ops
from torch import nn

from gnnperf.capture import capture, execution, known_results
from gnnperf.capture.aten import describe
from gnnperf.capture.trace import Trace

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_results, "_known", {})


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def run(op: torch._ops.OpOverload, *args: object, **kwargs: object):
    return execution.run(Trace(), op, describe(op), args, kwargs)


def form(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.untyped_storage().nbytes(), type(tensor)


def alike(*calls: tuple[object, ...]) -> list[object]:
    """The results of ``calls``, each made twice with the same outcome."""
    results = []
    for op, *args in calls:
        first, again = run(op, *args), run(op, *args)
        assert form(first) == form(again) and first is not again
        assert first.untyped_storage()._cdata != again.untyped_storage()._cdata
        results.append((first.shape, first.stride(), first.dtype))
    return results


def test_equal_calls_give_equal_tensors_in_memory_of_their_own() -> None:
    (result,) = alike((aten.cumsum.default, meta(2, 3, 4), 1))
    assert result == ((2, 3, 4), (12, 4, 1), torch.float32)
    assert len(known_results._known) == 1


def test_strides_and_types_of_operands_and_numbers_tell_calls_apart() -> None:
    x = meta(2, 3, 4)
    kept = alike(
        (aten.sqrt.default, x),
        (aten.sqrt.default, meta(2, 4, 3).transpose(1, 2)),
        (aten.sqrt.default, x.half()),
        (aten.sqrt.default, x.int()),
    )
    assert [stride for _, stride, _ in kept] == [(12, 4, 1), (12, 1, 3), (12, 4, 1), (12, 4, 1)]
    assert [dtype for _, _, dtype in kept] == [torch.float32, torch.float32, torch.float16, torch.float32]
    whole = meta(3, dtype=torch.int64)
    results = alike(
        (aten.mul.Tensor, whole, 2),
        (aten.mul.Tensor, whole, 2.0),
        (aten.mul.Tensor, whole > 0, True),
        (aten.mul.Tensor, whole > 0, 1),
    )
    assert [dtype for _, _, dtype in results] == [torch.int64, torch.float32, torch.bool, torch.int64]


def test_the_default_type_tells_calls_apart() -> None:
    x = meta(3, dtype=torch.int64)
    assert run(aten.true_divide.Tensor, x, x).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert run(aten.true_divide.Tensor, x, x).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_lists_of_operands_do_not_run_together() -> None:
    x, y = meta(2, 3), meta(2, 5)
    results = alike((aten.cat.default, [x, x], 1), (aten.cat.default, [x, y], 1), (aten.cat.default, [x, x, y], 1))
    assert [shape for shape, _, _ in results] == [(2, 6), (2, 8), (2, 11)]


def test_several_results_and_absent_ones() -> None:
    x, weight = meta(2, 3, 8, 8), meta(4, 3, 3, 3)
    gradient = meta(2, 4, 6, 6)
    settings = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    for mask in ([True, True, False], [False, True, True]):
        for _ in range(2):
            results = run(aten.convolution_backward.default, gradient, x, weight, [4], *settings, mask)
            assert type(results) is tuple
            assert [None if t is None else tuple(t.shape) for t in results] == [
                shape if wanted else None
                for shape, wanted in zip([(2, 3, 8, 8), (4, 3, 3, 3), (4,)], mask, strict=True)
            ]
    for _ in range(2):
        values, indices = run(aten.topk.default, x, 2)
        assert indices.dtype is torch.int64 and values.shape == (2, 3, 8, 2)


def test_views_share_memory_every_time() -> None:
    x = meta(2, 3, 4)
    for op, *args in [
        (aten.view.default, [6, 4]),
        (aten.transpose.int, 0, 1),
        (aten._unsafe_view.default, [6, 4]),
        (aten.detach.default,),
        (aten.lift_fresh.default,),
        (aten.expand.default, [2, 3, 4]),
    ]:
        for _ in range(2):
            assert run(op, x, *args).untyped_storage()._cdata == x.untyped_storage()._cdata, op
    for _ in range(2):
        assert all(t.untyped_storage()._cdata == x.untyped_storage()._cdata for t in run(aten.split.Tensor, x, 1, 1))


def test_what_is_written_in_place_is_returned() -> None:
    for _ in range(2):
        x, y = meta(2, 3), meta(3)
        assert run(aten.add_.Tensor, x, y) is x and x.shape == (2, 3)
        assert run(aten.relu_.default, x) is x
        assert run(aten.copy_.default, x, x.half()) is x
    for _ in range(2):  # an error stays one
        with pytest.raises(RuntimeError):
            run(aten.add_.Tensor, meta(3), meta(2, 3))


def test_memory_that_is_read_and_written_is_torchs_to_judge() -> None:
    x = meta(4, 3)
    assert known_results.key_of(aten.add_.Tensor, describe(aten.add_.Tensor), (x, x[:1]), {}, [x, x[:1]]) is None


def test_resizing_in_place_happens_every_time() -> None:
    for _ in range(2):
        x = meta(2, 3)
        run(aten.resize_.default, x, [5, 5])
        assert x.shape == (5, 5)
        y = meta(2, 3)
        run(aten.squeeze_.default, z := y.unsqueeze(0))
        assert z.shape == (2, 3)


def test_outs_are_written_every_time() -> None:
    for _ in range(2):
        out = meta(0)
        assert run(aten.add.out, meta(2, 3), meta(3), out=out) is out and out.shape == (2, 3)


def test_other_tensors_are_torchs_own_affair() -> None:
    plain = meta(2, 3)
    for tensor in (
        plain.to(torch.complex64),
        torch.empty(2, 3),
        torch.sparse_coo_tensor(size=(2, 3), device="meta", check_invariants=False),
        plain.as_subclass(Marked),
    ):
        assert known_results.key_of(aten.sin.default, describe(aten.sin.default), (tensor,), {}, [tensor]) is None
    assert known_results.key_of(aten.sin.default, describe(aten.sin.default), (plain,), {}, [plain]) is not None
    generator = (plain, torch.Generator())
    assert known_results.key_of(aten.sin.default, describe(aten.sin.default), generator, {}, [plain]) is None


X = torch.randn(4, 3)


class Marked(torch.Tensor):
    pass


def test_results_that_cannot_be_made_again_are_not_kept() -> None:
    x, both = meta(4), meta(4)
    key = known_results.key_of(aten.sin.default, describe(aten.sin.default), (x,), {}, [x])
    assert key is not None
    for result in (
        meta(8)[:4],
        meta(8)[4:],
        [x],
        (both, both),
        3,
        (3, both),
        None,
        torch.empty(4),
        both.to(torch.cfloat),
    ):
        known_results.remember(key, [x], result)
        assert known_results.recall(key, [x]) is None
    known_results.remember(key, [x], both)
    assert form(known_results.recall(key, [x])) == form(both)


def test_no_more_is_kept_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_results, "_LIMIT", 3)
    for size in range(1, 10):
        run(aten.cumsum.default, meta(size), 0)
        assert len(known_results._known) <= 3


def test_what_depends_on_the_trace_is_asked_of_every_trace() -> None:
    """Masks are bounded, with a warning; and other libraries' ops may answer as they like."""
    module = Wrapped(lambda self, x: x[x > 0].cumsum(0))
    graphs = [capture(module, torch.randn(4, 3)) for _ in range(2)]
    assert all("boolean index" in " ".join(graph.warnings) for graph in graphs)
    assert graphs[0] == graphs[1]
    sizes = iter([2, 3, 4, 5, 6, 7])

    @torch.library.custom_op("gnnperf_tests::moody", mutates_args=())
    def moody(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    moody.register_fake(lambda x: x.new_empty(next(sizes)))
    op = torch.ops.gnnperf_tests.moody.default
    assert [run(op, meta(4)).shape for _ in range(3)] == [(2,), (3,), (4,)]


def test_a_second_capture_equals_the_first_and_touches_nothing() -> None:
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x))
        y += x[:, :1]
        y[:, 0] *= 2
        y.relu_()
        return self.dropout(y).flatten(1) + torch.rand(1, device=x.device)

    module = Wrapped(forward, conv=nn.Conv2d(3, 4, 3, padding=1), norm=nn.BatchNorm2d(4), dropout=nn.Dropout(0.5))
    kept = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    x = torch.randn(4, 3, 8, 8)
    state = torch.get_rng_state()
    graphs = [capture(module, x, mode="training", optimizer="adam").to_json() for _ in range(2)]
    assert graphs[0] == graphs[1]
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(tensor, kept[name]) for name, tensor in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    assert "relu" in ops(capture(module, x))


def test_autograd_sees_writes_in_place_whether_or_not_they_are_remembered() -> None:
    for _ in range(2):
        capture(Wrapped(lambda self, x: self.linear(x).mul_(2).relu_(), linear=nn.Linear(3, 3)), X, mode="training")
        with pytest.raises(ValueError, match="modified by an inplace operation"):
            capture(Wrapped(lambda self, x: self.linear(x).relu_().mul_(2), linear=nn.Linear(3, 3)), X, mode="training")
