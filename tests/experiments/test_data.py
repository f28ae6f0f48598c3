import pytest

from experiments.data import load_dataset, make_split


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
    with pytest.raises(ValueError, match=r"give data\.clone=FOLDER, or set GNNPERF_TIMM_RESULTS"):
        load_dataset(configure("train", "data.clone=null").data)
    with pytest.raises(ValueError, match="give the folder of a clone"):
        load_dataset(configure("train", "data.clone=/nowhere").data)


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
    with pytest.raises(ValueError, match="write families or all"):
        make_split(configure("train", "split.kind=odd").split, dataset.samples)
