import threading
from typing import Any

import torch
from torch import nn

from gnnperf.capture import composites  # registers the ops
from gnnperf.capture.interception import find_op, intercepting, suspended

assert composites


class Recorder:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def intercept(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.seen.append(op.__name__)
        return op(*args, **kwargs)


X, LAYER = torch.randn(2, 3), nn.Linear(3, 4)


def test_ops_are_seen_above_autograd_and_only_inside() -> None:
    recorder = Recorder()
    LAYER(X)
    with intercepting(recorder):
        y = LAYER(X).softmax(-1).relu()
    LAYER(X)
    assert recorder.seen == ["linear.default", "softmax.int"]
    assert y.requires_grad
    y.sum().backward()
    assert recorder.seen == ["linear.default", "softmax.int"]


def test_ops_inside_of_an_intercepted_op_are_not_seen() -> None:
    recorder = Recorder()
    with intercepting(recorder):
        torch.einsum("ij,jk->ik", X, X.T)
    assert recorder.seen == ["einsum.default"]


def test_interceptors_nest_and_come_back() -> None:
    outer, inner = Recorder(), Recorder()
    with intercepting(outer):
        try:
            with intercepting(inner):
                LAYER(X)
                raise KeyError
        except KeyError:
            pass
        LAYER(X)
        with suspended():
            LAYER(X)
    assert (len(inner.seen), len(outer.seen)) == (1, 1)


def test_other_threads_are_not_intercepted() -> None:
    recorder = Recorder()
    with intercepting(recorder):
        thread = threading.Thread(target=LAYER, args=(X,))
        thread.start()
        thread.join()
    assert recorder.seen == []


def test_ops_that_this_torch_lacks_are_none() -> None:
    assert find_op("add.Tensor") is torch.ops.aten.add.Tensor
    assert find_op("linear") is torch.ops.aten.linear.default
    assert find_op("never_heard_of") is None and find_op("add.never_heard_of") is None
