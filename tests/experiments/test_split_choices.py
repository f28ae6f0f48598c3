"""The splits of ``conf/split`` against the published ones; the real measurements are read, but nothing is captured."""

import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir

from data_collection import help_results, justus_results, neusight_results, timm_results, torchvision_results
from data_collection.help_results import import_help
from data_collection.justus_results import import_justus
from data_collection.neusight_kernels import import_neusight_kernels
from data_collection.neusight_results import import_neusight
from data_collection.timm_results import import_timm, names_from_file
from data_collection.torchvision_results import import_torchvision
from experiments.data import split_rules
from gnnperf.dataset import Sample
from gnnperf.records import Record
from gnnperf.splits import Split, split_samples

ROOT = Path(__file__).parents[2]
TEST_ROWS = "scripts/asplos/data/dataset/test/"
TRAIN_ROWS = "scripts/asplos/data/dataset/train/"


@pytest.fixture
def published(shared_folder) -> dict:
    return json.loads((shared_folder / "benchmarks" / "splits.json").read_text())


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Record]]:
    """Records by source, of large files a sample; filled as they are asked for."""
    return {}


@pytest.fixture
def read(shared_folder, rows):
    def read(*sources: str) -> list[Sample]:
        """A sample for every record, as if every network had a graph of its own."""
        importers = {
            timm_results.SOURCE: lambda clone: (
                import_timm(clone, names_from_file(shared_folder / "benchmarks" / "families.json")).records
            ),
            torchvision_results.SOURCE: lambda clone: import_torchvision(clone).records,
            neusight_results.SOURCE: lambda clone: [
                *import_neusight_kernels(clone, 100).records,
                *import_neusight(clone).records,
            ],
            justus_results.SOURCE: lambda clone: import_justus(clone, 100).records,
            help_results.SOURCE: lambda clone: import_help(clone, 40).records,
        }
        for source in sources or importers:
            if source not in rows:
                rows[source] = importers[source](shared_folder / "data" / source)
        return [Sample(r, 0, r.network) for source in sources or importers for r in rows[source]]

    return read


def _split(samples: list[Sample], name: str, *overrides: str) -> Split:
    with initialize_config_dir(config_dir=str(ROOT / "conf"), version_base="1.3"):
        config = compose("train", [f"split={name}", *overrides])
    return split_samples(samples, split_rules(config.split))


def _records(samples: list[Sample], positions: tuple[int, ...]) -> list[Record]:
    return [samples[p].record for p in positions]


def test_unseen_architectures(published, read):
    samples = read()
    split, said = _split(samples, "unseen_architectures"), published["unseen_architectures"]
    for part in ("test", "validation"):
        wanted = {
            p for p, s in enumerate(samples) if s.record.source == said["dataset"] and s.record.family in said[part]
        }
        assert set(getattr(split, part)) == wanted
        assert {samples[p].record.family for p in wanted} == set(said[part])
    assert {record.source for record in _records(samples, split.train)} == {s.record.source for s in samples}
    held = {samples[p].structure for p in (*split.test, *split.validation)}
    assert not held & {samples[p].structure for p in split.train}


@pytest.mark.parametrize("device", ["rtx-4090", "rtx-pro-6000-max-q", "i7-12700h"])
def test_unseen_devices(published, read, device):
    samples = read()
    said, families = published["unseen_device"], set(published["unseen_architectures"]["test"])
    assert device in said["leave_out"] and len(said["leave_out"]) == 3
    split = _split(samples, "unseen_devices", f"split.devices=[{device}]")
    tested = {p for p, s in enumerate(samples) if s.record.source == said["dataset"] and s.record.device == device}
    assert set(split.test) == tested
    endings = {ending for name, ending in ((d, e) for e, d in timm_results.DEVICES.items()) if name == device}
    assert endings == set(said["leave_out"][device])
    unseen, seen = (_records(samples, split.groups[f"{name}_families"]) for name in ("unseen", "seen"))
    assert {r.family for r in unseen} <= families and unseen and not {r.family for r in seen} & families
    for part in (split.train, split.validation):
        records = _records(samples, part)
        assert records and device not in {r.device for r in records}
        assert not families & {r.family for r in records if r.source == said["dataset"]}
    new = {samples[p].structure for p in (*split.groups["unseen_families"], *split.validation)}
    trained = {samples[p].structure for p in split.train}
    assert not new & trained and {r.network for r in seen} & trained


def test_several_devices_are_left_out_together(read):
    samples = read(timm_results.SOURCE)
    split = _split(samples, "unseen_devices", "split.devices=[rtx-4090,i7-12700h]")
    assert {r.device for r in _records(samples, split.test)} == {"rtx-4090", "i7-12700h"}
    assert not {"rtx-4090", "i7-12700h"} & {r.device for r in _records(samples, split.train)}


