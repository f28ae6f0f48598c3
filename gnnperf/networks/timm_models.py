"""``timm:NAME`` networks: image classifiers of PyTorch Image Models, with or without a pretrained tag."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gnnperf.networks.base import (
    Request,
    ZooModel,
    images,
    import_optional,
    on_meta,
    size_errors_as_value_errors,
    unknown_name,
)


def build(request: Request) -> ZooModel:
    """Build a timm network and an image batch ``(batch_size, channels, height, width)`` on ``meta``.

    A pretrained tag (``resnet50.a1_in1k``) that this timm knows decides the default image size and the number of
    classes, as it does in timm; an unknown tag is dropped.

    Raises:
        ValueError: If timm is absent or does not know the name, or the network cannot take the image size.
    """
    timm = import_optional("timm", request.prefix)
    request.sizes()
    name = _known_name(timm, request)
    channels, height, width = _published_input_size(timm, name)
    asked_size = request.image_size if request.image_size not in (None, height) or height != width else None
    if request.image_size is not None:
        height = width = request.image_size
    with size_errors_as_value_errors(request), _fast_norm(request.fast_norm):
        plain = on_meta(lambda: _create(timm, name, asked_size))
        module = on_meta(lambda: _reparameterized(plain)) if request.reparameterize else plain
    inputs = (images(request.batch_size, channels, height, width),)
    return ZooModel(request.source, module, inputs, folded=_parameter_count(module) != _parameter_count(plain))


def _known_name(timm: Any, request: Request) -> str:
    """The name as timm spells it: with its tag if timm knows the tag, without it otherwise."""
    architecture, _, tag = request.name.partition(".")
    if not timm.is_model(architecture):
        raise unknown_name(request.source, architecture, timm.list_models())
    try:
        return request.name if tag and timm.get_pretrained_cfg(request.name) is not None else architecture
    except RuntimeError:  # how timm says that the architecture has no such tag
        return architecture


def _published_input_size(timm: Any, name: str) -> tuple[int, int, int]:
    config = timm.get_pretrained_cfg(name)
    return tuple(config.input_size) if config is not None else (3, 224, 224)


def _create(timm: Any, name: str, image_size: int | None) -> torch.nn.Module:
    """Tell the constructor the image size if it takes one, as networks with position tables do."""
    if image_size is not None:
        try:
            return timm.create_model(name, pretrained=False, img_size=image_size)
        except TypeError as error:
            if "img_size" not in str(error):
                raise
    return timm.create_model(name, pretrained=False)


def _reparameterized(module: torch.nn.Module) -> torch.nn.Module:
    """The network with its training-time branches folded, as timm's benchmarks of 2025 ran it."""
    reparameterize = import_optional("timm.utils", "timm").reparameterize_model
    with torch.no_grad():
        return reparameterize(module.eval())


@contextmanager
def _fast_norm(enable: bool) -> Iterator[None]:
    """Build networks with timm's option for norms that autocast leaves alone; norms keep it from when they are made."""
    layers = import_optional("timm.layers", "timm")
    before = layers.is_fast_norm()
    layers.set_fast_norm(enable)
    try:
        yield
    finally:
        layers.set_fast_norm(before)


def _parameter_count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
