import json
import logging
import os
import subprocess
import sys
import warnings

import pytest

import gnnperf
from gnnperf.cli import main
from gnnperf.hardware import device_ids

NETS = """
import logging, warnings
import torch

def make():
    print("made by the user")
    warnings.warn("noise")
    logging.getLogger("somebody").warning("noise")
    return torch.nn.Linear(4, 8), torch.zeros(2, 4)

def boom():
    raise RuntimeError("no such layer")

class Leaving(torch.nn.Module):
    def forward(self, x):
        raise SystemExit(3)

def leave():
    return Leaving(), torch.zeros(2, 4)

def misfit():
    return torch.nn.Linear(4, 8), torch.zeros(2, 5)

def stop():
    raise KeyboardInterrupt
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, small_graph):
    """The working directory, with a factory, a graph and a device file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "cli_nets.py").write_text(NETS)
    (tmp_path / "no-bandwidth.yaml").write_text(
        "kind: gpu\nunits: 4\nclock_hz: 1.0e+9\nvector_flops_per_s: {fp32: 1e12}\n"
    )
    small_graph.save("net.json")
    (tmp_path / "escaped.json").write_text(small_graph.to_json().replace('"module":"stem"', r'"module":"\u001b[31m"'))
    yield tmp_path
    sys.modules.pop("cli_nets", None)


@pytest.fixture
def run(folder, weights_folder, capsys):
    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def predict(run, weights_folder):
    return lambda source, *rest: run("predict", source, "--weights", weights_folder, *rest)


def test_predict_prints_a_table(predict):
    code, out, err = predict("net.json", "--device", "rtx-4090", "--device", "t4", "--top", 3)
    assert (code, err) == (0, "")
    assert out.startswith("net.json: inference, batch 2, fp32, torch 2.9, eager")
    assert "rtx-4090" in out and "t4" in out and "zero-shot" in out


def test_json_is_all_that_is_printed(predict):
    code, out, err = predict("cli_nets:make", "--device", "t4", "--batch-size", 6, "--json")
    content = json.loads(out)
    assert (code, content["source"]) == (0, "cli_nets:make")
    assert content["predictions"][0]["nodes"][0]["output_shape"] == [6, 8]
    assert err == "made by the user\n"


def test_csv(predict):
    code, out, err = predict("net.json", "--device", "t4", "--csv")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "device,node,module,op,phase,output_shape,flops,bytes,time_ms"


def test_files_are_written_beside_what_is_printed(predict, folder):
    files = ["--html", "o.html", "--trace", "o.trace.json", "--plot", "o.svg"]
    code, out, err = predict("net.json", "--device", "t4", "--json", *files)
    assert (code, err) == (0, "")
    assert json.loads(out)["predictions"]
    assert (folder / "o.html").read_text().startswith("<!doctype html>")
    assert json.loads((folder / "o.trace.json").read_text())["traceEvents"]
    assert (folder / "o.svg").read_bytes().startswith(b"<?xml")


def test_software_options_reach_the_prediction(predict):
    options = ["--compiled", "--memory-format", "channels_last", "--torch-version", "2.4"]
    _, out, _ = predict("net.json", "--device", "t4", "--json", *options)
    software = json.loads(out)["predictions"][0]["software"]
    assert (software["compiled"], software["memory_format"], software["version"]) == (True, "channels_last", "2.4")


def test_zoo_options_reach_the_network(predict):
    options = ["--batch-size", 2, "--image-size", 64, "--precision", "amp"]
    code, out, err = predict("timm:resnet18", "--device", "t4", "--json", *options)
    assert (code, err) == (0, "")
    nodes = json.loads(out)["predictions"][0]["nodes"]
    assert nodes[0]["op"] == "cast" and nodes[0]["output_shape"] == [2, 3, 64, 64]


def test_a_training_step_and_the_largest_batch_that_fits(predict):
    asked = ("timm:resnet18", "--device", "t4", "--mode", "training", "--optimizer", "adamw", "--max-batch")
    code, out, _ = predict(*asked, "--json", "--image-size", 64)
    (p,) = json.loads(out)["predictions"]
    assert code == 0 and {node["phase"] for node in p["nodes"]} == {"forward", "loss", "backward", "optimizer", ""}
    assert sum(node["time_ms"] for node in p["nodes"]) == pytest.approx(p["total_ms"])
    assert p["max_batch_size"] > 100
    code, out, _ = predict(*asked, "--image-size", 64)
    assert code == 0 and f"{p['max_batch_size']:,}" in out and "backward: layer" in out and "optimizer" in out


