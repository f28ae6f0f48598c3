"""What the tests of this folder ask of graphs."""

from collections.abc import Callable
from typing import Any

import torch

from gnnperf.cost import Cost, node_cost
from gnnperf.graph import ComputationGraph, Node


class Wrapped(torch.nn.Module):
    """A function, and the modules that it uses, as a module."""

    def __init__(self, function: Callable[..., Any], **parts: torch.nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


def ops(graph: ComputationGraph) -> list[str]:
    return [node.op for node in graph.nodes]


def named(graph: ComputationGraph, op: str) -> list[Node]:
    return [node for node in graph.nodes if node.op == op]


def only(graph: ComputationGraph, op: str) -> Node:
    (node,) = named(graph, op)
    return node


def cost(graph: ComputationGraph, op: str) -> Cost:
    return node_cost(only(graph, op))


def links(graph: ComputationGraph) -> set[tuple[str, str]]:
    """The edges by the names of their ends."""
    return {(graph.nodes[e.source].name, graph.nodes[e.target].name) for e in graph.edges}


def shapes(node: Node) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    return [t.shape for t in node.inputs], [t.shape for t in node.outputs]


def dtypes(node: Node) -> list[str]:
    return [t.dtype for t in node.inputs]
