"""Where graphs come from: a zoo name, a file, or a factory in the user's own code."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gnnperf import networks
from gnnperf.capture import capture, capture_owned
from gnnperf.capture.optimizers import OptimizerLike
from gnnperf.graph import ComputationGraph

GRAPH_SUFFIX = ".json"
PROGRAM_SUFFIXES = (".onnx", ".pt2")
_FACTORY = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*(\.[^\W\d]\w*)*)")


def load(path: str | Path, dims: Mapping[str, int] | None = None) -> ComputationGraph:
    """Read a network from a file.

    Args:
        path: A graph that ``ComputationGraph.save`` wrote.
        dims: Sizes of input dimensions by name; a saved graph has one, ``batch``.

    Raises:
        ValueError: If the file cannot be read, is not of a kind that is supported, or lacks a dimension of that name.
    """
    path = Path(path)
    if path.suffix.lower() in PROGRAM_SUFFIXES and path.exists():
        raise ValueError(
            f"{str(path)!r}: {path.suffix} files are not supported yet: load the network in Python and give "
            "package.module:factory, or a graph that gnnperf saved"
        )
    graph = ComputationGraph.load(path)
    for name, size in (dims or {}).items():
        if name != "batch":
            raise ValueError(f"{str(path)!r} has no dimension {name!r}: a saved graph has only 'batch'")
        graph = graph.rescale(size)
    return graph


def zoo(
    name: str,
    batch_size: int = 1,
    image_size: int | None = None,
    mode: str = "inference",
    precision: str = "fp32",
    dims: Mapping[str, int] | None = None,
    reparameterize: bool = False,
    optimizer: OptimizerLike | None = None,
) -> ComputationGraph:
    """Capture a published network by name, without its weights and without network access.

    Args:
        name: Prefix and name, such as ``timm:resnet50``.
        batch_size: Samples in the input.
        image_size: Height and width of an image in pixels; by default what the network was published with.
        mode: ``inference`` or ``training``, a whole step.
        precision: As in ``gnnperf.capture``.
        dims: Sizes of further input dimensions by name, such as ``{"seq": 2048}``.
        reparameterize: Fold training-time branches into single convolutions (timm).
        optimizer: As in ``gnnperf.capture``, but for an instance.

    Raises:
        ValueError: If the name is unknown, its library is not installed, or an argument does not suit the network.
    """
    model = networks.build(name, batch_size, image_size, dict(dims or {}), mode, reparameterize)
    return capture_owned(model.module, model.example_inputs, mode, precision, name, optimizer)


def from_factory(
    reference: str,
    batch_size: int | None = None,
    mode: str = "inference",
    precision: str = "fp32",
    optimizer: OptimizerLike | None = None,
) -> ComputationGraph:
    """Capture what a callable of the user returns.

    Args:
        reference: ``package.module:callable``, looked up in the working directory first, as ``python -m`` does. The
            callable takes nothing and returns ``(module, example_inputs)``, see ``gnnperf.capture``.
        batch_size: Scale the example inputs to it before they are run; by default their own batch.
        mode: ``inference`` or ``training``.
        precision: As in ``gnnperf.capture``, like the next.
        optimizer: For training.

    Raises:
        ValueError: If there is no such callable, it raises or returns something else, or the module does not run on
            its inputs.
    """
    match = _FACTORY.fullmatch(reference)
    if match is None:
        raise ValueError(f"{reference!r} is no package.module:factory")
    with _working_directory_first():
        module, example_inputs = _call(reference, _find(reference, match["module"], match["name"]))
        try:
            return capture(
                module, example_inputs, mode, precision, optimizer=optimizer, name=reference, batch_size=batch_size
            )
        except SystemExit as error:
            raise ValueError(f"{reference}: the module raised {_line(error)}") from error


def graph_of(
    source: str,
    batch_size: int | None = None,
    image_size: int | None = None,
    mode: str | None = None,
    precision: str | None = None,
    dims: Mapping[str, int] | None = None,
    optimizer: str | None = None,
) -> ComputationGraph:
    """The graph of any source; ``None`` stands for what the source itself says.

    Args:
        source: A zoo name, a file, or ``package.module:factory``, tried in this order.
        batch_size: Samples in the input.
        image_size: For zoo names.
        mode: For zoo names and factories; a file has its own.
        precision: For zoo names and factories; a file has its own.
        dims: For zoo names and files.
        optimizer: Of a training step, for zoo names and factories; a file has its own.

    Raises:
        ValueError: If the source cannot be found or an option does not apply to it.
    """
    how = mode or "inference", precision or "fp32"
    if networks.is_zoo_name(source):
        batch = 1 if batch_size is None else batch_size
        return zoo(source, batch, image_size, *how, dims=dims, optimizer=optimizer)
    if image_size is not None:
        raise ValueError(f"image size is an option of zoo networks; {source!r} brings its own input")
    if _is_file(source):
        if optimizer is not None:
            raise ValueError(f"{source!r} was captured with the optimizer that it has: capture it again for another")
        graph = load(source, dims)
        if batch_size is not None:
            graph = graph.rescale(batch_size)
        for name, wanted, own in (("mode", mode, graph.mode), ("precision", precision, graph.precision)):
            if wanted not in (None, own):
                raise ValueError(f"{source!r} was captured with {name} {own}, not {wanted}: capture it again")
        return graph
    if not _FACTORY.fullmatch(source):
        names = ", ".join(f"{prefix}:NAME" for prefix in networks.PREFIXES)
        raise ValueError(f"{source!r} is no zoo name ({names}), no file, and no package.module:factory")
    if dims:
        raise ValueError(f"{source!r} brings its own input: set {', '.join(dims)} in the factory")
    return from_factory(source, batch_size, *how, optimizer=optimizer)


def _is_file(source: str) -> bool:
    return Path(source).suffix.lower() in (GRAPH_SUFFIX, *PROGRAM_SUFFIXES) or os.path.exists(source)


@contextmanager
def _working_directory_first() -> Iterator[None]:
    """Imports see the working directory first, as under ``python -m``."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _find(reference: str, module_name: str, name: str) -> Callable[[], Any]:
    try:
        importlib.invalidate_caches()  # the module may be younger than the last import
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(f"{reference}: importing {module_name} failed: {_line(error)}") from error
        names = ", ".join(f"{prefix}:" for prefix in networks.PREFIXES)
        raise ValueError(
            f"{reference}: there is no module {error.name!r} in the working directory or installed, "
            f"and no zoo prefix of that name ({names})"
        ) from error
    except (Exception, SystemExit) as error:
        raise ValueError(f"{reference}: importing {module_name} failed: {_line(error)}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{reference}: {module_name} has no {name!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{reference} is not callable; a factory is a function that returns (module, example_inputs)")
    return found


def _call(reference: str, factory: Callable[[], Any]) -> tuple[torch.nn.Module, Any]:
    try:
        result = factory()
    except (Exception, SystemExit) as error:
        raise ValueError(f"{reference} raised {_line(error)}{_place(error, factory)}") from error
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], torch.nn.Module):
        what = "a module alone" if isinstance(result, torch.nn.Module) else type(result).__name__
        raise ValueError(f"{reference} must return (module, example_inputs), and returned {what}")
    return result


def _line(error: BaseException) -> str:
    """Kind and message of an exception in one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _place(error: BaseException, factory: Callable[[], Any]) -> str:
    """Where in the factory's own file it happened."""
    module: ModuleType | None = sys.modules.get(getattr(factory, "__module__", ""))
    file = getattr(module, "__file__", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if file and frame.filename == file]
    return f" (line {lines[-1]} of {Path(str(file)).name})" if lines else ""