def test_what_does_not_fit_says_by_how_much_and_what_takes_the_room(predict):
    code, out, err = predict("torchvision:vgg16", "--device", "t4", "--mode", "training", "--batch-size", 512)
    assert code == 0 and "NO, it has" in out
    assert "GiB of memory, the device has 16.0 GiB, so" in err and "GiB are missing (activations" in err


def test_warnings_go_to_stderr(predict, folder):
    content = (folder / "net.json").read_text().replace('"relu"', '"frobnicate"')
    (folder / "odd.json").write_text(content)
    code, out, err = predict("odd.json", "--device", "t4", "--device", "l4", "--json")
    assert code == 0
    assert json.loads(out)["predictions"][0]["unknown_ops"] == {"frobnicate": 3}
    assert err == "gnnperf: warning: ops without a cost rule are priced by their bytes alone: frobnicate (3)\n"


def test_graph_saves_what_predict_reads(run, predict):
    code, out, err = run("graph", "cli_nets:make", "--batch-size", 3, "-o", "made.json")
    assert (code, out, err) == (0, "made.json: 1 ops, 40 parameters\n", "made by the user\n")
    assert gnnperf.load("made.json").batch_size == 3
    code, out, _ = predict("made.json", "--device", "t4", "--dim", "batch=5", "--json")
    assert json.loads(out)["predictions"][0]["nodes"][0]["output_shape"] == [5, 8]


def test_devices(run):
    code, out, err = run("devices")
    assert (code, err) == (0, "") and "h100-sxm5-80gb" in out
    code, out, err = run("devices", "--json")
    content = json.loads(out)
    assert [device["id"] for device in content] == list(device_ids())
    assert all(device["memory_bandwidth_bytes_per_s"] > 0 for device in content)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["predict", "--help"]])
def test_help_and_version_are_no_errors(run, arguments):
    code, out, err = run(*arguments)
    assert (code, err) == (0, "") and "gnnperf" in out


