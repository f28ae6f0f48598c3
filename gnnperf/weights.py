"""The trained model on disk: tensors as safetensors, everything else as JSON; never a pickle."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from gnnperf.cost.registry import OP_CLASSES
from gnnperf.features import DEVICE_FEATURES, EDGE_FEATURES, FEATURE_VERSION, NODE_FEATURES, OPS, SOFTWARE_FEATURES
from gnnperf.graph import PHASES
from gnnperf.hardware import PRECISIONS
from gnnperf.model import PAIR_FEATURES, Ensemble, ModelConfig, PerformanceModel
from gnnperf.output import write_whole

WEIGHTS_VERSION = 2
_MOST_MEMBERS = 64
DEFAULT_FOLDER = Path(__file__).with_name("weights")
TENSORS_FILE, FACTS_FILE = "model.safetensors", "model.json"

# What the columns and indices of the model's tensors stand for.
VOCABULARIES: dict[str, tuple[str, ...]] = {
    "ops": tuple(OPS),
    "op_classes": OP_CLASSES,
    "precisions": PRECISIONS,
    "phases": PHASES,
    "node_features": tuple(NODE_FEATURES),
    "edge_features": EDGE_FEATURES,
    "device_features": DEVICE_FEATURES,
    "software_features": SOFTWARE_FEATURES,
}
_INTERVALS = ("interval_log_ratio", "zero_shot_interval_log_ratio")
_TEXT_LISTS = ("training_devices", "training_ops", "training_modes")


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model and what is known of its training.

    Attributes:
        model: In eval mode, on the CPU.
        facts: What was given to ``save_weights``.
    """

    model: Ensemble
    facts: dict[str, Any]

    @property
    def training_devices(self) -> frozenset[str]:
        """Ids of the devices with a measurement in training."""
        return frozenset(self.facts["training_devices"])

    @property
    def training_ops(self) -> frozenset[str]:
        """Op types that occurred in training; empty if nobody wrote them down."""
        return frozenset(self.facts.get("training_ops", ()))

    @property
    def training_modes(self) -> frozenset[str]:
        """Modes, inference or training, that were measured in training; empty if nobody wrote them down."""
        return frozenset(self.facts.get("training_modes", ()))

    def interval_log_ratio(self, zero_shot: bool) -> tuple[float, float]:
        """The 5 % and 95 % quantile of log(measured / predicted), on devices in training or on unseen ones."""
        low, high = self.facts[_INTERVALS[zero_shot]]
        return low, high


def save_weights(folder: str | Path, model: Ensemble, facts: dict[str, Any]) -> None:
    """Write ``model`` as ``model.safetensors`` and ``model.json`` into ``folder``.

    Args:
        folder: Where to; made if it is not there.
        model: The models, which the file keeps one after the other.
        facts: What belongs to the model, plain values for JSON. Needed are ``training_devices`` (device ids),
            ``interval_log_ratio`` and ``zero_shot_interval_log_ratio`` (the 5 % and 95 % quantile of
            log(measured / predicted), on devices in training and on unseen ones). ``training_ops`` (op types)
            and ``training_modes`` let predictions name what nobody measured; ``training_split`` is the
            fingerprint of the split.

    Raises:
        ValueError: If a fact is missing or wrong, or the folder cannot be written.
    """
    if problem := _facts_problem(facts):
        raise ValueError(f"facts about the weights: {problem}")
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from error
    content = {
        "gnnperf_weights": WEIGHTS_VERSION,
        "feature_version": FEATURE_VERSION,
        "pair_features": PAIR_FEATURES,
        "config": model.config.to_dict(),
        "members": len(model.members),
        "vocabularies": VOCABULARIES,
        "facts": facts,
    }
    text = json.dumps(content, indent=1, allow_nan=False)
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    write_whole(folder / TENSORS_FILE, save(tensors))
    write_whole(folder / FACTS_FILE, text)


def load_weights(folder: str | Path | None = None) -> LoadedModel:
    """Read what ``save_weights`` wrote; the package's own weights by default, which are read once.

    Raises:
        ValueError: If there are no weights, they are damaged, or they were trained for another version of the
            features, with what to do about it.
    """
    return _default_weights() if folder is None else _load(Path(folder))


