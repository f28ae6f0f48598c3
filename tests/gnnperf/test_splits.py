from dataclasses import replace

import pytest

from gnnperf.dataset import Sample
from gnnperf.splits import Condition, Selection, SplitRules, draw_few, split_samples

FAMILIES = SplitRules.parse({"validation": {"family": "validated"}, "test": {"tested": {"family": ["tested"]}}})


@pytest.fixture
def sample(record):
    def sample(network: str, family: str, structure: str, **fields: object) -> Sample:
        return Sample(replace(record, network=network, family=family, **fields), 0, structure)

    return sample


@pytest.fixture
def samples(sample):
    return [
        sample("t1", "tested", "A"),
        sample("v1", "validated", "B"),
        sample("v2", "validated", "A"),  # the graph of t1
        sample("x1", "other", "C"),
        sample("x2", "other", "A"),  # the graph of t1
        sample("x3", "other", "B"),  # the graph of v1
        sample("x2", "other", "A", precision="amp", source="another"),
        sample("x4", "other", "A2"),
    ]


def test_families_are_held_out_and_their_twins_trained_on_nowhere(samples):
    split = split_samples(samples, FAMILIES)
    assert split.test == (0,)
    assert split.validation == (1,)
    assert split.train == (3, 7)
    assert split.left_out == (2, 4, 5, 6)
    assert split.groups == {"tested": (0,)}


def test_every_sample_is_in_one_part(samples):
    split = split_samples(samples, FAMILIES)
    parts = [*split.train, *split.validation, *split.test, *split.left_out]
    assert sorted(parts) == list(range(len(samples)))


def test_all_trains_on_everything_and_watches_some(samples):
    split = split_samples(samples, replace(FAMILIES, test={}, train_on_validation=True))
    assert split.train == tuple(range(len(samples)))
    assert split.validation == (1, 2)
    assert split.test == split.left_out == ()


def test_the_fingerprint_tells_splits_apart(samples):
    split = split_samples(samples, FAMILIES)
    assert split.fingerprint == split_samples(samples, FAMILIES).fingerprint
    others = [replace(FAMILIES, validation=Selection()), replace(FAMILIES, test={}), SplitRules()]
    assert split.fingerprint not in {split_samples(samples, rules).fingerprint for rules in others}


def test_the_fingerprint_is_that_of_positions_alone(samples):
    """Weights name it, so that it must stay: SHA-256 of ``((3, 7), (1,), (0,))``."""
    assert split_samples(samples, FAMILIES).fingerprint == "2077d335f43691b6"


def test_a_device_is_left_out_and_its_seen_graphs_are_trained_on_elsewhere(sample):
    samples = [
        sample("a", "tested", "A", device="t4"),  # 0: unseen family on the unseen device
        sample("a", "tested", "A", device="v100-pcie-32gb"),  # 1: left out by its family
        sample("b", "other", "B", device="t4"),  # 2: seen family on the unseen device
        sample("b", "other", "B", device="v100-pcie-32gb"),  # 3: trained on
        sample("c", "validated", "C", device="t4"),  # 4: seen, as all that is not of the unseen family
        sample("c", "validated", "C", device="v100-pcie-32gb"),  # 5: validation
        sample("d", "other", "D", device="t4", source="elsewhere"),  # 6: left out by its device
        sample("e", "other", "A", device="v100-pcie-32gb", source="elsewhere"),  # 7: the graph of a
        sample("f", "other", "C", device="v100-pcie-32gb", source="elsewhere"),  # 8: the graph of c
    ]
    source = {"source": "made up"}
    rules = SplitRules.parse(
        {
            "test": {
                "unseen": {**source, "family": "tested", "device": "t4"},
                "seen": {**source, "device": "t4"},
            },
            "known_graphs": ["seen"],
            "validation": {**source, "family": "validated"},
            "left_out": [{"device": "t4"}, {**source, "family": "tested"}],
        }
    )
    split = split_samples(samples, rules)
    assert split.groups == {"unseen": (0,), "seen": (2, 4)}
    assert (split.test, split.validation, split.train) == ((0, 2, 4), (5,), (3,))
    assert split.left_out == (1, 6, 7, 8)


def test_a_condition_takes_values_and_patterns_of_any_field(sample):
    one = sample("net", "other", "A", source_file="data/train/a.csv", batch_size=8, compiled=True)
    for content in (
        {},
        {"family": "other"},
        {"family": ["none", "other"], "compiled": True},
        {"source_file": "data/train/*"},
        {"batch_size": [4, 8], "network": "n?t"},
    ):
        assert Condition.parse(content).matches(one), content
    for content in (
        {"family": "othe"},
        {"compiled": False},
        {"batch_size": [4]},
        {"family": "other", "mode": "training"},
    ):
        assert not Condition.parse(content).matches(one), content
    assert not Selection().matches(one)
    assert Selection.parse([{"batch_size": 4}, {"batch_size": 8}]).matches(one)
    assert Selection.parse([{"device": ["a", "b"]}, {"device": "c"}]).names("device") == {"a", "b", "c"}


def test_a_share_is_drawn_by_seed_with_all_rows_of_a_graph(sample):
    samples = [
        sample(f"n{number}", "other", f"S{number}", device=device) for number in range(1000) for device in ("t4", "p4")
    ]
    taken = [Selection.parse({"share": 0.1, "seed": seed}) for seed in (0, 0, 1)]
    first, again, other = ({s.record.network for s in samples if selection.matches(s)} for selection in taken)
    assert first == again != other
    assert 70 < len(first) < 130 and 70 < len(other) < 130  # 100, plus or minus three deviations
    split = split_samples(samples, SplitRules.parse({"validation": {"share": 0.1, "device": "t4"}}))
    assert len(split.validation) == len(first) and not split.test
    assert len(split.train) == 2 * (1000 - len(first)) and len(split.left_out) == len(first)  # those on p4
    assert not any(Condition.parse({"share": 0}).matches(s) for s in samples)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"test": {"a": {"devise": "t4"}}},
            r"test\.a: records have no field 'devise': take one of attention, batch_size",
        ),
        ({"validation": {"share": 2}}, "validation: share is 2: give a number from 0 to 1"),
        ({"validation": {"share": True}}, "validation: share is True"),
        ({"left_out": ["t4"]}, "left_out: 't4' does not map fields of records to values"),
        ({"known_graphs": ["a"]}, "known_graphs: there is no group 'a' in test"),
    ],
)
def test_what_is_no_rule_is_named_with_its_place(content, message):
    with pytest.raises(ValueError, match=message):
        SplitRules.parse(content)


def test_a_few_rows_of_every_device_are_drawn(sample):
    samples = [sample(f"n{n}", "other", f"S{n}", device=device) for device in ("t4", "p4") for n in range(30)]
    few, others = draw_few(samples, range(5, 60), 10, seed=3)
    assert sorted([*few, *others]) == list(range(5, 60))
    assert [sum(samples[p].record.device == device for p in few) for device in ("t4", "p4")] == [10, 10]
    assert draw_few(samples, range(5, 60), 10, seed=3) == (few, others) != draw_few(samples, range(5, 60), 10, seed=4)
    # what is drawn of a device does not depend on the others
    assert draw_few(samples, range(30, 60), 10, seed=3)[0] == few[10:]
    with pytest.raises(ValueError, match="t4 has 10 rows: 10 cannot be drawn"):
        draw_few(samples, range(10), 10, seed=0)
