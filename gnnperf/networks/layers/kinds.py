"""The kinds of layers: their fields and flags, the module that runs, and its inputs.

``padding`` of a convolution is a number of pixels on every side, or one of TensorFlow's words: ``valid`` adds none;
``same`` adds as many as give an output of ``ceil(size / stride)``, the odd one below and on the right (documentation of
``tf.nn.convolution``, "Notes on padding"). Where the two sides differ, the image is padded first and then convolved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from gnnperf.networks.base import images

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}
BINARY_OPS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
}
PADDING_WORDS = ("valid", "same")
_LAYER_FLAGS = ("bias", *ACTIVATIONS, "trained_data")
_SCALAR = 0.3  # no special case of any op, as an exponent of 2 or 0.5 would be


@dataclass(frozen=True)
class Layer:
    """A name taken apart: sizes, padding, and the flags that were set."""

    kind: str
    sizes: Mapping[str, int]
    padding: int | str
    flags: frozenset[str]

    def at_size(self, size: int) -> Layer:
        """The same layer for images of ``size`` pixels a side."""
        return replace(self, sizes={**self.sizes, "size": size})


@dataclass(frozen=True)
class Kind:
    """A kind of layer.

    Attributes:
        fields: Defaults by name; None where a value must be given. A default of 0 means that there is no such thing.
        flags: Names that may stand without a value.
        module: Makes what runs.
        inputs: Makes its operands on ``meta`` for a batch size.
    """

    fields: Mapping[str, int | str | None]
    flags: tuple[str, ...]
    module: Callable[[Layer], nn.Module]
    inputs: Callable[[Layer, int], tuple[torch.Tensor, ...]]


class Product(nn.Module):
    """A batch of matrix products."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """(batch, rows, depth) by (batch, depth, columns) to (batch, rows, columns)."""
        return torch.bmm(left, right)


class Binary(nn.Module):
    """An op of two tensors of one shape."""

    def __init__(self, op: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.op = op

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Two tensors to one of their shape."""
        return self.op(left, right)


class WithScalar(Binary):
    """An op of a tensor and a number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """A tensor to one of its shape."""
        return self.op(x, _SCALAR)


def _conv2d(layer: Layer) -> nn.Module:
    kernel, stride, groups, size = (layer.sizes[name] for name in ("kernel", "stride", "groups", "size"))
    before, after = _pads(layer.padding, size, kernel, stride)
    if size + before + after < kernel:
        raise ValueError(f"a kernel of {kernel} does not fit into {size} pixels with padding {layer.padding}")
    parts: dict[str, nn.Module] = {}
    if before != after:
        parts["pad"] = nn.ZeroPad2d((before, after, before, after))
    padding = before if before == after else 0
    channels = layer.sizes["channels_in"], layer.sizes["channels_out"]
    parts["conv"] = nn.Conv2d(*channels, kernel, stride, padding, groups=groups, bias="bias" in layer.flags)
    return _activated(layer, parts)


def _pads(padding: int | str, size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Pixels before and after the image, along either axis."""
    if padding == "valid":
        return 0, 0
    if isinstance(padding, int):
        return padding, padding
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2


def _linear(layer: Layer) -> nn.Module:
    features = layer.sizes["features_in"], layer.sizes["features_out"]
    return _activated(layer, {"linear": nn.Linear(*features, bias="bias" in layer.flags)})


def _activated(layer: Layer, parts: dict[str, nn.Module]) -> nn.Module:
    module = nn.Sequential()
    for name in layer.flags & ACTIVATIONS.keys():
        parts[name] = ACTIVATIONS[name]()
    for name, part in parts.items():
        module.add_module(name, part)
    return module


def _binary(layer: Layer) -> nn.Module:
    op = BINARY_OPS[layer.kind]
    return WithScalar(op) if "scalar" in layer.flags else Binary(op)


def _images(layer: Layer, batch_size: int) -> tuple[torch.Tensor, ...]:
    size = layer.sizes["size"]
    return (images(batch_size, layer.sizes["channels_in"], size, size),)


def _vectors(layer: Layer, batch_size: int) -> tuple[torch.Tensor, ...]:
    """(batch, features), or (batch, rows, features)."""
    rows = [layer.sizes["rows"]] if layer.sizes["rows"] else []
    features = layer.sizes["features_in" if "features_in" in layer.sizes else "features"]
    return (torch.empty(batch_size, *rows, features, device="meta"),)


def _operands(layer: Layer, batch_size: int) -> tuple[torch.Tensor, ...]:
    (left,) = _vectors(layer, batch_size)
    return (left,) if "scalar" in layer.flags else (left, torch.empty_like(left))


def _matrices(layer: Layer, batch_size: int) -> tuple[torch.Tensor, ...]:
    rows, depth, columns = (layer.sizes[name] for name in ("rows", "depth", "columns"))
    return torch.empty(batch_size, rows, depth, device="meta"), torch.empty(batch_size, depth, columns, device="meta")


_CONV2D = {
    "channels_in": None,
    "channels_out": None,
    "kernel": None,
    "stride": 1,
    "padding": "valid",
    "groups": 1,
    "size": 224,
}
_VECTORS = {"features": None, "rows": 0}
KINDS: dict[str, Kind] = {
    "conv2d": Kind(_CONV2D, _LAYER_FLAGS, _conv2d, _images),
    "linear": Kind({"features_in": None, "features_out": None, "rows": 0}, _LAYER_FLAGS, _linear, _vectors),
    "matmul": Kind({"rows": None, "depth": None, "columns": None}, (), lambda layer: Product(), _matrices),
    "layer_norm": Kind(_VECTORS, (), lambda layer: nn.LayerNorm(layer.sizes["features"]), _vectors),
    "softmax": Kind(_VECTORS, (), lambda layer: nn.Softmax(dim=-1), _vectors),
    **{name: Kind(_VECTORS, (), lambda layer: ACTIVATIONS[layer.kind](), _vectors) for name in ACTIVATIONS},
    **{name: Kind(_VECTORS, ("scalar",), _binary, _operands) for name in BINARY_OPS},
}
