"""What every builder of the zoo shares: the request, the result and the ways to say no."""

from __future__ import annotations

import difflib
import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils.weak import WeakIdKeyDictionary

from gnnperf.capture.autocast import autocast_on_meta
from gnnperf.graph import MODES


@dataclass(frozen=True)
class ZooModel:
    """A network without weights and an input to run it on, both on the ``meta`` device.

    Attributes:
        name: The name that was asked for, with its prefix.
        module: The network, set to train or eval as the request's mode says.
        example_inputs: The forward's positional arguments (a tuple) or keyword arguments (a dict).
        folded: Whether training-time branches were there to fold, and were folded.
    """

    name: str
    module: torch.nn.Module
    example_inputs: tuple[Any, ...] | dict[str, Any]
    folded: bool = False


@dataclass(frozen=True)
class Request:
    """What to build, checked.

    Attributes:
        prefix: The part of the name before the colon, such as ``timm``.
        name: The part after it.
        batch_size: Samples in the example input.
        image_size: Height and width of an image in pixels; None means the network's own.
        dims: Sizes of further input dimensions by name, such as ``seq``.
        mode: ``inference`` or ``training``.
        reparameterize: Whether training-time branches are folded into one convolution.
        fast_norm: Whether norms stay in the lower precision under autocast.

    Raises:
        ValueError: If a value is out of range.
    """

    prefix: str
    name: str
    batch_size: int = 1
    image_size: int | None = None
    dims: dict[str, int] = field(default_factory=dict)
    mode: str = "inference"
    reparameterize: bool = False
    fast_norm: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        _check_size("batch_size", self.batch_size)
        if self.image_size is not None:
            _check_size("image_size", self.image_size)
        for name, size in self.dims.items():
            _check_size(f"dimension {name!r}", size)
        if self.reparameterize and self.mode == "training":
            raise ValueError("reparameterize folds branches for inference: leave it out, or use mode='inference'")

    @property
    def source(self) -> str:
        """The whole name."""
        return f"{self.prefix}:{self.name}"

    def sizes(self, **defaults: int) -> dict[str, int]:
        """The dimensions that this network takes: ``defaults`` overlaid with ``dims``.

        Raises:
            ValueError: If ``dims`` holds a name that is not among ``defaults``.
        """
        for name in self.dims:
            if name not in defaults:
                accepted = f"it takes {', '.join(defaults)}" if defaults else "it takes none"
                raise ValueError(
                    f"{self.source} has no dimension {name!r}: {accepted} (batch_size and image_size stand apart)"
                )
        return {**defaults, **self.dims}


def _check_size(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{what} must be a whole number of at least 1, not {value!r}")


def import_optional(module: str, prefix: str) -> ModuleType:
    """Import a library of the ``zoo`` extra, keeping its import warnings to itself.

    Raises:
        ValueError: If the library is not installed.
    """
    library = module.partition(".")[0]
    try:
        with quiet():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        raise ValueError(f"`{prefix}:` networks need {library}: pip install 'gnnperf[zoo]'") from None


def unknown_name(source: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that no builder knows, with the nearest ones that exist."""
    prefix = source.partition(":")[0]
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(f'{prefix}:{n}' for n in near)}?" if near else "nothing known has a similar name"
    return ValueError(f"{source} is unknown: {hint}")


@contextmanager
def size_errors_as_value_errors(request: Request) -> Iterator[None]:
    """Turn a library's refusal, such as of the image size that the user asked for, into one line."""
    try:
        yield
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        size = "" if request.image_size is None else f" for image_size={request.image_size}"
        raise ValueError(f"{request.source} cannot be built{size}: {reason}") from error


def images(batch_size: int, channels: int, height: int, width: int) -> torch.Tensor:
    """A batch of images without data, ``(batch_size, channels, height, width)`` in float32."""
    return torch.empty(batch_size, channels, height, width, device="meta")


@contextmanager
def quiet() -> Iterator[None]:
    """Drop the warnings that libraries raise while they are imported or build a network."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def on_meta(create: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """Run ``create`` with ``meta`` as the default device, or on the CPU where it reads values of its tensors.

    On the CPU a parameter moves to ``meta`` as soon as a module owns it, before it gets initial values. Random state
    is given back as it was.
    """
    with quiet(), autocast_on_meta():
        try:
            with torch.device("meta"), torch.random.fork_rng(devices=[]):
                return create().to("meta")
        except RuntimeError:
            with torch.random.fork_rng(devices=[]), _parameters_on_meta():
                return create().to("meta")


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    moved = WeakIdKeyDictionary()  # a parameter that two modules own stays one parameter

    def move(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> Any:
        if parameter is None or parameter.is_meta:
            return parameter
        if parameter not in moved:
            moved[parameter] = torch.nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
        return moved[parameter]

    handle = register_module_parameter_registration_hook(move)
    try:
        yield
    finally:
        handle.remove()
