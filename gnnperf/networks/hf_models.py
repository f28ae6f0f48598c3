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

import torch
import yaml

from gnnperf.capture.transformers_on_meta import answer_on_meta
from gnnperf.networks.base import Request, ZooModel, import_optional, on_meta, unknown_name
from gnnperf.networks.hf_inputs import configure, example_inputs

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
        module = _module(network, config, request)
        _untie(module)
        answer_on_meta()
        return ZooModel(request.source, module, example_inputs(module, request))


def _module(network: Any, config: Any, request: Request) -> torch.nn.Module:
    try:
        return on_meta(lambda: network._from_config(config))
    except Exception as error:  # many kinds: configs are checked in the constructors, if at all
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ImportError):
            raise ValueError(f"{request.source} needs a library that is not installed: {reason}") from None
        size = "" if request.image_size is None else f" for image_size={request.image_size}"
        where = f"transformers cannot build {network.__name__} from this config{size}"
        raise ValueError(f"{request.source}: {where}: {type(error).__name__}: {reason}") from error


def _untie(module: Any) -> None:
    """Give T5 1.1 its output table back: its checkpoints have one of their own, its class shares the input's."""
    if getattr(module.config, "scale_decoder_outputs", True) is False and hasattr(module, "lm_head"):
        module.lm_head.weight = torch.nn.Parameter(torch.empty_like(module.lm_head.weight))


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
    path = path if path.suffix == ".json" else path / "config.json"
    if request.name and path.is_file():
        return _from_file(transformers, path)
    if request.name.endswith(".json"):
        raise ValueError(f"{request.source}: there is no file {path}")
    model_types = _auto(transformers, "configuration_auto").CONFIG_MAPPING_NAMES
    for model_type in (request.name, request.name.lower()):
        if model_type in model_types:
            return _from_model_type(transformers, model_type, {}, request.source)
    raise unknown_name(request.source, name, [*published(), *model_types])


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
        names = mapping.get(model_type, "")
        network = getattr(transformers, names if isinstance(names, str) else names[0], None)
        if network is not None:
            return network, _config(config_classes[model_type], values, source)
    raise ValueError(f"{source}: transformers has no network of model_type {model_type!r} that stands alone")


def _auto(transformers: Any, module: str) -> Any:
    return import_optional(f"{transformers.__name__}.models.auto.{module}", "hf")


def _config(config_class: Any, values: dict[str, Any], source: str = "") -> Any:
    """A config of the given values, in default precision and unquantized, which is what the capture starts from."""
    try:
        return config_class.from_dict(_without_precision(values))
    except Exception as error:  # transformers has classes of its own for a value that does not fit
        raise ValueError(f"{source} is no valid {config_class.__name__}: {' '.join(str(error).split())}") from error


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