T4 = ["--device", "t4"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.json", *T4], "cannot read graph file 'absent.json': No such file or directory"),
        (["net.json", "--device", "rtx-4091"], "unknown device 'rtx-4091': did you mean rtx-4090"),
        (["timm:resnet5O", *T4], "timm:resnet5O is unknown: did you mean timm:resnet"),
        (["net.json", *T4, "--batch-size", "0"], "--batch-size: must be a whole number of at least 1, not '0'"),
        (["net.json", "--device", "no-bandwidth.yaml"], "no-bandwidth.yaml': the field 'memory_bandwidth_bytes_per_s'"),
        (["net.json", "--device", "absent.yaml"], "cannot read device file 'absent.yaml': No such file"),
        (["cli_nets:boom", *T4], "cli_nets:boom raised RuntimeError: no such layer (line 12 of cli_nets.py)"),
        (["cli_nets:misfit", *T4], "cli_nets:misfit does not run on the given input: "),
        (["cli_nets:leave", *T4], "cli_nets:leave: the module raised SystemExit: 3"),
        (["timm:resnet18", *T4, "--batch-size", str(2**62)], "timm:resnet18 cannot be built at this size: Storage"),
        (
            ["timm:resnet18", *T4, "--batch-size", str(2**64)],
            "--batch-size: must be a whole number of 64 bits, not '18",
        ),
        (
            ["net.json", *T4, "--batch-size", str(2**62)],
            "graph 'small' cannot be rescaled to batch 4611686018427387904:",
        ),
        (["/dev/zero", *T4], "cannot read graph file '/dev/zero': not a regular file"),
        (
            ["escaped.json", *T4],
            "escaped.json' is damaged: graph 'small': the module of node 'conv_0' has a line break or another",
        ),
        (["cli_nets:make", *T4, "--image-size", "32"], "image size is an option of zoo networks"),
        (["net.json", *T4, "--precision", "fp16"], "was captured with precision fp32, not fp16"),
        (["net.json", *T4, "--precision", "fp12"], "--precision: invalid choice: 'fp12'"),
        (["timm:resnet18", *T4, "--optimizer", "adamw"], "an optimizer belongs to mode='training'"),
        (["timm:resnet18", *T4, "--mode", "training", "--optimizer", "adm"], "--optimizer: invalid choice: 'adm'"),
        (["net.json", *T4, "--optimizer", "adamw"], "was captured with the optimizer that it has"),
        (["net.json", *T4, "--torch-version", "new"], "version must be a string such as '2.9', not 'new'"),
        (["net.json", *T4, "--torch-version", "1.13", "--compiled"], "compiled needs torch 2.0 or later"),
        (["net.json", *T4, "--dim", "seq"], "--dim: must be such as seq=128, not 'seq'"),
        (["net.json", *T4, "--dim", "seq=x"], "--dim: must be a whole number of at least 1, not 'x'"),
        (["net.json", *T4, "--dim", "batch=1", "--dim", "batch=2"], "a dimension is given twice"),
        (["net.json", *T4, "--json", "--csv"], "not allowed with argument"),
        (["net.json", *T4, "--html", "absent/o.html"], "there is no folder 'absent'"),
        (["net.json", *T4, "--html", "."], "cannot write '.': it is a folder"),
        (["net.json", *T4, "--plot", "o.bmp"], "a plot is written as one of .png, .svg, .pdf, not 'o.bmp'"),
        (["net.json", *T4, "--html", "o", "--trace", "o"], "two outputs would go to the same file"),
        (["net.json"], "the following arguments are required: --device"),
        (["net.json", *T4, "--colour"], "unrecognized arguments: --colour"),
        ([*T4], "the following arguments are required: SOURCE"),
    ],
)
def test_errors_of_the_user_are_one_line(run, folder, weights_folder, arguments, message):
    before = sorted(folder.iterdir())
    code, out, err = run("predict", "--weights", weights_folder, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("gnnperf: error: ") and err.endswith("\n") and err.count("\n") == 1
    assert message in err
    assert [path for path in sorted(folder.iterdir()) if path.name != "__pycache__"] == before


def test_absent_weights_are_an_error(run, folder):
    code, out, err = run("predict", "net.json", "--device", "t4", "--weights", folder)
    assert (code, out) == (2, "") and "there are no model weights in" in err and err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["predikt"], ["graph", "net.json"], ["graph", "net.json", "-o", "a/b"]])
def test_other_commands_fail_the_same_way(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and err.startswith("gnnperf: error: ") and err.count("\n") == 1


def test_a_failing_run_keeps_the_files_of_the_last(predict, folder, monkeypatch):
    (folder / "o.html").write_text("old")

    def fail(*_):
        raise ValueError("no plot")

    monkeypatch.setattr("gnnperf.report.plot.to_plot", fail)
    code, out, _ = predict("net.json", "--device", "t4", "--html", "o.html", "--plot", "o.png")
    assert (code, out) == (2, "")
    assert (folder / "o.html").read_text() == "old" and not (folder / "o.png").exists()


def test_an_interrupt_is_quiet(predict):
    assert predict("cli_nets:stop", "--device", "t4") == (130, "", "gnnperf: interrupted\n")


def test_the_process_is_left_as_it_was(predict):
    environment, filters, path = dict(os.environ), list(warnings.filters), list(sys.path)
    predict("cli_nets:make", "--device", "t4")
    assert (dict(os.environ), list(warnings.filters), list(sys.path)) == (environment, filters, path)
    assert logging.root.manager.disable == 0


def test_warnings_cannot_order_a_terminal_about(predict, folder):
    content = json.loads((folder / "net.json").read_text())
    (folder / "odd.json").write_text(json.dumps({**content, "warnings": ["a\n\x1b[31mb"]}))
    code, _, err = predict("odd.json", "--device", "t4")
    assert (code, err) == (0, "gnnperf: warning: a \\x1b[31mb\n")


def test_a_closed_pipe_is_quiet(folder, weights_folder):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "gnnperf", "devices", "--json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("module", ["gnnperf", "gnnperf.cli"])
def test_the_program_as_users_run_it(folder, weights_folder, module):
    command = [sys.executable, "-m", module, "predict", "net.json", "--device", "t4", "--weights", weights_folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout and "t4" in done.stdout
