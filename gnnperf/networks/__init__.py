"""Networks by name, built offline and without weights.

A zoo name is a prefix, a colon and the name that the library behind the prefix uses: ``timm:resnet50``,
``torchvision:resnet18``, ``hf:bert-base-uncased``; ``nasbench201:`` takes the string of a cell, ``layer:`` the
sizes of a single layer or op.
"""

from __future__ import annotations

import importlib

from gnnperf.networks.base import Request, ZooModel

__all__ = ["PREFIXES", "ZooModel", "build", "is_zoo_name"]

# Each builder module has ``build(request: Request) -> ZooModel`` and is imported when its prefix is first used.
PREFIXES: dict[str, str] = {
    "timm": "gnnperf.networks.timm_models",
    "torchvision": "gnnperf.networks.torchvision_models",
    "hf": "gnnperf.networks.hf_models",
    "nasbench201": "gnnperf.networks.nasbench201",
    "layer": "gnnperf.networks.layers",
}


def is_zoo_name(source: str) -> bool:
    """Whether ``source`` starts with a prefix of the zoo, such as ``timm:``."""
    prefix, colon, _ = source.partition(":")
    return bool(colon) and prefix in PREFIXES


def build(
    name: str,
    batch_size: int = 1,
    image_size: int | None = None,
    dims: dict[str, int] | None = None,
    mode: str = "inference",
    reparameterize: bool = False,
    fast_norm: bool = False,
) -> ZooModel:
    """Build a network by name on the ``meta`` device: no weights, no memory, no network access.

    Args:
        name: Prefix and name, such as ``timm:resnet50``.
        batch_size: Samples in the example input.
        image_size: Height and width of an image in pixels; by default what the network was published with.
        dims: Sizes of further input dimensions by name, such as ``{"seq": 2048}``.
        mode: ``inference`` or ``training``; sets the module's train or eval flag.
        reparameterize: Fold training-time branches into single convolutions (timm, inference only).
        fast_norm: Keep layer and group norms in the lower precision under autocast (timm, where it is an option).

    Returns:
        The module and its example inputs, all on ``meta``.

    Raises:
        ValueError: If the name is unknown, its library is not installed, or an argument does not suit the network.
    """
    if not is_zoo_name(name):
        raise ValueError(f"{name} is no zoo name: write one of {', '.join(f'{p}:NAME' for p in PREFIXES)}")
    prefix, _, rest = name.partition(":")
    request = Request(prefix, rest, batch_size, image_size, dict(dims or {}), mode, reparameterize, fast_norm)
    builder = importlib.import_module(PREFIXES[prefix])
    try:
        model: ZooModel = builder.build(request)
    except RuntimeError as error:  # sizes beyond what torch counts
        raise ValueError(f"{name} cannot be built at this size: {' '.join(str(error).split())}") from error
    model.module.train(mode == "training")
    return model
