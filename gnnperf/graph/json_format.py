"""Graphs as JSON: written without what is empty, read with every field checked for its type."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from gnnperf.graph.computation_graph import Allocation, ComputationGraph, Edge, Node, TensorSpec

FORMAT_VERSION = 1

# Values that files leave out.
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "broadcast": ((),),
    "batch_slope": ((),),
    "layout": ("row_major",),
    "attributes": ({},),
    "attribute_slopes": ({},),
    "allocations": ((),),
    "bytes_slope": (0.0,),
    "is_gradient": (False,),
}


def to_json(graph: ComputationGraph) -> str:
    """The graph as one line of JSON."""
    content = {"gnnperf_graph": FORMAT_VERSION, **_plain(graph)}
    return json.dumps(content, separators=(",", ":"))


def load(path: str | Path) -> ComputationGraph:
    """Read a graph that ``ComputationGraph.save`` wrote.

    Raises:
        ValueError: If the file is not such a graph, with what is wrong in it.
    """
    try:
        return from_json(Path(path).read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ValueError(f"cannot read graph file {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(path)!r} is not a graph saved by gnnperf: not valid JSON ({error})") from error


def from_json(text: str, path: str) -> ComputationGraph:
    """Read what ``to_json`` wrote; ``path`` is where it comes from, for messages.

    Raises:
        ValueError: If it is not such a graph, with what is wrong in it.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is not a graph saved by gnnperf: not valid JSON ({error})") from error
    if not isinstance(content, dict) or "gnnperf_graph" not in content:
        raise ValueError(f"{str(path)!r} is not a graph saved by gnnperf: the key 'gnnperf_graph' is missing")
    version = content.pop("gnnperf_graph")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{str(path)!r} has graph format {version!r}, this gnnperf reads {FORMAT_VERSION}: capture it again"
        )
    try:
        graph = _read_graph(content)
        graph.validate()
    except KeyError as error:
        raise ValueError(f"{str(path)!r} is damaged: the key {error} is missing") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}") from error
    return graph


def _plain(value: Any) -> Any:
    """Plain values for JSON; empty optional fields are left out, so that files stay small."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, TensorSpec | Node | Edge | Allocation | ComputationGraph):
        content = {f.name: getattr(value, f.name) for f in fields(value)}
        return {key: _plain(item) for key, item in content.items() if item not in _DEFAULTS.get(key, ())}
    return value


def _read_graph(content: dict[str, Any]) -> ComputationGraph:
    read: dict[str, Any] = {key: _read_tensors(content[key]) for key in ("inputs", "outputs")}
    read["nodes"] = tuple(_read_node(node) for node in content["nodes"])
    read["edges"] = tuple(_typed(Edge(**{**e, "tensor": _read_tensors([e["tensor"]])[0]})) for e in content["edges"])
    read["allocations"] = tuple(_typed(Allocation(**a)) for a in content.get("allocations", ()))
    read["warnings"] = tuple(content["warnings"])
    return _typed(ComputationGraph(**{**content, **read}))


def _read_node(node: dict[str, Any]) -> Node:
    return _typed(Node(**{**node, "inputs": _read_tensors(node["inputs"]), "outputs": _read_tensors(node["outputs"])}))


def _read_tensors(tensors: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(_typed(TensorSpec(**{key: _tuple(item) for key, item in tensor.items()})) for tensor in tensors)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_integer(value: Any) -> bool:
    return type(value) is int


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_attribute(value: Any) -> bool:
    return isinstance(value, bool | str) or _is_number(value) or (type(value) is list and all(map(_is_integer, value)))


# What a file may hold in a field of the given type; the other types are built by the reader itself.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: type(value) is str,
    "int": _is_integer,
    "float": _is_number,
    "bool": lambda value: type(value) is bool,
    "tuple[int, ...]": lambda value: type(value) is tuple and all(map(_is_integer, value)),
    "tuple[float, ...]": lambda value: type(value) is tuple and all(map(_is_number, value)),
    "tuple[str, ...]": lambda value: all(type(item) is str for item in value),
    "dict[str, float]": lambda value: type(value) is dict and all(map(_is_number, value.values())),
    "dict[str, Attribute]": lambda value: type(value) is dict and all(map(_is_attribute, value.values())),
}
_Read = TypeVar("_Read", TensorSpec, Node, Edge, Allocation, ComputationGraph)


def _typed(value: _Read) -> _Read:
    """``value`` itself, if its fields are of their types."""
    for item in fields(value):
        check = _CHECKS.get(str(item.type))
        if check is not None and not check(getattr(value, item.name)):
            raise ValueError(f"{item.name} is {reprlib.repr(getattr(value, item.name))}, not {item.type}")
    return value
