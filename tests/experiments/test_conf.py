from dataclasses import MISSING, fields, replace
from itertools import product
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from experiments.settings import model_sizes, published, training_config
from gnnperf.model import ModelConfig
from gnnperf.training import TrainingConfig
from gnnperf.weights import load_weights

ROOT = Path(__file__).parents[2]


def test_every_free_field_of_the_library_is_set(configure):
    config = configure("train", "optimizer=sgd")
    of_the_run = {"members", "matmul_precision", "accelerator"}
    names = {*config.trainer, *config.optimizer} - {"name"} | {"optimizer"}
    assert names - of_the_run == {field.name for field in fields(TrainingConfig)} and of_the_run < names
    sizes = {field.name for field in fields(ModelConfig) if field.default is not MISSING}
    assert {*config.model, *config.device_encoding} == sizes
    assert training_config(config).optimizer == "sgd"


def test_defaults_are_those_of_the_library():
    with initialize_config_dir(config_dir=str(ROOT / "conf"), version_base="1.3"):
        config = compose("train")
    assert training_config(config) == TrainingConfig()
    assert training_config(config, member=3) == replace(TrainingConfig(), seed=3)
    assert model_sizes(config) == load_weights().model.config  # and those of the weights that ship


@pytest.mark.parametrize("group", ["data", "split", "model", "device_encoding", "optimizer", "trainer", "logger"])
def test_every_choice_of_every_group_composes(configure, group):
    choices = [path.stem for path in (ROOT / "conf" / group).glob("*.yaml")]
    assert choices
    for choice in choices:
        config = configure("train", **{group: choice})
        assert training_config(config).epochs == 2 and model_sizes(config).width == 16


def test_what_is_published_holds_no_folder(configure, tmp_path):
    config = published(configure("train"))
    assert config["data"] == {"sources": ["timm"], "networks": None, "mode": None, "limit_per_file": {}, "seed": 0}
    text = repr(config)
    assert str(tmp_path.parent) not in text and "'embedding': 16" in text and "'name': 'adamw'" in text


@pytest.mark.parametrize("experiment", [path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")])
def test_every_experiment_composes(configure, experiment):
    config = configure("train", f"experiment={experiment}")
    assert model_sizes(config).width == config.model.width


def test_the_quick_experiment_is_for_train_and_evaluate_alike(configure):
    trained, judged = (configure(main, "experiment=quick") for main in ("train", "evaluate"))
    assert trained.data == judged.data and judged.weights == "outputs/quick/weights"


@pytest.mark.parametrize(
    ("main", "experiment", "folder"),
    [
        ("train", None, "outputs/${hydra:runtime.choices.model}-${hydra:runtime.choices.split}"),
        ("train", "quick", "outputs/quick"),
        ("evaluate", "quick", "outputs/quick"),
        ("train", "no_device", "outputs/no_device-${hydra:runtime.choices.split}"),
    ],
)
def test_experiments_have_the_last_word(main, experiment, folder):
    with initialize_config_dir(config_dir=str(ROOT / "conf"), version_base="1.3"):
        config = compose(main, [f"experiment={experiment}"] if experiment else [], return_hydra_config=True)
        shipped = compose("train", ["experiment=ship"])
    assert OmegaConf.to_container(config.hydra.run, resolve=False)["dir"] == folder
    assert shipped.intervals_from == "outputs/gnn-unseen_architectures/weights"


def test_opwise_passes_no_messages(configure):
    assert configure("train", model="opwise").model.layers == 0


def test_without_a_device_there_is_no_embedding_of_it(configure):
    assert model_sizes(configure("train", "experiment=no_device")).embedding == 0
    assert model_sizes(configure("train", "experiment=opwise")).embedding == 16


def test_a_sweep_over_groups_and_values_gives_every_run_settings_of_its_own():
    overrides = ["trainer.seed=0,1", "device_encoding=spec_sheet,none", "optimizer.learning_rate=choice(0.1,0.2)"]
    jobs = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(overrides), max_batch_size=None)[0]
    with initialize_config_dir(config_dir=str(ROOT / "conf"), version_base="1.3"):
        configs = [compose("train", list(job)) for job in jobs]
    settings = {(training_config(c).seed, model_sizes(c).embedding, training_config(c).learning_rate) for c in configs}
    assert settings == set(product((0, 1), (16, 0), (0.1, 0.2)))
