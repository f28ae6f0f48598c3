import pytest
import torch
from torch import nn

from gnnperf.capture.module_path import ModulePath


class Failing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("inner")


class Translating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Failing()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.part(x)
        except KeyError:
            raise RuntimeError("outer") from None


def test_paths_follow_the_calls() -> None:
    path, seen = ModulePath(), []
    module = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()))
    for part in module.modules():
        part.register_forward_pre_hook(lambda *_: seen.append(path.current))
        part.register_forward_hook(lambda *_: seen.append(path.current))
    with path.follow(module):
        module(torch.ones(2))
    assert seen == ["", "0", "0", "1", "1.0", "1.0", "1", ""]
    assert path.current == ""


def test_names_that_a_terminal_would_obey_are_escaped() -> None:
    module = nn.Module()
    module.add_module("a\n\x1b[31m", part := nn.ReLU())
    path, seen = ModulePath(), []
    part.register_forward_pre_hook(lambda *_: seen.append(path.current))
    with path.follow(module):
        part(torch.ones(2))
    assert seen == [r"a\n\x1b[31m"]


def test_hooks_are_removed() -> None:
    module = nn.Sequential(nn.ReLU())
    with ModulePath().follow(module):
        assert module._forward_hooks and module[0]._forward_pre_hooks
    assert not any(h for m in module.modules() for h in (m._forward_hooks, m._forward_pre_hooks))


@pytest.mark.parametrize(
    ("module", "place"),
    [(nn.Sequential(nn.ReLU(), Failing()), "1"), (Failing(), ""), (nn.Sequential(Translating()), "0")],
)
def test_an_error_knows_the_innermost_module_that_it_left(module: nn.Module, place: str) -> None:
    path = ModulePath()
    try:
        raise OSError("the caller is handling another error")
    except OSError:
        with pytest.raises((KeyError, RuntimeError)) as raised, path.follow(module):
            module(torch.ones(2))
    assert path.of_error(raised.value) == place
    assert path.of_error(ValueError()) == ""
    assert path.current == ""
