"""Example inputs of transformers networks, by what their forward reads."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

import torch

from gnnperf.networks.base import Request

DEFAULT_SEQ = 128
DEFAULT_SAMPLES = 16_000  # one second of speech
DEFAULT_FEATURE_FRAMES = 1_000  # ten seconds of speech
DEFAULT_VIDEO_FRAMES = 16
DEFAULT_IMAGE_SIZE = 224
DETECTION_IMAGE_SIZE = 640
FEATURE_WIDTH_KEYS = ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "feature_size")
TEXT_CONFIG_KEYS = ("text_config", "decoder", "text_encoder")
IMAGE_CONFIG_KEYS = ("vision_config", "encoder", "backbone_config", "image_config")
GENERATORS = ("ForConditionalGeneration", "ForCausalLM")
# Labels are class numbers, (batch,), for the first kind of head and shaped like the tokens for the second.
CLASSIFIERS = ("ForImageClassification", "ForVideoClassification", "ForSequenceClassification")
LANGUAGE_MODELS = (*GENERATORS, "LMHeadModel", "ForMaskedLM", "ForPreTraining")


def example_inputs(module: Any, request: Request) -> dict[str, torch.Tensor]:
    """The forward's keyword arguments, on ``meta``.

    Text networks get ``input_ids`` (and ``decoder_input_ids``) of int64, ``(batch, seq)``; image networks
    ``pixel_values``, ``(batch, channels, height, width)``; video networks ``(batch, frames, channels, height,
    width)``; speech networks ``input_features`` or ``input_values``. Networks that compare images with texts get
    both; those that answer in text about an image get the text alone.

    Raises:
        ValueError: If the request names a dimension that the network does not have, or more tokens than it has
            positions for.
    """
    names = list(inspect.signature(module.forward).parameters)
    reads = _kinds(module, names)
    if request.image_size is not None and not any(kind.startswith("pixel_values") for kind in reads):
        raise ValueError(f"{request.source} reads {' and '.join(reads)}, no images: leave image_size out")
    sizes = request.sizes(**_default_sizes(module.config, reads))
    if "decoder_input_ids" in reads and "seq" in sizes and "decoder_seq" not in request.dims:
        sizes["decoder_seq"] = sizes["seq"]
    _check_positions(module, max(sizes.get("seq", 0), sizes.get("decoder_seq", 0)), request)
    inputs = {kind: _tensor(kind, module, sizes, request) for kind in reads}
    if request.mode == "training" and "labels" in names:
        inputs |= _labels(module, inputs, request.batch_size)
    return inputs


def configure(config: Any, request: Request) -> None:
    """Give the config the image size and the frames that were asked for, so that position tables are built for them.

    Raises:
        ValueError: If an image size was asked of a network that reads no images.
    """
    if "frames" in request.dims and hasattr(config, "num_frames"):
        config.num_frames = request.dims["frames"]
    if request.image_size is None:
        return
    owner = _image_config(config)
    if hasattr(owner, "image_size"):
        square = isinstance(owner.image_size, list | tuple)
        owner.image_size = [request.image_size] * 2 if square else request.image_size


def _kinds(module: Any, names: Collection[str]) -> list[str]:
    """Which inputs to make, by the forward's parameter names."""
    main = module.main_input_name
    main = main[0] if isinstance(main, list | tuple) else main
    if main not in names:
        readable = ("input_ids", "pixel_values", "input_values", "input_features", "hidden_states")
        main = next((name for name in readable if name in names), main)
    kinds = [str(main)]
    compares = not type(module).__name__.endswith(GENERATORS)
    if {"pixel_values", "input_ids"} <= set(names) and (main == "pixel_values" or compares):
        kinds = ["input_ids", "pixel_values"]
    if "decoder_input_ids" in names and getattr(module.config, "is_encoder_decoder", True):
        kinds.append("decoder_input_ids")
    return kinds


def _default_sizes(config: Any, reads: Collection[str]) -> dict[str, int]:
    """The dimensions that the inputs have besides batch and image size."""
    seq = min(DEFAULT_SEQ, _limit(config))
    sizes = {}
    if "input_ids" in reads:
        sizes["seq"] = seq
    if "decoder_input_ids" in reads:
        sizes["decoder_seq"] = seq
    if "input_values" in reads:
        sizes["samples"] = config.max_length if _is_spectrogram(config) else DEFAULT_SAMPLES
    if "input_features" in reads:
        sizes["frames"] = 2 * config.max_source_positions if _is_fixed_window(config) else DEFAULT_FEATURE_FRAMES
    if "pixel_values_videos" in reads or ("pixel_values" in reads and hasattr(config, "num_frames")):
        sizes["frames"] = getattr(config, "num_frames", None) or DEFAULT_VIDEO_FRAMES
    return sizes


