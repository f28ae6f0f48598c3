"""Computation graphs: what they are, what makes them valid, and how they are saved."""

from gnnperf.graph.computation_graph import Allocation, Attribute, ComputationGraph, Edge, Node, TensorSpec
from gnnperf.graph.json_format import FORMAT_VERSION
from gnnperf.graph.validation import MAX_INTEGER
from gnnperf.graph.vocabulary import ITEM_BYTES, LAYOUTS, MODES, OPTIMIZERS, PHASES, PRECISIONS, TENSOR_KINDS

__all__ = [
    "FORMAT_VERSION",
    "ITEM_BYTES",
    "LAYOUTS",
    "MAX_INTEGER",
    "MODES",
    "OPTIMIZERS",
    "PHASES",
    "PRECISIONS",
    "TENSOR_KINDS",
    "Allocation",
    "Attribute",
    "ComputationGraph",
    "Edge",
    "Node",
    "TensorSpec",
]
