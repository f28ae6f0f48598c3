import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from data_collection.import_measurements import import_measurements
from gnnperf.records import read_records

ROOT = Path(__file__).parents[2]
CELL = "|none~0|+|none~0|none~1|+|none~0|none~1|skip_connect~2|"


def _configure(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("import_measurements", list(overrides))


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def neusight(tmp_path) -> Path:
    folder = tmp_path / "NeuSight"
    _text(folder / "scripts/asplos/label/Tesla_T4/gpt2_large-inf-1024-4.json", json.dumps({"e2e_latency": 9.0}))
    _text(folder / "scripts/asplos/label/Tesla_T4/gpt2_large-inf-1024-4.csv", "op,Name,dtype,latency\ncall,a,x,1.5\n")
    _text(folder / "scripts/asplos/label/Tesla_T4/gpt2_large-inf-1024-4-dp4.json", "{}")
    rows = [f"relu,{time},Tesla T4,p2.1.0,{batch},8" for batch, time in enumerate((0.5, 0.6, 0), start=1)]
    table = "\n".join(["OPName,Latency,Device,Torch Version,B,H", *rows])
    _text(folder / "scripts/asplos/data/dataset/train/collect/relu/p2.1.0/Tesla T4.csv", table)
    return folder


@pytest.fixture
def cells(tmp_path) -> Path:
    folder = tmp_path / "HELP" / "data" / "nasbench201"
    (folder / "latency").mkdir(parents=True)
    torch.save({CELL: 0}, folder / "str_arch2idx.pt")
    torch.save([3], folder / "latency" / "pixel2.pt")
    return tmp_path / "HELP"


def test_clones_become_one_file_of_records(neusight, cells, tmp_path, capsys):
    output = tmp_path / "records.parquet"
    records = import_measurements(_configure(f"clones=[{neusight},{cells}]", f"output={output}"))
    assert read_records(output) == records
    assert Counter(r.network.partition(":")[0] for r in records) == {"hf": 1, "layer": 2, "nasbench201": 1}
    assert [r.node_times_ms for r in records if r.network == "hf:gpt2-large"] == [(("a", 1.5),)]
    printed = capsys.readouterr().out
    lines = [line.split(maxsplit=1) for line in printed.splitlines() if line and "importing" not in line]
    assert lines == [
        ["1", f"transformers of NeuSight in {neusight}"],
        ["skipped", "1  several GPUs"],
        ["2", f"kernels of NeuSight in {neusight}"],
        ["skipped", "1  no measurement"],
        ["1", f"cells of HELP in {cells}"],
        ["4", f"records in {output}"],
    ]


def test_a_limit_reaches_the_importers(neusight, tmp_path):
    overrides = [f"clones=[{neusight}]", f"output={tmp_path / 'records.parquet'}", "limit_per_file=1"]
    assert Counter(r.network for r in import_measurements(_configure(*overrides)))["layer:relu,features=8"] == 1


def test_what_cannot_be_imported_is_one_line(neusight, tmp_path):
    output = f"output={tmp_path / 'records.parquet'}"
    (tmp_path / "empty").mkdir()
    for overrides, message in (
        ([output], r"no measurements: give clones=\[FOLDER"),
        ([output, f"clones=[{tmp_path}/none]"], "there is no folder '.*none'"),
        (
            [output, f"clones=[{tmp_path}/empty]"],
            "no measurements in '.*empty': a clone of a known repository has one of",
        ),
        ([output, f"clones=[{neusight}]", "limit_per_file=few"], "limit_per_file must be at least 1, not few"),
        ([f"output={tmp_path}/none/x", f"clones=[{neusight}]"], "cannot write .* there is no folder"),
    ):
        with pytest.raises(ValueError, match=message):
            import_measurements(_configure(*overrides))
    assert not (tmp_path / "records.parquet").exists()


def test_a_users_mistake_is_one_line_and_exit_code_2(tmp_path):
    command = [sys.executable, "-m", "data_collection.import_measurements", f"hydra.run.dir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: no measurements: give clones=[FOLDER,...]")


def test_the_real_clones_are_read(real_clone, tmp_path):
    names = ("NEUSIGHT", "sitar-lab/NeuSight"), ("HELP", "HayeonLee/HELP")
    clones = [real_clone(f"GNNPERF_{variable}_RESULTS", repository) for variable, repository in names]
    quoted = ",".join(f"'{clone}'" for clone in clones)
    output = tmp_path / "records.parquet"
    records = import_measurements(_configure(f"clones=[{quoted}]", f"output={output}", "limit_per_file=20"))
    assert read_records(output) == records and len({r.source for r in records}) == 2
