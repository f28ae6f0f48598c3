"""Graphs as JSON: written without what is empty, read with every field checked for its type."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from gnnperf.files import read_text, unique_keys
from gnnperf.graph.computation_graph import Allocation, ComputationGraph, Edge, Node, TensorSpec

FORMAT_VERSION = 1
MAX_FILE_BYTES = 256_000_000  # a thousand times a ResNet; what is larger would not be read in reasonable time

_Read = TypeVar("_Read", TensorSpec, Node, Edge, Allocation, ComputationGraph)

# Values that files leave out.
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "broadcast": ((),),
    "batch_slope": ((),),
    "layout": ("row_major",),
    "attributes": ({},),
    "attribute_slopes": ({},),
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
    return from_json(read_text(path, "graph file", MAX_FILE_BYTES), str(path))


def from_json(text: str, path: str) -> ComputationGraph:
    """Read what ``to_json`` wrote; ``path`` is where it comes from, for messages.

    Raises:
        ValueError: If it is not such a graph, with what is wrong in it.
    """
    try:
        content = json.loads(text, object_pairs_hook=unique_keys)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path!r} is not a graph saved by gnnperf: not valid JSON ({error})") from error
    except ValueError as error:
        raise ValueError(f"{path!r} is damaged: {error}") from error
    if not isinstance(content, dict) or "gnnperf_graph" not in content:
        raise ValueError(f"{path!r} is not a graph saved by gnnperf: the key 'gnnperf_graph' is missing")
    version = content.pop("gnnperf_graph")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path!r} has graph format {version!r}, this gnnperf reads {FORMAT_VERSION}: capture it again"
        )
    try:
        graph = _read_graph(content)
        graph.validate()
    except ValueError as error:
        raise ValueError(f"{path!r} is damaged: {error}") from error
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
    return _record(
        ComputationGraph,
        content,
        nodes=_read_node,
        edges=_read_edge,
        inputs=_read_tensor,
        outputs=_read_tensor,
        allocations=_read_allocation,
    )


def _read_node(content: Any) -> Node:
    return _record(Node, content, inputs=_read_tensor, outputs=_read_tensor)


def _read_edge(content: Any) -> Edge:
    return _record(Edge, content, tensor=_read_tensor)


def _read_tensor(content: Any) -> TensorSpec:
    return _record(TensorSpec, content)


def _read_allocation(content: Any) -> Allocation:
    return _record(Allocation, content)


def _record(kind: type[_Read], content: Any, **readers: Callable[[Any], Any]) -> _Read:
    """A ``kind`` of the fields in ``content``, each checked for its type or, element by element, read by its reader.

    Only what files leave out may be absent: a default in place of a size would be silently wrong.
    """
    if type(content) is not dict:
        raise ValueError(f"{reprlib.repr(content)} is no {kind.__name__}")
    types = {field.name: str(field.type) for field in fields(kind)}
    for key in content:
        if key not in types:
            raise ValueError(f"the key {reprlib.repr(key)} is unknown")
    for key in types:
        if key not in content and key not in _DEFAULTS:
            raise ValueError(f"the key {key!r} is missing")
    values: dict[str, Any] = {}
    for key, value in content.items():
        if (reader := readers.get(key)) is not None:
            values[key] = _each(key, value, reader) if types[key].startswith("tuple") else _within(key, value, reader)
            continue
        values[key] = tuple(value) if type(value) is list else value
        if not _CHECKS[types[key]](values[key]):
            raise ValueError(f"{key} is {reprlib.repr(value)}, not {types[key]}")
    return kind(**values)


def _each(key: str, items: Any, reader: Callable[[Any], Any]) -> tuple[Any, ...]:
    if type(items) is not list:
        raise ValueError(f"{key} is {reprlib.repr(items)}, not a list")
    return tuple(_within(f"{key}[{position}]", item, reader) for position, item in enumerate(items))


def _within(place: str, content: Any, reader: Callable[[Any], Any]) -> Any:
    try:
        return reader(content)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _is_integer(value: Any) -> bool:
    return type(value) is int


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _is_attribute(value: Any) -> bool:
    return isinstance(value, bool | str) or _is_number(value) or (type(value) is list and all(map(_is_integer, value)))


# What a file may hold in a field of the given type; the other types have readers.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: type(value) is str,
    "int": _is_integer,
    "float": _is_number,
    "bool": lambda value: type(value) is bool,
    "tuple[int, ...]": lambda value: type(value) is tuple and all(map(_is_integer, value)),
    "tuple[float, ...]": lambda value: type(value) is tuple and all(map(_is_number, value)),
    "tuple[str, ...]": lambda value: type(value) is tuple and all(type(item) is str for item in value),
    "dict[str, float]": lambda value: type(value) is dict and all(map(_is_number, value.values())),
    "dict[str, Attribute]": lambda value: type(value) is dict and all(map(_is_attribute, value.values())),
}