def test_unseen_device_kernels(published, read):
    samples, said = read(), published["unseen_device_kernels"]
    split = _split(samples, "unseen_device_kernels")
    names = {name.replace("_", " "): device for name, device in neusight_results.DEVICES.items()}
    on_five = {names[name] for name in said["train_devices"]}
    groups = {name: _records(samples, positions) for name, positions in split.groups.items()}
    assert {r.device for r in groups["unseen_devices"]} == {"l4", "a100-pcie-80gb"}
    assert {r.device for r in groups["unseen_shapes"]} == on_five
    assert all(r.source_file.startswith(TEST_ROWS) for records in groups.values() for r in records)
    assert len(split.test) == sum(s.record.source_file.startswith(TEST_ROWS) for s in samples)
    train, validation = (_records(samples, part) for part in (split.train, split.validation))
    ours = [r for r in train if r.source == said["dataset"]]
    assert {r.device for r in ours} == {r.device for r in validation} == on_five
    assert all(r.source_file.startswith(TRAIN_ROWS) for r in [*ours, *validation])
    assert 0.08 < len(validation) / (len(validation) + len(ours)) < 0.12
    assert not {"l4", "a100-pcie-80gb"} & {r.device for r in train}


def test_transformers(published, read, shared_folder):
    samples = read()
    split = _split(samples, "transformers")
    table = pd.read_csv(shared_folder / "benchmarks" / "neusight_published_predictions.csv")
    table = table[table.option.isna() & (table.network != "switchxl4")]  # the mixture of experts is not imported
    runs = (
        table.network
        + "-"
        + table["mode"]
        + "-"
        + table.sequence_length.astype(str)
        + "-"
        + table.batch_size.astype(str)
    )
    wanted = {f"scripts/asplos/label/{device}/{run}.json" for device, run in zip(table.device, runs, strict=True)}
    tested = {r.source_file for r in _records(samples, split.test)}
    assert tested == wanted and len(tested) == len(split.test)
    train = _records(samples, split.train)
    ours = [r.source_file for r in train if r.source == published["transformers"]["dataset"]]
    assert ours and all(file.startswith(TRAIN_ROWS) for file in ours)
    assert {r.source for r in train} == {s.record.source for s in samples}
    assert not {"l4", "a100-pcie-80gb"} & {r.device for r in train}


def test_torchvision_leaves_each_gpu_out(published, read):
    samples, said = read(), published["torchvision"]
    for name in said["leave_out"]:
        device = torchvision_results.DEVICES[name]
        split = _split(samples, "torchvision", f"split.device={device}")
        tested = _records(samples, split.test)
        assert {(r.source, r.device) for r in tested} == {(said["dataset"], device)}
        assert {r.precision for r in tested} == {"fp16", "tf32" if "a100" in device else "fp32"}
        assert {r.mode for r in tested} == {"inference", "training"}
        for part in (split.train, split.validation):
            assert part and device not in {r.device for r in _records(samples, part)}
        assert {samples[p].structure for p in split.train} & {samples[p].structure for p in split.test}


def test_justus_leaves_each_gpu_out(published, read):
    samples, said = read(justus_results.SOURCE, neusight_results.SOURCE), published["justus"]
    for name in said["leave_out"]:
        device = justus_results.DEVICES[name.lower()]
        split = _split(samples, "justus", f"split.device={device}")
        assert {(r.source, r.device) for r in _records(samples, split.test)} == {(said["dataset"], device)}
        assert len(split.test) == sum((s.record.source, s.record.device) == (said["dataset"], device) for s in samples)
        assert device not in {r.device for r in _records(samples, (*split.train, *split.validation))}
    v100 = _split(samples, "justus", "split.device='v100-pcie-*'")
    assert v100.test == split.test
    assert not any(r.device.startswith("v100") for r in _records(samples, v100.train))


def test_nasbench201(published, read):
    samples, said = read(help_results.SOURCE), published["few_shot_devices"]
    split = _split(samples, "nasbench201")
    devices = {help_results.DEVICES[name][0] for name in said["test"]}
    assert Counter(r.device for r in _records(samples, split.test)) == dict.fromkeys(devices, 40)
    assert not devices & {r.device for r in _records(samples, (*split.train, *split.validation))}
    with initialize_config_dir(config_dir=str(ROOT / "conf"), version_base="1.3"):
        few_shot = compose("train", ["split=nasbench201"]).split.few_shot
    assert few_shot.samples == said["samples"] and list(few_shot.seeds) == list(range(10))
