import sys

import pytest

from gnnperf import sources
from gnnperf.capture import capture

GOOD = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()), torch.zeros(2, 4)

class Makers:
    make = staticmethod(make)

def boom():
    raise KeyError("no such\\nlayer")

def leave():
    raise SystemExit(3)

class Leaving(torch.nn.Module):
    def forward(self, x):
        raise SystemExit("stop")

def leaving():
    return Leaving(), torch.zeros(2, 4)

class Halves(torch.nn.Module):
    def forward(self, x):
        return torch.cat([part.relu() for part in x.split(4)])

def halves():
    return Halves(), torch.zeros(4, 4)

def alone():
    return torch.nn.Linear(4, 8)

def misfit():
    return torch.nn.Linear(4, 8), torch.zeros(2, 5)

number = 3
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A folder with modules of the user, as the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "user_nets.py").write_text(GOOD)
    (tmp_path / "user_broken.py").write_text("import torch\nraise RuntimeError('not today')\n")
    (tmp_path / "user_lacks.py").write_text("import a_library_that_is_not_there\n")
    yield tmp_path
    for name in ("user_nets", "user_broken", "user_lacks"):
        sys.modules.pop(name, None)


@pytest.fixture
def graph_file(tmp_path, small_graph):
    small_graph.save(tmp_path / "net.json")
    return str(tmp_path / "net.json")


def test_load_reads_a_saved_graph(graph_file, small_graph):
    assert sources.load(graph_file) == small_graph
    assert sources.load(graph_file, dims={"batch": 7}) == small_graph.rescale(7)


def test_load_knows_no_other_dimension(graph_file):
    with pytest.raises(ValueError, match="has no dimension 'seq': a saved graph has only 'batch'"):
        sources.load(graph_file, dims={"seq": 7})


def test_load_says_what_is_wrong_with_a_file(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read graph file .*absent.json.*: No such file"):
        sources.load(tmp_path / "absent.json")
    with pytest.raises(ValueError, match=r"absent.onnx.*: No such file"):
        sources.load(tmp_path / "absent.onnx")
    (tmp_path / "net.onnx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"\.onnx files are not supported yet"):
        sources.load(tmp_path / "net.onnx")


def test_zoo_captures_by_name():
    graph = sources.zoo("timm:resnet18", batch_size=2, image_size=64, precision="fp16")
    assert (graph.name, graph.batch_size, graph.precision) == ("timm:resnet18", 2, "fp16")
    assert graph.inputs[0].shape == (2, 3, 64, 64)
    assert graph.parameter_count == 11_689_512


def test_from_factory_captures_what_it_returns(code):
    graph = sources.from_factory("user_nets:make")
    assert [node.op for node in graph.nodes] == ["linear", "relu"]
    assert (graph.name, graph.batch_size) == ("user_nets:make", 2)
    assert sources.from_factory("user_nets:Makers.make", batch_size=5).inputs[0].shape == (5, 4)
    assert sources.from_factory("user_nets:make", precision="fp16").inputs[0].dtype == "float16"


def test_a_factory_is_captured_at_the_batch_that_is_asked_for(code):
    graph = sources.from_factory("user_nets:halves", batch_size=8)
    assert [node.op for node in graph.nodes] == ["relu", "relu", "concat"]


def test_the_working_directory_is_searched_for_the_factory_only(code):
    before = list(sys.path)
    sources.from_factory("user_nets:make")
    assert sys.path == before


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("user_nets:boom", r"user_nets:boom raised KeyError: 'no such.*layer' \(line 11 of user_nets.py\)"),
        ("user_nets:leave", "user_nets:leave raised SystemExit: 3"),
        ("user_nets:leaving", "user_nets:leaving: the module raised SystemExit: stop"),
        ("user_nets:alone", r"must return \(module, example_inputs\), and returned a module alone"),
        ("user_nets:number", "user_nets:number is not callable"),
        ("user_nets:absent", "user_nets has no 'absent'"),
        ("user_nets:misfit", "user_nets:misfit does not run on the given input"),
        ("user_broken:make", "importing user_broken failed: RuntimeError: not today"),
        ("user_lacks:make", "importing user_lacks failed: ModuleNotFoundError: .*a_library_that_is_not_there"),
        ("user_absent:make", "there is no module 'user_absent'"),
        ("not a factory", "is no package.module:factory"),
    ],
)
def test_what_a_factory_does_wrong_is_one_line(code, reference, message):
    with pytest.raises(ValueError, match=message) as caught:
        sources.from_factory(reference)
    assert "\n" not in str(caught.value)


def test_graph_of_finds_each_kind(code, graph_file, small_graph):
    assert sources.graph_of(graph_file) == small_graph
    assert sources.graph_of(graph_file, batch_size=3).batch_size == 3
    assert sources.graph_of(graph_file, precision="fp32", mode="inference") == small_graph
    assert sources.graph_of("user_nets:make", batch_size=3).batch_size == 3
    assert sources.graph_of("timm:resnet18", image_size=32).inputs[0].shape == (1, 3, 32, 32)


def test_a_file_comes_before_a_factory(code, small_graph):
    small_graph.save(code / "user_nets:make")
    assert sources.graph_of("user_nets:make") == small_graph


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("FILE", {"image_size": 32}, "image size is an option of zoo networks"),
        ("FILE", {"precision": "fp16"}, "was captured with precision fp32, not fp16"),
        ("FILE", {"mode": "training"}, "was captured with mode inference, not training"),
        ("FILE", {"dims": {"seq": 3}}, "has no dimension 'seq'"),
        ("FILE", {"batch_size": 0}, "batch size must be a positive integer, not 0"),
        ("user_nets:make", {"image_size": 32}, "image size is an option of zoo networks"),
        ("user_nets:make", {"dims": {"seq": 3}}, "set seq in the factory"),
        ("user_nets:make", {"batch_size": 0}, "batch size must be a positive integer, not 0"),
        ("timm:resnet18", {"batch_size": 0}, "batch_size must be a whole number of at least 1, not 0"),
        ("timm:resnet18", {"dims": {"seq": 3}}, "has no dimension 'seq'"),
        ("timm:resnet18", {"optimizer": "sgd"}, "an optimizer belongs to mode='training'"),
        ("timm:resnet19", {}, "timm:resnet19 is unknown: did you mean .*resnet18"),
        ("resnet18", {}, "is no zoo name .timm:NAME.*no file, and no package.module:factory"),
        ("tim:resnet18", {}, "there is no module 'tim'.*no zoo prefix of that name"),
        ("absent.json", {}, "cannot read graph file 'absent.json'"),
    ],
)
def test_graph_of_refuses_what_does_not_apply(code, graph_file, source, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        sources.graph_of(graph_file if source == "FILE" else source, **options)
    assert "\n" not in str(caught.value)


def test_a_module_from_a_factory_is_captured_like_any_other(code, small_network):
    import torch

    (code / "user_nets.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(3, 4), {'input': torch.zeros(5, 3)}\n"
    )
    expected = capture(torch.nn.Linear(3, 4), torch.zeros(5, 3))
    assert sources.graph_of("user_nets:make").content_hash == expected.content_hash
