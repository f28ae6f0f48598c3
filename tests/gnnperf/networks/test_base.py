import subprocess
import sys

import pytest
import torch

from gnnperf import networks
from gnnperf.networks import base


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("timm:resnet50", True),
        ("torchvision:resnet18", True),
        ("hf:gpt2", True),
        ("model.onnx", False),
        ("package.module:factory", False),
        ("timm", False),
        ("C:\\models\\resnet.onnx", False),
    ],
)
def test_zoo_names_are_told_from_files_and_factories(source: str, expected: bool) -> None:
    assert networks.is_zoo_name(source) is expected


@pytest.mark.parametrize("prefix", networks.PREFIXES)
@pytest.mark.parametrize("batch_size", [0, -1, 2.0, True, "8", None])
def test_batch_size_must_be_a_positive_whole_number(prefix: str, batch_size: object) -> None:
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1"):
        networks.build(f"{prefix}:anything", batch_size=batch_size)  # type: ignore[arg-type]


def test_other_arguments_are_checked_before_anything_is_imported() -> None:
    with pytest.raises(ValueError, match="image_size must be a whole number"):
        networks.build("timm:resnet50", image_size=0)
    with pytest.raises(ValueError, match="dimension 'seq' must be a whole number"):
        networks.build("hf:gpt2", dims={"seq": -3})
    with pytest.raises(ValueError, match="mode must be one of inference, training"):
        networks.build("hf:gpt2", mode="serving")
    with pytest.raises(ValueError, match="leave it out"):
        networks.build("timm:repvgg_a2", mode="training", reparameterize=True)
    with pytest.raises(ValueError, match="timm:NAME, torchvision:NAME, hf:NAME"):
        networks.build("resnet50")


@pytest.mark.parametrize(
    ("prefix", "library"), [("timm", "timm"), ("torchvision", "torchvision"), ("hf", "transformers")]
)
def test_a_missing_library_is_named_with_the_remedy(prefix: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [m for m in sys.modules if m.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=rf"`{prefix}:` networks need {library}: pip install 'gnnperf\[zoo\]'"):
        networks.build(f"{prefix}:resnet50")


def test_asking_for_a_name_imports_no_library() -> None:
    code = (
        "import sys; from gnnperf.networks import is_zoo_name as f; f('timm:x'); print('transformers' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_a_constructor_that_reads_values_is_built_on_the_cpu_without_its_weights() -> None:
    class Reads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.width = int(torch.arange(9).sum().item())
            self.first = torch.nn.Linear(self.width, 4)
            assert self.first.weight.is_meta or torch.empty(0).is_meta
            self.second = torch.nn.Linear(self.width, 4)
            self.second.weight = self.first.weight
            self.register_buffer("steps", torch.arange(3))

    state = torch.random.get_rng_state()
    module = base.on_meta(Reads)
    assert isinstance(module.first, torch.nn.Linear) and module.first.weight.shape == (4, 36)
    assert module.second.weight is module.first.weight
    assert all(t.is_meta for t in (*module.parameters(), *module.buffers()))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.nn.Linear(2, 2).weight.is_meta


def test_an_error_of_the_constructor_itself_comes_through() -> None:
    def fail() -> torch.nn.Module:
        raise RuntimeError("no such thing")

    with pytest.raises(RuntimeError, match="no such thing"):
        base.on_meta(fail)
