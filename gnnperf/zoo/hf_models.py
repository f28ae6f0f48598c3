"""``hf:NAME`` networks: whatever Hugging Face transformers builds from a config, offline and without weights.

NAME is, in this order of precedence, a checkpoint in ``hf_configs.yaml`` (``bert-base-uncased``,
``meta-llama/Llama-2-7b``), a path to a ``config.json`` or to the folder that holds one, or a transformers
``model_type`` (``bert``) with the sizes that its config class defaults to. Code that comes with a checkpoint never
runs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gnnperf.zoo.base import Request, ZooModel, import_optional, on_meta, size_errors_as_value_errors, unknown_name
from gnnperf.zoo.hf_inputs import configure, example_inputs
from gnnperf.zoo.hf_meta import answer_on_meta

# Which network a bare config stands for: the first of these tasks that the model_type has, else its headless network.
TASKS = (
    "SEQ_TO_SEQ_CAUSAL_LM",
    "MASKED_LM",
    "CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "IMAGE_CLASSIFICATION",
    "VIDEO_CLASSIFICATION",
    "CTC",
    "AUDIO_CLASSIFICATION",
    "ZERO_SHOT_IMAGE_CLASSIFICATION",
    "SEMANTIC_SEGMENTATION",
    "UNIVERSAL_SEGMENTATION",
    "OBJECT_DETECTION",
    "DEPTH_ESTIMATION",
    "IMAGE_TEXT_TO_TEXT",
    "MULTIMODAL_LM",
)


def build(request: Request) -> ZooModel:
    """Build a transformers network and its keyword inputs on ``meta``, in float32.

    The task head is the checkpoint's (``architectures`` in its config), else the first of ``TASKS`` that exists. It
    runs one plain forward: no key-value cache (``use_cache=False``), fused attention (``sdpa``) where the network
    supports it, experts as grouped matrix products whose sizes do not depend on the routing.

    Dimensions, by what the network reads: ``seq`` tokens (128 by default), ``decoder_seq`` for an encoder-decoder (by
    default as ``seq``), ``samples`` of a waveform, ``frames`` of a video. In training a language model or classifier
    gets ``labels``, so that its output carries the loss.

    Raises:
        ValueError: If transformers is absent, the name is unknown, or a size does not suit the network.
    """
    transformers = import_optional("transformers", request.prefix)
    with _silent(transformers):
        network, config = _network_and_config(transformers, request)
        configure(config, request)
        _without_cache(config)
        with size_errors_as_value_errors(request):
            try:
                module = on_meta(lambda: network._from_config(config))
            except ImportError as error:
                reason = " ".join(str(error).split())
                raise ValueError(f"{request.source} needs a library that is not installed: {reason}") from None
        for name in ("transformers.masking_utils", "transformers.modeling_utils", network.__module__):
            answer_on_meta(name)
        return ZooModel(request.source, module, example_inputs(module, request))


@cache
def published() -> dict[str, tuple[str, dict[str, Any]]]:
    """Checkpoint name, in lower case and without the organisation, to its network class and config values."""
    families = yaml.safe_load((Path(__file__).with_name("hf_configs.yaml")).read_text(encoding="utf-8"))
    return {
        name: (family["architecture"], {**family.get("config", {}), **values})
        for family in families
        for name, values in family["names"].items()
    }


def _network_and_config(transformers: Any, request: Request) -> tuple[Any, Any]:
    name = request.name.lower().rpartition("/")[2]
    for known in (name, name.removesuffix("-hf")):
        if known in published():
            architecture, values = published()[known]
            network = getattr(transformers, architecture)
            return network, _config(network.config_class, values)
    path = Path(request.name).expanduser()
    path = path / "config.json" if path.is_dir() else path
    if path.is_file():
        return _from_file(transformers, path)
    if path.suffix == ".json":
        raise ValueError(f"{request.source}: there is no file {path}")
    model_types = _auto(transformers, "configuration_auto").CONFIG_MAPPING_NAMES
    if request.name.lower() not in model_types:
        raise unknown_name(request.source, name, [*published(), *model_types])
    return _from_model_type(transformers, request.name.lower(), {}, request.source)


def _from_file(transformers: Any, path: Path) -> tuple[Any, Any]:
    """Network and config that a checkpoint's own ``config.json`` describes; its precision is left to the capture."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is no JSON file: {error}") from None
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise ValueError(f"{path} is no transformers config: it has no model_type")
    architectures = values.get("architectures") or [""]
    network = getattr(transformers, str(architectures[0]), None)
    if network is not None and hasattr(network, "config_class"):
        return network, _config(network.config_class, values, str(path))
    return _from_model_type(transformers, values["model_type"], values, str(path))


def _from_model_type(transformers: Any, model_type: str, values: dict[str, Any], source: str) -> tuple[Any, Any]:
    auto = _auto(transformers, "modeling_auto")
    config_classes = _auto(transformers, "configuration_auto").CONFIG_MAPPING
    if model_type not in config_classes:
        version = transformers.__version__
        raise ValueError(f"{source}: transformers {version} has no model_type {model_type!r}: install a newer one")
    mappings = [getattr(auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {}) for task in TASKS]
    for mapping in [*mappings, auto.MODEL_MAPPING_NAMES]:
        if model_type in mapping:
            names = mapping[model_type]
            network = getattr(transformers, names if isinstance(names, str) else names[0])
            return network, _config(config_classes[model_type], values, source)
    raise ValueError(f"{source}: transformers has no network of model_type {model_type!r} that stands alone")


def _auto(transformers: Any, module: str) -> Any:
    return import_optional(f"{transformers.__name__}.models.auto.{module}", "hf")


def _config(config_class: Any, values: dict[str, Any], source: str = "") -> Any:
    """A config of the given values, in default precision and unquantized, which is what the capture starts from."""
    try:
        config = config_class.from_dict(_without_precision(values))
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ValueError(f"{source} is no valid {config_class.__name__}: {' '.join(str(error).split())}") from error
    if values.get("tie_word_embeddings") is False:
        config.tie_word_embeddings = False  # T5's config forgets it, though the checkpoints have two tables
    return config


def _without_precision(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_precision(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if key not in ("dtype", "torch_dtype", "quantization_config")
    }


def _without_cache(config: Any) -> None:
    """Have the network, and those inside it, return no key-value cache."""
    if hasattr(config, "use_cache"):
        config.use_cache = False
    for name in getattr(config, "sub_configs", {}):
        if getattr(config, name, None) is not None:
            _without_cache(getattr(config, name))


@contextmanager
def _silent(transformers: Any) -> Iterator[None]:
    """Hold back the library's log lines about defaults."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before)
