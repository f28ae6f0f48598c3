import collections
import threading

import pytest
import torch
from torch import nn

from gnnperf.capture import capture
from gnnperf.capture.module_copy import meta_copy, meta_inputs


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.tied = self.linear.weight
        self.register_buffer("buffer", torch.arange(3.0), persistent=False)
        self.plain = torch.ones(2, dtype=torch.float64)
        self.kept = {"list": [torch.ones(5), "text"], "ordered": collections.OrderedDict(a=torch.ones(6))}
        self.computed = self.linear.weight * 2  # no leaf: deepcopy alone refuses it

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def test_everything_but_the_data_is_copied() -> None:
    module = Holder().eval()
    module.linear.weight.requires_grad_(False)
    copied = meta_copy(module)
    assert type(copied) is Holder and not copied.training
    tensors = [copied.linear.weight, copied.buffer, copied.plain, copied.kept["list"][0], copied.kept["ordered"]["a"]]
    assert all(t.is_meta for t in (*tensors, copied.computed))
    assert copied.tied is copied.linear.weight and copied.kept["list"][1] == "text"
    assert copied.plain.dtype == torch.float64
    assert not copied.linear.weight.requires_grad and copied.linear.bias.requires_grad
    assert isinstance(copied.linear.weight, nn.Parameter)
    assert copied.state_dict().keys() == module.state_dict().keys()
    assert module.linear.weight.device.type == "cpu" and module.buffer.tolist() == [0, 1, 2]


def test_strides_are_kept() -> None:
    module = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)
    assert meta_copy(module).weight.stride() == module.weight.stride()


def test_what_cannot_be_copied_is_an_error_with_the_remedy() -> None:
    module = nn.Linear(3, 4)
    module.lock = threading.Lock()
    with pytest.raises(ValueError, match=r"cannot copy Linear .*\(TypeError: .*lock.*\); give gnnperf a module that"):
        capture(module, torch.randn(2, 3))
    with pytest.raises(ValueError, match="lazy parameters; run it once"):
        capture(nn.LazyLinear(4), torch.randn(2, 3))


def test_inputs_scale_where_their_leading_dimension_is_the_batch() -> None:
    inputs = {"x": torch.ones(4, 3), "y": [torch.ones(5, 4), 7, None], "ids": torch.ones(4, 2, dtype=torch.int64)}
    converted = meta_inputs(inputs, 4, 8, torch.float16)
    assert converted["x"].shape == (8, 3) and converted["x"].dtype == torch.float16 and converted["x"].is_meta
    assert converted["y"][0].shape == (5, 4) and converted["y"][1:] == [7, None]
    assert converted["ids"].shape == (8, 2) and converted["ids"].dtype == torch.int64


def test_inputs_keep_their_memory_format() -> None:
    x = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for batch_size in (2, 6):
        converted = meta_inputs(x, 2, batch_size, None)
        assert converted.is_contiguous(memory_format=torch.channels_last), batch_size
    expanded = torch.ones(3).expand(2, 3)
    assert meta_inputs(expanded, 2, 2, None).stride() == (0, 1)