@cache
def _default_weights() -> LoadedModel:
    return _load(DEFAULT_FOLDER)


def _load(folder: Path) -> LoadedModel:
    content = _read_facts(folder)
    config = ModelConfig(**content["config"])
    with torch.device("meta"):  # initial values would cost time and random state
        model = Ensemble([PerformanceModel(config) for _ in range(content["members"])])
    try:
        tensors = load_file(folder / TENSORS_FILE)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"cannot read the weights {str(folder / TENSORS_FILE)!r}: {_line(error)}") from error
    expected = {name: (tuple(t.shape), t.dtype) for name, t in model.state_dict().items()}
    found = {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()}
    if expected != found:
        odd = sorted(name for name in expected | found if expected.get(name) != found.get(name))
        raise ValueError(
            f"the weights in {str(folder)!r} are damaged: {odd[0]!r} does not have the shape that {FACTS_FILE} "
            f"describes ({len(odd)} such tensors): install gnnperf again, or train again"
        )
    model.load_state_dict(tensors, assign=True)
    model.eval().requires_grad_(False)
    return LoadedModel(model, content["facts"])


def _read_facts(folder: Path) -> dict[str, Any]:
    path = folder / FACTS_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(
            f"there are no model weights in {str(folder)!r}: install a gnnperf that carries them, or name the folder "
            "of a trained model (--weights on the command line)"
        ) from error
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read {str(path)!r}: {_line(error)}") from error
    if problem := _content_problem(content):
        raise ValueError(f"the weights in {str(folder)!r} {problem}")
    return content


def _content_problem(content: Any) -> str:
    """Why this version cannot use weights with such a ``model.json``; empty if it can."""
    again = "install the gnnperf that they were trained with, or train again"
    if not isinstance(content, dict) or content.get("gnnperf_weights") != WEIGHTS_VERSION:
        found = content.get("gnnperf_weights") if isinstance(content, dict) else None
        return f"have format {found!r}, this gnnperf reads {WEIGHTS_VERSION}: {again}"
    if content.get("feature_version") != FEATURE_VERSION:
        version = content.get("feature_version")
        return f"were trained on feature version {version!r}, this gnnperf has {FEATURE_VERSION}: {again}"
    vocabularies = content.get("vocabularies")
    for name, expected in VOCABULARIES.items():
        if not isinstance(vocabularies, dict) or vocabularies.get(name) != list(expected):
            return f"were trained with other {name} than this gnnperf has: {again}"
    if content.get("pair_features") != PAIR_FEATURES:
        return f"were trained with other pair features than this gnnperf has: {again}"
    try:
        config = ModelConfig(**content["config"])
    except (KeyError, TypeError) as error:
        return f"are damaged: {FACTS_FILE} has no valid config ({_line(error)}): {again}"
    if any(getattr(config, name) != len(VOCABULARIES[name]) for name in VOCABULARIES):
        return f"are damaged: the config in {FACTS_FILE} does not fit its vocabularies: {again}"
    members = content.get("members")
    if type(members) is not int or not 1 <= members <= _MOST_MEMBERS:
        return f"are damaged: members must be a whole number from 1 to {_MOST_MEMBERS}, not {members!r}: {again}"
    problem = _facts_problem(content.get("facts"))
    return f"are damaged: {problem}: {again}" if problem else ""


def _facts_problem(facts: Any) -> str:
    if not isinstance(facts, dict):
        return "facts is not a mapping"
    for name in _INTERVALS:
        value = facts.get(name)
        if not _is_interval(value):
            return f"{name} must be two finite numbers, the lower first, not {value!r}"
    if "training_devices" not in facts:
        return "training_devices is missing"
    for name in _TEXT_LISTS:
        value = facts.get(name, [])
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            return f"{name} must be a list of text"
    return ""


def _is_interval(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    return all(type(bound) in (int, float) and math.isfinite(bound) for bound in value) and value[0] <= value[1]


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