def _limit(config: Any) -> int:
    """Tokens that the text side takes at most, as far as the config says."""
    parts = [config, *(getattr(config, key, None) for key in TEXT_CONFIG_KEYS)]
    limits = [getattr(part, "max_position_embeddings", None) for part in parts]
    return min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=DEFAULT_SEQ)


def _is_fixed_window(config: Any) -> bool:
    """Whether speech comes as Whisper's ``(batch, mel bins, frames)`` of one fixed length."""
    return hasattr(config, "max_source_positions") and hasattr(config, "num_mel_bins")


def _is_spectrogram(config: Any) -> bool:
    return hasattr(config, "num_mel_bins") and hasattr(config, "frequency_stride")


def _tensor(kind: str, module: Any, sizes: dict[str, int], request: Request) -> torch.Tensor:
    shape: tuple[int, ...]
    if kind in ("input_ids", "decoder_input_ids"):
        length = sizes["seq" if kind == "input_ids" else "decoder_seq"]
        return torch.empty(request.batch_size, length, dtype=torch.int64, device="meta")
    if kind in ("pixel_values", "pixel_values_videos"):
        shape = _image_shape(module, request)
        shape = (sizes["frames"], *shape) if "frames" in sizes else shape
    elif kind == "input_values":
        channels = getattr(module.config, "audio_channels", None)
        shape = (sizes["samples"],) if channels is None else (channels, sizes["samples"])
        shape = (*shape, module.config.num_mel_bins) if _is_spectrogram(module.config) else shape
    elif kind == "input_features":
        parts = [module.config, getattr(module.config, "encoder_config", None)]
        width = next((getattr(part, key) for part in parts for key in FEATURE_WIDTH_KEYS if hasattr(part, key)), 80)
        shape = (width, sizes["frames"]) if _is_fixed_window(module.config) else (sizes["frames"], width)
    else:
        raise ValueError(
            f"{request.source} reads {kind!r}, of which the zoo has no example: use package.module:factory"
        )
    return torch.empty(request.batch_size, *shape, device="meta")


def _image_config(config: Any) -> Any:
    """The part of a config that describes the image side."""
    for part in (config, *(getattr(config, key, None) for key in IMAGE_CONFIG_KEYS)):
        if hasattr(part, "image_size"):
            return part
    return config


def _image_shape(module: Any, request: Request) -> tuple[int, int, int]:
    config = _image_config(module.config)
    channels = next((getattr(config, key) for key in ("num_channels", "in_channels") if hasattr(config, key)), 3)
    size = request.image_size or getattr(config, "image_size", None)
    if size is None:
        size = DETECTION_IMAGE_SIZE if type(module).__name__.endswith("ForObjectDetection") else DEFAULT_IMAGE_SIZE
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return channels, height, width


def _labels(module: torch.nn.Module, inputs: dict[str, torch.Tensor], batch_size: int) -> dict[str, torch.Tensor]:
    """Targets with which the output carries its loss, for the heads whose loss needs nothing else."""
    head = type(module).__name__
    tokens = inputs.get("decoder_input_ids", inputs.get("input_ids"))
    if head.endswith(CLASSIFIERS):
        return {"labels": torch.empty(batch_size, dtype=torch.int64, device="meta")}
    if head.endswith(LANGUAGE_MODELS) and tokens is not None:
        labels = {"labels": torch.empty_like(tokens)}
        if "next_sentence_label" in inspect.signature(module.forward).parameters:  # without it, BERT gives no loss
            labels["next_sentence_label"] = torch.empty(batch_size, dtype=torch.int64, device="meta")
        return labels
    return {}


def _check_positions(module: torch.nn.Module, tokens: int, request: Request) -> None:
    """Refuse more tokens than a learned position table holds, which ``meta`` would not notice.

    Raises:
        ValueError: If there are more.
    """
    for name, table in module.named_modules():
        leaf = name.rpartition(".")[2]
        if not isinstance(table, torch.nn.Embedding) or "vision" in name:
            continue
        if (
            leaf in ("wpe", "embed_positions", "position_embeddings", "position_embedding")
            and table.num_embeddings < tokens
        ):
            raise ValueError(
                f"{request.source} has positions for {table.num_embeddings} tokens, not for {tokens}: ask for fewer"
            )
