import json

import pytest
import torch

from gnnperf.features import FEATURE_VERSION
from gnnperf.weights import DEFAULT_FOLDER, LoadedModel, load_weights, save_weights


@pytest.fixture
def folder(tmp_path, model, facts):
    save_weights(tmp_path / "new" / "weights", model, facts)
    return tmp_path / "new" / "weights"


def edit(folder, **changes):
    content = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(content | changes))


def test_what_is_saved_is_loaded(folder, model, facts):
    loaded = load_weights(folder)
    assert isinstance(loaded, LoadedModel)
    assert loaded.facts == facts
    assert not loaded.model.training
    assert loaded.model.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.model.state_dict()[name])
    assert loaded.training_devices == {"rtx-4090", "a100-sxm4-40gb"}
    assert loaded.interval_log_ratio(zero_shot=False) == (-0.2, 0.3)
    assert loaded.interval_log_ratio(zero_shot=True) == (-0.7, 0.8)
    assert loaded.training_ops == frozenset()


def test_the_folder_holds_no_pickle(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]


def test_loading_leaves_random_state_alone(folder):
    before = torch.get_rng_state()
    load_weights(folder)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feature_version": FEATURE_VERSION + 1}, "feature version"),
        ({"gnnperf_weights": 99}, "format 99"),
        ({"vocabularies": {}}, "other ops"),
        ({"config": {"width": 3}}, "no valid config"),
        ({"facts": {}}, "interval_log_ratio"),
        ({"pair_features": 1}, "pair features"),
    ],
)
def test_weights_for_another_version_are_refused(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(ValueError, match=f"{message}.*: install") as caught:
        load_weights(folder)
    assert "\n" not in str(caught.value)


def test_a_reordered_vocabulary_is_refused(folder):
    vocabularies = json.loads((folder / "model.json").read_text())["vocabularies"]
    vocabularies["node_features"].reverse()
    edit(folder, vocabularies=vocabularies)
    with pytest.raises(ValueError, match="other node_features"):
        load_weights(folder)


def test_a_config_that_does_not_fit_the_vocabularies_is_refused(folder, model):
    edit(folder, config={**model.config.to_dict(), "ops": 2})
    with pytest.raises(ValueError, match="does not fit its vocabularies"):
        load_weights(folder)


def test_tensors_of_another_shape_are_refused(folder, model):
    edit(folder, config={**model.config.to_dict(), "width": 8})
    with pytest.raises(ValueError, match=r"damaged: .* does not have the shape"):
        load_weights(folder)


def test_broken_files_are_one_line(folder):
    (folder / "model.safetensors").write_bytes(b"rubbish")
    with pytest.raises(ValueError, match=r"cannot read the weights .*model\.safetensors"):
        load_weights(folder)
    (folder / "model.json").write_text("{")
    with pytest.raises(ValueError, match=r"cannot read .*model\.json"):
        load_weights(folder)


def test_absent_weights_say_what_to_do(tmp_path):
    with pytest.raises(ValueError, match=r"no model weights in .*--weights"):
        load_weights(tmp_path)


def test_the_default_is_the_package_folder(folder, monkeypatch):
    from gnnperf import weights

    assert DEFAULT_FOLDER.name == "weights" and DEFAULT_FOLDER.parent.name == "gnnperf"
    monkeypatch.setattr(weights, "DEFAULT_FOLDER", folder)
    weights._default_weights.cache_clear()
    try:
        assert load_weights() is load_weights()
    finally:
        weights._default_weights.cache_clear()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"interval_log_ratio": [0.3, -0.2]}, "interval_log_ratio"),
        ({"zero_shot_interval_log_ratio": [float("nan"), 1.0]}, "zero_shot_interval_log_ratio"),
        ({"training_devices": "rtx-4090"}, "training_devices must be a list"),
        ({"training_ops": [1]}, "training_ops must be a list"),
    ],
)
def test_wrong_facts_are_not_saved(tmp_path, model, facts, change, message):
    with pytest.raises(ValueError, match=message):
        save_weights(tmp_path, model, facts | change)
    assert not list(tmp_path.iterdir())


def test_facts_must_name_the_training_devices(tmp_path, model, facts):
    del facts["training_devices"]
    with pytest.raises(ValueError, match="training_devices is missing"):
        save_weights(tmp_path, model, facts)
