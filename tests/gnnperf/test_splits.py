import json
from dataclasses import replace

import pytest

from gnnperf.dataset import Sample
from gnnperf.splits import FamilySplit, split_all, split_by_family

FAMILIES = FamilySplit(validation=frozenset({"validated"}), test=frozenset({"tested"}))


@pytest.fixture
def samples(record):
    def sample(network: str, family: str, structure: str, **fields: object) -> Sample:
        return Sample(replace(record, network=network, family=family, **fields), 0, structure)

    return [
        sample("t1", "tested", "A"),
        sample("v1", "validated", "B"),
        sample("v2", "validated", "A"),  # the graph of t1
        sample("x1", "other", "C"),
        sample("x2", "other", "A"),  # the graph of t1
        sample("x3", "other", "B"),  # the graph of v1
        sample("x2", "other", "A", precision="amp"),
        sample("x4", "other", "A2"),
    ]


def test_families_are_held_out_and_their_twins_trained_on_nowhere(samples):
    split = split_by_family(samples, FAMILIES)
    assert split.test == (0,)
    assert split.validation == (1,)
    assert split.train == (3, 7)
    assert split.left_out == (2, 4, 5, 6)


def test_every_sample_is_in_one_part(samples):
    split = split_by_family(samples, FAMILIES)
    parts = [*split.train, *split.validation, *split.test, *split.left_out]
    assert sorted(parts) == list(range(len(samples)))


def test_all_trains_on_everything_and_watches_some(samples):
    split = split_all(samples, {"validated"})
    assert split.train == tuple(range(len(samples)))
    assert split.validation == (1, 2)
    assert split.test == split.left_out == ()


def test_the_fingerprint_tells_splits_apart(samples):
    split = split_by_family(samples, FAMILIES)
    assert split.fingerprint == split_by_family(samples, FAMILIES).fingerprint
    others = [split_all(samples, {"validated"}), split_by_family(samples, FamilySplit(FAMILIES.test, FAMILIES.test))]
    assert split.fingerprint not in {other.fingerprint for other in others}


def test_a_split_is_read_from_a_file(tmp_path):
    path = tmp_path / "splits.json"
    path.write_text(json.dumps({"one": {"test": ["tested"], "validation": ["validated"], "rule": "none"}}))
    assert FamilySplit.from_file(path, "one") == FAMILIES
    with pytest.raises(ValueError, match=r"cannot read split 'two' from .*splits\.json"):
        FamilySplit.from_file(path, "two")
    with pytest.raises(ValueError, match="cannot read split 'one'"):
        FamilySplit.from_file(tmp_path / "none.json", "one")
    path.write_text("[")
    with pytest.raises(ValueError, match="cannot read split"):
        FamilySplit.from_file(path, "one")
