from pathlib import Path

import pytest
import torch

import gnnperf
from data_collection.help_results import import_help
from gnnperf.records import read_records, write_records

CELLS = [f"|{op}~0|+|none~0|skip_connect~1|+|avg_pool_3x3~0|none~1|nor_conv_1x1~2|" for op in ("none", "nor_conv_3x3")]


def _save(folder: Path, name: str, content: object) -> None:
    path = folder / "data" / "nasbench201" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)


@pytest.fixture
def clone(tmp_path) -> Path:
    _save(tmp_path, "str_arch2idx.pt", {CELLS[1]: 1, CELLS[0]: 0})
    return tmp_path


def test_cells_in_the_order_of_the_index(clone):
    _save(clone, "latency/gold_6226.pt", [2.5, 7.5])
    records = import_help(clone).records
    assert [(r.network, r.time_ms, r.source_line) for r in records] == [
        (f"nasbench201:{CELLS[0]}", 2.5, 1),
        (f"nasbench201:{CELLS[1]}", 7.5, 2),
    ]
    (record, _) = records
    record.validate()
    assert (record.device, record.framework, record.version) == ("xeon-gold-6226", "torch", "1.8")
    assert (record.mode, record.precision, record.batch_size, record.image_size) == ("inference", "fp32", 1, 32)
    assert "ranks only" in record.label and record.family == "nasbench201"
    assert record.source_file == "data/nasbench201/latency/gold_6226.pt"
    assert gnnperf.zoo(record.network).inputs[0].shape == (1, 3, 32, 32)


@pytest.mark.parametrize(
    ("name", "device", "batch_size"),
    [
        ("1080ti_1", "gtx-1080-ti", 1),
        ("2080ti_32", "rtx-2080-ti", 32),
        ("titan_rtx_256", "titan-rtx", 256),
        ("titanx_256", "titan-x-pascal", 256),
        ("titanxp_32", "titan-xp", 32),
        ("silver_4210r", "xeon-silver-4210r", 1),
        ("essential_ph_1", "essential-ph-1", 1),
        ("eyeriss", "eyeriss", 1),
        ("samsung_a50", "samsung-galaxy-a50", 1),
        ("pixel3", "pixel-3", 1),
    ],
)
def test_file_names_are_devices_and_batches(clone, name, device, batch_size):
    _save(clone, f"latency/{name}.pt", [4, 5])
    assert {(r.device, r.batch_size) for r in import_help(clone).records} == {(device, batch_size)}


def test_what_is_left_out_is_counted(clone):
    _save(clone, "latency/1080ti_1.pt", [0.0, 1.0])
    _save(clone, "latency/raspi4.pt", [1.0, 2.0])
    _save(clone, "latency/1080ti_7.pt", [1.0, 2.0])
    imported = import_help(clone)
    assert [r.source_line for r in imported.records] == [2]
    assert imported.skipped == {"no measurement": 1, "device not known": 4}


def test_a_sample_has_the_same_cells_on_every_device(tmp_path):
    ops = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
    cells = [f"|{a}~0|+|{b}~0|none~1|+|none~0|none~1|none~2|" for a in ops for b in ops]
    _save(tmp_path, "str_arch2idx.pt", {cell: number for number, cell in enumerate(cells)})
    for device in ("1080ti_1", "pixel2"):
        _save(tmp_path, f"latency/{device}.pt", [1.0] * 25)
    imported = import_help(tmp_path, limit_per_file=6)
    assert len(imported.records) == 12 and imported.skipped == {"not drawn for the sample": 38}
    a, b = imported.records[:6], imported.records[6:]
    assert [r.network for r in a] == [r.network for r in b]
    assert import_help(tmp_path, limit_per_file=6, seed=1).records != imported.records


class _Harmful:
    def __reduce__(self):
        return (pytest.fail, ("code of a file was run",))


def test_damaged_files_and_wrong_folders_are_named(clone):
    with pytest.raises(ValueError, match="give the folder of a clone"):
        import_help(clone)
    with pytest.raises(ValueError, match="limit_per_file must be at least 1, not 0"):
        import_help(clone, limit_per_file=0)
    for content, message in (
        ([1.0], r"pixel2\.pt: not a list of a number for each of 2 cells"),
        (["a", "b"], r"pixel2\.pt: not a list of numbers"),
        ({"a": 1}, r"pixel2\.pt: not a list of numbers"),
        (_Harmful(), r"pixel2\.pt: not a file of plain values written by torch"),
    ):
        _save(clone, "latency/pixel2.pt", content)
        with pytest.raises(ValueError, match=message) as error:
            import_help(clone)
        assert "\n" not in str(error.value)
    (clone / "data" / "nasbench201" / "latency" / "pixel2.pt").write_text("none")
    with pytest.raises(ValueError, match=r"pixel2\.pt: not a file of plain values"):
        import_help(clone)
    for content in ({"a": 1, "b": 2}, {"a": 0, "b": 0}, ["a"]):
        _save(clone, "str_arch2idx.pt", content)
        with pytest.raises(ValueError, match=r"str_arch2idx\.pt: does not number the cells from 0"):
            import_help(clone)
    (clone / "data" / "nasbench201" / "str_arch2idx.pt").unlink()
    with pytest.raises(ValueError, match=r"str_arch2idx\.pt: not a file of plain values .*No such file"):
        import_help(clone)


def test_the_real_files_are_read(real_clone, tmp_path):
    imported = import_help(real_clone("GNNPERF_HELP_RESULTS", "HayeonLee/HELP"), limit_per_file=50)
    files = {r.source_file for r in imported.records}
    assert len(files) >= 24 and len({r.network for r in imported.records}) == 50
    assert set(imported.skipped) <= {"not drawn for the sample", "device not known"}
    assert {r.batch_size for r in imported.records} == {1, 32, 256}
    write_records(imported.records, tmp_path / "records.parquet")
    assert read_records(tmp_path / "records.parquet") == imported.records
    for record in imported.records[:5]:
        assert gnnperf.zoo(record.network, batch_size=record.batch_size).nodes
