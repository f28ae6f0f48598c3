"""``layer:KIND,FIELD=VALUE,...,FLAG,...`` networks: one layer and its activation, as benchmarks of layers run them.

``layer:conv2d,channels_in=16,channels_out=32,kernel=3,stride=2,padding=same,size=56,bias,relu`` and
``layer:linear,features_in=512,features_out=1000,bias``. The fields of each kind and what they default to stand in
``FIELDS``; the flags are ``bias``, one of ``ACTIVATIONS``, and ``trained_data``.

``padding`` is a number of pixels on every side, or one of TensorFlow's words: ``valid`` adds none; ``same`` adds as
many as give an output of ``ceil(size / stride)``, the odd one below and on the right (documentation of
``tf.nn.convolution``, "Notes on padding"). Where the two sides differ, the image is padded first and then convolved.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from gnnperf.networks.base import Request, ZooModel, images, on_meta, size_errors_as_value_errors

# Of every kind, its fields and their defaults; those without one must be given.
FIELDS: dict[str, dict[str, int | str | None]] = {
    "conv2d": {
        "channels_in": None,
        "channels_out": None,
        "kernel": None,
        "stride": 1,
        "padding": "valid",
        "groups": 1,
        "size": 224,
    },
    "linear": {"features_in": None, "features_out": None},
}
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}
FLAGS = ("bias", *ACTIVATIONS, "trained_data")
PADDING_WORDS = ("valid", "same")


@dataclass(frozen=True)
class Layer:
    """A name taken apart: sizes, padding, and the flags that were set."""

    kind: str
    sizes: Mapping[str, int]
    padding: int | str
    flags: frozenset[str]


def build(request: Request) -> ZooModel:
    """Build a layer and its input on ``meta``: images (batch, channels_in, size, size) or (batch, features_in).

    ``image_size`` stands above the field ``size``. With ``trained_data`` a training step is that of a benchmark in
    which the input, and a target of the output's shape, are variables: both get gradients and are updated like the
    weights, and the loss is the mean squared difference of output and target. Such a step is built for one batch size.

    Raises:
        ValueError: If a field is unknown, missing, given twice or out of range, or the sizes do not fit together.
    """
    request.sizes()
    layer = parse(request.source, request.name)
    if layer.kind == "linear" and request.image_size is not None:
        raise ValueError(f"{request.source} reads no images: leave image_size out")
    size = request.image_size or layer.sizes.get("size", 0)
    with size_errors_as_value_errors(request):
        module = on_meta(lambda: _module(layer, size))
    if layer.kind == "linear":
        data = torch.empty(request.batch_size, layer.sizes["features_in"], device="meta")
    else:
        data = images(request.batch_size, layer.sizes["channels_in"], size, size)
    if "trained_data" in layer.flags and request.mode == "training":
        return ZooModel(request.source, TrainedData(module, data), (torch.empty(len(data), 0, device="meta"),))
    return ZooModel(request.source, module, (data,))


def parse(source: str, text: str) -> Layer:
    """The layer that ``text``, the part of ``source`` after the prefix, describes.

    Raises:
        ValueError: As ``build`` does.
    """
    kind, *parts = text.split(",")
    if kind not in FIELDS:
        raise ValueError(f"{source} names no kind of layer: write layer:{' or layer:'.join(FIELDS)}, and its fields")
    fields: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if name not in (FIELDS[kind] if equals else FLAGS):
            raise _unknown_part(source, kind, name)
        if name in fields:
            raise ValueError(f"{source} gives {name} twice")
        fields[name] = value
    given = {**FIELDS[kind], **fields}
    if missing := [name for name, value in given.items() if value is None]:
        raise ValueError(f"{source} lacks {', '.join(missing)}")
    flags = frozenset(FLAGS) & fields.keys()
    if len(flags & ACTIVATIONS.keys()) > 1:
        raise ValueError(f"{source} has several activations: {', '.join(sorted(flags & ACTIVATIONS.keys()))}")
    word = given.get("padding", 0)
    padding = str(word) if word in PADDING_WORDS else _number(source, "padding", word, least=0)
    sizes = {name: _number(source, name, given[name]) for name in FIELDS[kind] if name != "padding"}
    return Layer(kind, sizes, padding, flags)


def _number(source: str, name: str, value: object, least: int = 1) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        words = f", {' or '.join(PADDING_WORDS)}" if name == "padding" else ""
        raise ValueError(f"{source}: {name} must be a whole number of at least {least}{words}, not {text!r}")
    return int(text)


def _unknown_part(source: str, kind: str, name: str) -> ValueError:
    known = [*(f"{field}=" for field in FIELDS[kind]), *FLAGS]
    if name in FLAGS:
        return ValueError(f"{source}: {name} is a flag and takes no value")
    if name in FIELDS[kind]:
        return ValueError(f"{source}: {name} is given without a value")
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.7)
    hint = f"did you mean {', '.join(near)}?" if near else f"{kind} takes {', '.join(known)}"
    return ValueError(f"{source} has no field {name!r}: {hint}")


def _module(layer: Layer, size: int) -> nn.Module:
    module = nn.Sequential()
    bias = "bias" in layer.flags
    if layer.kind == "linear":
        module.add_module("linear", nn.Linear(layer.sizes["features_in"], layer.sizes["features_out"], bias))
    else:
        kernel, stride, groups = (layer.sizes[name] for name in ("kernel", "stride", "groups"))
        before, after = _pads(layer.padding, size, kernel, stride)
        if size + before + after < kernel:
            raise ValueError(f"a kernel of {kernel} does not fit into {size} pixels with padding {layer.padding}")
        if before != after:
            module.add_module("pad", nn.ZeroPad2d((before, after, before, after)))
        padding = before if before == after else 0
        channels = layer.sizes["channels_in"], layer.sizes["channels_out"]
        module.add_module("conv", nn.Conv2d(*channels, kernel, stride, padding, groups=groups, bias=bias))
    for name in layer.flags & ACTIVATIONS.keys():
        module.add_module(name, ACTIVATIONS[name]())
    return module


def _pads(padding: int | str, size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Pixels before and after the image, along either axis."""
    if padding == "valid":
        return 0, 0
    if isinstance(padding, int):
        return padding, padding
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2


class TrainedData(nn.Module):
    """A layer whose input and target are parameters, compared by their mean squared difference."""

    def __init__(self, layer: nn.Module, data: torch.Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.data = nn.Parameter(data)
        with torch.no_grad():
            self.target = nn.Parameter(torch.empty_like(layer(data)))

    def forward(self, samples: torch.Tensor) -> dict[str, torch.Tensor]:
        """Output and loss; ``samples``, (batch, 0), only says the batch size that the parameters are for.

        Raises:
            ValueError: If it is another.
        """
        if len(samples) != len(self.data):
            raise ValueError(f"its data are parameters for batch {len(self.data)}")
        output = self.layer(self.data)
        return {"output": output, "loss": (output - self.target).square().mean()}
