"""Where the time goes: by part of the network, and by class of op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnperf.cost.registry import node_cost
from gnnperf.graph import Node
from gnnperf.prediction import OVERHEAD, Prediction

DEFAULT_ROWS = 15
_OTHERS = "(others)"


@dataclass(frozen=True, eq=False)
class Part:
    """Some nodes of a network and what they cost.

    Attributes:
        name: Dotted path of the module; ``*`` stands for repeated blocks, which are taken together. In a training step
            the phase comes first, such as ``backward: layers.*``.
        ops: Their ops, the costliest first.
        nodes: How many there are.
        flops: Of all of them.
        bytes: Read and written.
        times_ms: (devices,) milliseconds on every device.
    """

    name: str
    ops: tuple[str, ...]
    nodes: int
    flops: float
    bytes: float
    times_ms: np.ndarray


def by_module(predictions: Sequence[Prediction], rows: int = DEFAULT_ROWS) -> list[Part]:
    """The parts of a network, the costliest on the first device first, then all others, and the overhead last.

    The costliest part is split into its children, again and again, as long as that leaves at most ``rows`` parts; so
    there is detail where the time goes. Numbered blocks are taken together, and so are numbered layers that would be
    too many.

    Args:
        predictions: Of one graph, on one device or more.
        rows: How many parts at most, the overhead not counted.
    """
    nodes = predictions[0].graph.nodes
    times_ms = np.stack([p.node_times_ms for p in predictions], axis=1)
    costs = [node_cost(node, predictions[0].software.attention) for node in nodes]
    parts = []
    for group in _split(nodes, times_ms[:, 0], max(1, rows)):
        chosen = list(group.members)
        ops: dict[str, float] = {}
        for member in chosen:
            ops[nodes[member].op] = ops.get(nodes[member].op, 0.0) + times_ms[member, 0]
        flops, moved = sum(costs[m].flops for m in chosen), sum(costs[m].bytes for m in chosen)
        by_cost = tuple(sorted(ops, key=lambda op: -ops[op]))
        parts.append(Part(group.name, by_cost, len(chosen), flops, moved, times_ms[chosen].sum(axis=0)))
    parts.sort(key=lambda part: (part.name == _OTHERS, -part.times_ms[0]))
    return [*parts, Part(OVERHEAD, (), 0, 0.0, 0.0, np.array([p.overhead_ms for p in predictions]))]


def by_op_class(prediction: Prediction) -> dict[str, float]:
    """Milliseconds by op class (``gnnperf.cost.registry.OP_CLASSES``), the longest first; the overhead is left out."""
    times_ms: dict[str, float] = {}
    for node, time_ms in zip(prediction.graph.nodes, prediction.node_times_ms.tolist(), strict=True):
        op_class = node_cost(node, prediction.software.attention).op_class
        times_ms[op_class] = times_ms.get(op_class, 0.0) + time_ms
    return dict(sorted(times_ms.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class _Group:
    """Nodes whose paths agree up to ``len(prefix)``."""

    prefix: tuple[str, ...]
    members: tuple[int, ...]

    @property
    def name(self) -> str:
        return ".".join(self.prefix).replace(":.", ": ").removesuffix(":")


def _split(nodes: Sequence[Node], times_ms: np.ndarray, rows: int) -> list[_Group]:
    paths = [tuple(node.module.split(".")) if node.module else () for node in nodes]
    if any(node.phase != "forward" for node in nodes):
        paths = [(f"{node.phase}:", *path) for node, path in zip(nodes, paths, strict=True)]
    whole = _Group((), tuple(range(len(nodes))))
    groups = _children(whole, nodes, paths)
    closed: set[_Group] = set()
    if len(groups) > rows:
        *groups, others = _largest(groups, times_ms, rows)
        groups.append(others)
        closed.add(others)
    while True:
        open_groups = [group for group in groups if group not in closed]
        if not open_groups:
            return groups
        costliest = max(open_groups, key=lambda group: times_ms[list(group.members)].sum())
        children = _together(_children(costliest, nodes, paths), costliest.prefix, smallest=2)
        if len(groups) - 1 + len(children) > rows:
            children = _together(children, costliest.prefix, smallest=1)
        room = (rows - len(groups) + 1) // 2  # leave as much for the other phases
        is_phase = costliest.prefix[-1:] != () and costliest.prefix[-1].endswith(":")
        if is_phase and len(groups) - 1 + len(children) > rows and room > 2:
            children = _largest(children, times_ms, room, costliest.prefix)
            closed.add(children[-1])
        if children == [costliest] or len(groups) - 1 + len(children) > rows:
            closed.add(costliest)
        else:
            place = groups.index(costliest)
            groups[place : place + 1] = children


def _children(group: _Group, nodes: Sequence[Node], paths: Sequence[tuple[str, ...]]) -> list[_Group]:
    """A group for every submodule, and one for every op that the module runs itself; ``[group]`` for a single op."""
    depth = len(group.prefix)
    members: dict[tuple[bool, str], list[int]] = {}
    for member in group.members:
        is_submodule = len(paths[member]) > depth
        key = (is_submodule, paths[member][depth] if is_submodule else nodes[member].op)
        members.setdefault(key, []).append(member)
    return [
        _Group((*group.prefix, name) if is_submodule else group.prefix, tuple(chosen))
        for (is_submodule, name), chosen in members.items()
    ]


def _together(children: list[_Group], prefix: tuple[str, ...], smallest: int) -> list[_Group]:
    """The children with numbered ones taken together, if some of those have ``smallest`` nodes or more."""
    numbered = [c for c in children if len(c.prefix) > len(prefix) and c.prefix[-1].isdecimal()]
    if len(numbered) < 2 or max(len(c.members) for c in numbered) < smallest:
        return children
    block = _Group((*prefix, "*"), tuple(sorted(member for child in numbered for member in child.members)))
    return [block, *(child for child in children if child not in numbered)]


def _largest(groups: list[_Group], times_ms: np.ndarray, rows: int, prefix: tuple[str, ...] = ()) -> list[_Group]:
    """The ``rows - 1`` costliest groups, and all others as one."""
    ordered = sorted(groups, key=lambda group: -times_ms[list(group.members)].sum())
    rest = tuple(sorted(member for group in ordered[rows - 1 :] for member in group.members))
    return [*ordered[: rows - 1], _Group((*prefix, _OTHERS), rest)]
