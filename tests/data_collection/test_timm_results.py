import json
import re
from pathlib import Path

import pytest

from data_collection.imports import lines
from data_collection.timm_results import import_timm, names_from_file, names_from_timm
from gnnperf.hardware import device_ids

NAMES = {
    "resnet50": ("resnet", "resnet50"),
    "old_vit": ("vision_transformer", "new_vit"),
    "lost": ("resnet", None),
}
INFER = (
    "model,infer_img_size,infer_samples_per_sec,infer_step_time,infer_batch_size,param_count,infer_gmacs,infer_macts"
)
TRAIN = "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count"


def _write(folder: Path, name: str, *rows: str) -> None:
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results" / name).write_text("\n".join(rows) + "\n")


def test_a_row_of_inference(tmp_path):
    name = "benchmark-infer-amp-nhwc-pt240-cu124-rtx3090.csv"
    _write(tmp_path, name, INFER, "resnet50.a1_in1k,224,2000.0,999.0,256,25.56,4.11,11.11")
    (record,) = import_timm(tmp_path, NAMES).records
    record.validate()
    assert record.network == "timm:resnet50" and record.family == "resnet"
    assert record.time_ms == 128.0  # from the rate: the step time of the file is not always one batch
    assert (record.batch_size, record.image_size, record.parameter_count) == (256, 224, 25_560_000)
    assert (record.device, record.precision, record.mode) == ("rtx-3090", "amp", "inference")
    assert (record.version, record.compiled, record.memory_format) == ("2.4", False, "channels_last")
    assert (record.source_file, record.source_line) == (f"results/{name}", 2)
    assert not record.reparameterized


def test_a_row_of_training(tmp_path):
    name = "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv"
    _write(tmp_path, name, TRAIN, "resnet50,500.0,7,64,176,25.56")
    (record,) = import_timm(tmp_path, NAMES).records
    assert (record.mode, record.version, record.time_ms, record.image_size) == ("training", "1.12", 128.0, 176)
    assert "backward" in record.label


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("infer-fp32-nchw-pt221-cpu-i9_10940x-dynamo", ("i9-10940x", "fp32", "2.2", True, "channels_first")),
        ("infer-amp_bf16-nchw-pt291-cu130-pro6000maxq-dynamo", ("rtx-pro-6000-max-q", "amp_bf16", "2.9", True)),
        ("infer-amp-nchw-pt291-cu128-4090", ("rtx-4090", "amp", "2.9", False, "channels_first")),
        ("infer-amp-nhwc-pt113-cu117-rtx4090", ("rtx-4090", "amp", "1.13", False, "channels_last")),
        ("infer-fp16-nhwc-pt1121-cu117-rtx4090", ("rtx-4090", "fp16", "1.12")),
        ("infer-fp16-nhwc-pt2100-cu130-rtx4090", ("rtx-4090", "fp16", "2.10")),
        ("infer-fp16-nhwc-pt190-cu111-rtx3090", ("rtx-3090", "fp16", "1.9")),
    ],
)
def test_the_file_name_says_where_it_ran(tmp_path, name, expected):
    _write(tmp_path, f"benchmark-{name}.csv", INFER, "resnet50,224,2000.0,128.0,256,25.56,4.11,11.11")
    (record,) = import_timm(tmp_path, NAMES).records
    found = (record.device, record.precision, record.version, record.compiled, record.memory_format)
    assert found[: len(expected)] == expected
    assert record.reparameterized == ("pt291" in name)
    assert record.fast_norm == ("amp" in name)


def test_what_is_skipped_is_counted_by_reason(tmp_path):
    _write(
        tmp_path,
        "benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv",
        INFER,
        "old_vit.tag,224,100,10,1,1.0,1,1",
        "lost,224,100,10,1,1.0,1,1",
        "never_heard,224,100,10,1,1.0,1,1",
        "resnet50,224,nan,nan,256,25.56,4.11,11.11",
        "resnet50,224,,,,25.56,4.11,11.11",
        "resnet50,224,0.0,inf,256,25.56,4.11,11.11",
    )
    for name in ("benchmark-infer-amp-nchw-pt240-cu124-mystery.csv", "benchmark-infer-fp7-nchw-pt240-cu124-4090.csv"):
        _write(tmp_path, name, INFER, "resnet50,224,1,1,1,1,1,1", "resnet50,224,1,1,1,1,1,1")
    _write(tmp_path, "benchmark-odd.csv", "something,else", "1,2")
    imported = import_timm(tmp_path, NAMES)
    assert [r.network for r in imported.records] == ["timm:new_vit"]
    assert imported.skipped == {
        "architecture gone from timm": 1,
        "architecture not known": 1,
        "no measurement": 3,
        "file name not understood or device not known": 5,
    }
    printed = list(lines(imported.skipped))
    assert len(printed) == 4 and re.fullmatch(r"skipped +5  file name not understood.*", printed[0])


def test_wrong_folders_and_files_are_errors_of_one_line(tmp_path):
    with pytest.raises(ValueError, match="give the folder of a clone"):
        import_timm(tmp_path, NAMES)
    _write(tmp_path, "benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv", "model,other", "resnet50,1")
    with pytest.raises(ValueError, match=r"rtx4090\.csv:2: not a row of benchmark results .*infer_batch_size"):
        import_timm(tmp_path, NAMES)
    _write(tmp_path, "benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv", INFER, "resnet50,224,fast,1,1,1,1,1")
    with pytest.raises(ValueError, match="not a row of benchmark results"):
        import_timm(tmp_path, NAMES)


def test_names_from_a_file(tmp_path):
    path = tmp_path / "names.json"
    path.write_text(json.dumps({name: list(pair) for name, pair in NAMES.items()}))
    assert names_from_file(path) == NAMES
    for content in ("[", "[1]", '{"resnet50": "resnet"}', '{"resnet50": 3}'):
        path.write_text(content)
        with pytest.raises(ValueError, match="does not map names"):
            names_from_file(path)
    with pytest.raises(ValueError, match="cannot read the names"):
        names_from_file(tmp_path / "none.json")


def test_the_installed_timm_knows_names_and_old_names():
    pytest.importorskip("timm")
    names = names_from_timm()
    assert names["resnet50"] == ("resnet", "resnet50")
    assert names["vit_base_patch16_224"] == ("vision_transformer", "vit_base_patch16_224")
    retired = {old: present for old, (_, present) in names.items() if present != old}
    assert all(present is None or present in names for present in retired.values())
    assert "vit_huge_patch14_224_in21k" in retired


def test_the_public_files_are_read_whole(shared_folder):
    clone = shared_folder / "data" / "huggingface+pytorch-image-models"
    names = names_from_file(shared_folder / "benchmarks" / "families.json")
    imported = import_timm(clone, names)
    files = list((clone / "results").glob("*.csv"))
    rows = sum(len(path.read_text().splitlines()) - 1 for path in files)
    assert len(imported.records) + imported.skipped.total() == rows
    assert len(imported.records) > 0.99 * rows
    assert {r.source_file for r in imported.records} == {f"results/{path.name}" for path in files}
    assert {r.device for r in imported.records} <= set(device_ids())
    for record in imported.records:
        record.validate()
