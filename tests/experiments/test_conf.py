from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from gnnperf.model import ModelConfig
from gnnperf.splits import FamilySplit
from gnnperf.training import TrainingConfig, model_config

ROOT = Path(__file__).parents[2]


def test_every_free_field_of_the_library_is_set(configure):
    config = configure("train")
    assert set(config.training) == {field.name for field in fields(TrainingConfig)}
    sizes = {field.name for field in fields(ModelConfig) if field.default is not MISSING}
    assert set(config.model) == sizes
    assert TrainingConfig(**config.training).epochs == 2


@pytest.mark.parametrize("experiment", [path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")])
def test_every_experiment_composes(configure, experiment):
    config = configure("train", f"experiment={experiment}")
    assert model_config(**config.model).width == config.model.width


def test_opwise_passes_no_messages(configure):
    assert configure("train", model="opwise").model.layers == 0


def test_the_split_is_the_published_one(configure, shared_folder):
    published = FamilySplit.from_file(shared_folder / "benchmarks" / "splits.json", "unseen_architectures")
    config = configure("train").split
    assert FamilySplit(frozenset(config.validation), frozenset(config.test)) == published
