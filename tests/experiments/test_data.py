from collections import Counter

import pytest

from data_collection.sources import REPOSITORIES
from experiments.data import load_dataset, load_records, make_split


@pytest.fixture
def dataset(configure):
    return load_dataset(configure("train").data)


def test_what_is_left_out_is_printed_by_reason(configure, capsys):
    dataset = load_dataset(configure("train").data)
    printed = capsys.readouterr().out
    assert len(dataset.samples) == 24
    for line in (
        "24 measurements of 24 graphs",
        "skipped      3  architecture gone from timm",
        "skipped      3  no measurement",
        "skipped      3  other parameter count than the network built",
    ):
        assert line in printed


def test_networks_can_be_chosen_by_pattern(configure):
    dataset = load_dataset(configure("train", "data.networks=timm:test_v*").data)
    assert {s.record.network for s in dataset.samples} == {"timm:test_vit", "timm:test_vit2"}
    assert dataset.skipped["not asked for by data.mode and data.networks"] == 21
    with pytest.raises(ValueError, match="no measured network matches"):
        load_dataset(configure("train", "data.networks=hf:*").data)


def test_one_kind_of_step_can_be_chosen(configure):
    dataset = load_dataset(configure("train", "data.mode=training").data)
    assert {s.record.mode for s in dataset.samples} == {"training"} and len(dataset.samples) == 8


def test_a_missing_folder_says_what_to_set(configure):
    with pytest.raises(
        ValueError, match=r"give data\.clones\.timm=FOLDER, or set GNNPERF_TIMM_RESULTS, to a clone of "
    ):
        load_dataset(configure("train", "data.clones.timm=null").data)
    with pytest.raises(ValueError, match=r"there is no folder '/nowhere'"):
        load_dataset(configure("train", "data.clones.timm=/nowhere").data)
    with pytest.raises(ValueError, match=r"data\.clones\.tim is unknown: give clones of timm, torchvision, neusight"):
        load_dataset(configure("train", "+data.clones.tim=/nowhere").data)


def test_several_sources_are_one_data_set(configure, kernels, capsys):
    data = {"data": "everything", "data.clones.neusight": kernels}
    absent = [f"data.clones.{name}=null" for name in ("torchvision", "justus", "help")]
    dataset = load_dataset(configure("train", *absent, **data).data)
    assert Counter(s.record.source for s in dataset.samples) == {
        "huggingface+pytorch-image-models": 24,
        "sitar-lab+NeuSight": 32,
    }
    assert "56 measurements of 40 graphs" in capsys.readouterr().out
    limited = load_records(configure("train", *absent, "data.limit_per_file.neusight=2", **data).data)
    assert Counter(record.source for record in limited.records)["sitar-lab+NeuSight"] == 16
    assert limited.skipped["not drawn for the sample"] == 16
    with pytest.raises(ValueError, match="limit_per_file must be at least 1, not 0"):
        load_records(configure("train", *absent, "data.limit_per_file.neusight=0", **data).data)


def test_without_any_folder_every_repository_is_named(configure):
    nothing = [f"data.clones.{name}=null" for name in REPOSITORIES]
    with pytest.raises(ValueError) as caught:
        load_records(configure("train", *nothing, data="everything").data)
    message = str(caught.value)
    assert message.startswith(
        "no measurements: give data.clones.timm=FOLDER, or set GNNPERF_TIMM_RESULTS, to a clone of"
    )
    assert all(repository in message for repository in REPOSITORIES.values()) and "\n" not in message


def test_the_split_holds_families_out_and_prints_its_sizes(configure, dataset, capsys):
    split = make_split(configure("train").split, dataset.samples)
    families = {
        part: {dataset.samples[p].record.family for p in getattr(split, part)} for part in ("validation", "test")
    }
    assert families == {"validation": {"convnext"}, "test": {"resnet", "mambaout", "byobnet"}}
    printed = capsys.readouterr().out
    assert f"split {split.fingerprint}: 12 rows to train on, 3 of validation, 9 of test, 0 left out" in printed
    assert "no measurements of the families cspnet, densenet" in printed


def test_everything_can_be_trained_on(configure, dataset):
    split = make_split(configure("train", "split=all").split, dataset.samples)
    assert len(split.train) == 24 and len(split.validation) == 3 and not split.test


def test_a_split_that_leaves_nothing_is_an_error(configure, dataset):
    with pytest.raises(ValueError, match="leaves nothing to train on"):
        make_split(configure("train").split, [s for s in dataset.samples if s.record.family == "resnet"])
    with pytest.raises(ValueError, match=r"split\.validation: records have no field 'famly'"):
        make_split(configure("train", "+split.validation.famly=resnet").split, dataset.samples)


def test_groups_of_test_rows_are_counted(configure, dataset, capsys):
    devices = ["split=unseen_devices", "split.devices=[i9-10940x,t4]"]
    split = make_split(configure("train", *devices).split, dataset.samples)
    assert {name: len(positions) for name, positions in split.groups.items()} == {
        "unseen_families": 3,
        "seen_families": 5,
    }
    assert (len(split.train), len(split.validation), len(split.left_out)) == (8, 2, 6)
    printed = capsys.readouterr().out
    assert "of test: 3 unseen_families, 5 seen_families" in printed and "no measurements of the devices t4" in printed
