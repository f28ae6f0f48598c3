import pytest
import torch

from gnnperf.capture import aten
from gnnperf.cost import has_rule

ops = torch.ops.aten


@pytest.mark.parametrize(
    ("op", "name", "written", "overwritten", "views"),
    [
        (ops.add.Tensor, "add", (), False, False),
        (ops.add_.Tensor, "add", (0,), False, False),
        (ops.add.out, "add", (3,), True, False),
        (ops.copy_.default, "copy", (0,), True, False),
        (ops.zero_.default, "zero", (0,), True, False),
        (ops.view.default, "view", (), False, True),
        (ops.transpose_.default, "transpose", (0,), False, True),
        (ops.split.Tensor, "split", (), False, True),
        (ops.__ilshift__.Tensor, "ilshift", (0,), False, False),
        (ops.native_batch_norm.default, "native_batch_norm", (), False, False),
        (ops.convolution.default, "convolution", (), False, False),
    ],
)
def test_what_an_overload_does(
    op: torch._ops.OpOverload, name: str, written: tuple[int, ...], overwritten: bool, views: bool
) -> None:
    info = aten.describe(op)
    assert (info.name, info.written, info.overwritten, info.views) == (name, written, overwritten, views)


def test_defaults_that_the_dispatcher_leaves_out_are_known() -> None:
    x = torch.empty(2, 8, device="meta")
    assert aten.describe(ops.topk.default).defaults["dim"] == -1
    _, _, attributes = aten.canonical(aten.describe(ops.topk.default), (x, 2), {}, [x], [x])
    assert attributes == {"k": 2, "axes": [1]}


def test_pooling_windows_do_not_overlap_by_default() -> None:
    x = torch.empty(1, 2, 8, 8, device="meta")
    _, _, attributes = aten.canonical(aten.describe(ops.max_pool2d_with_indices.default), (x, [2, 2]), {}, [x], [x])
    assert attributes["stride"] == attributes["kernel_size"] == [2, 2]


def test_every_canonical_op_has_a_cost_rule() -> None:
    assert sorted({op for op, _ in aten._TABLE.values() if not has_rule(op)}) == []


def test_every_name_in_the_table_is_an_op_of_torch() -> None:
    unheard = {
        name
        for name in aten._TABLE
        if not (hasattr(ops, name) or hasattr(ops, f"{name}_") or hasattr(ops, f"__{name}__"))
    }
    assert unheard <= {"_reshape_copy", "_grouped_mm", "contiguous", "relu6"}  # of some versions only
