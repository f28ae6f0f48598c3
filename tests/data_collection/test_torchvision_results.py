import os
from pathlib import Path

import pytest

from data_collection.torchvision_results import import_torchvision
from gnnperf.hardware import device_ids


def _write(folder: Path, name: str, *rows: str) -> None:
    path = folder / "results" / "cards" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + "\n")


def test_the_median_of_each_network_is_a_record(tmp_path):
    _write(tmp_path, "TITAN Xp_1_gpus__half_model_train_benchmark.csv", "resnet18,vgg11_bn", "90,4", "30,5", "31,6")
    imported = import_torchvision(tmp_path)
    first, second = imported.records
    first.validate()
    assert (first.network, first.time_ms, first.family) == ("torchvision:resnet18", 31.0, "resnet")
    assert (second.network, second.time_ms, second.family) == ("torchvision:vgg11_bn", 5.0, "vgg")
    assert (first.device, first.precision, first.mode, first.batch_size) == ("titan-xp", "fp16", "training", 12)
    assert first.optimizer == "" and "backward" in first.label
    assert first.source_file == "results/cards/TITAN Xp_1_gpus__half_model_train_benchmark.csv"


@pytest.mark.parametrize(
    ("name", "device", "precision", "mode"),
    [
        ("GeForce GTX 1080 Ti_single_model_inference_benchmark.csv", "gtx-1080-ti", "fp32", "inference"),
        ("GeForce GTX 1080 Ti_double_model_training_benchmark.csv", "gtx-1080-ti", "fp64", "training"),
        ("GeForce RTX 2080 Ti_1_gpus__float_model_inference_benchmark.csv", "rtx-2080-ti", "fp32", "inference"),
        ("A100-SXM4-40GB_1_gpus__float_model_train_benchmark.csv", "a100-sxm4-40gb", "tf32", "training"),
    ],
)
def test_file_names_are_understood(tmp_path, name, device, precision, mode):
    _write(tmp_path, name, "alexnet", "1.5")
    (record,) = import_torchvision(tmp_path).records
    assert (record.device, record.precision, record.mode) == (device, precision, mode)
    assert record.device in device_ids()


def test_what_is_left_out_is_counted(tmp_path):
    _write(tmp_path, "TITAN Xp_2_gpus__half_model_train_benchmark.csv", "resnet18,resnet34", "1,2")
    _write(tmp_path, "Voodoo 2_1_gpus__half_model_train_benchmark.csv", "resnet18", "1")
    _write(tmp_path, "TITAN Xp_1_gpus__half_model_train_benchmark.csv", "resnet18,resnet34", "1,", "2,nan")
    imported = import_torchvision(tmp_path)
    assert len(imported.records) == 1
    assert imported.skipped == {
        "several GPUs": 2,
        "file name not understood or device not known": 1,
        "no measurement": 1,
    }


def test_damaged_files_and_wrong_folders_are_named(tmp_path):
    with pytest.raises(ValueError, match="give the folder of a clone"):
        import_torchvision(tmp_path)
    _write(tmp_path, "TITAN Xp_1_gpus__half_model_train_benchmark.csv", "resnet18", "fast")
    with pytest.raises(ValueError, match=r"benchmark\.csv: not a table of milliseconds"):
        import_torchvision(tmp_path)


def test_the_real_files_are_read_whole():
    shared = os.environ.get("GNNPERF_SHARED")
    if not shared:
        pytest.skip("set GNNPERF_SHARED to a folder with the public measurements")
    imported = import_torchvision(Path(shared) / "data" / "ryujaehun+pytorch-gpu-benchmark")
    assert {r.device for r in imported.records} == {"gtx-1080-ti", "rtx-2080-ti", "titan-xp", "a100-sxm4-40gb"}
    assert set(imported.skipped) <= {"several GPUs", "no measurement"}
    for record in imported.records:
        record.validate()
