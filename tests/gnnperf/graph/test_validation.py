import dataclasses
from typing import Any

import pytest
from two_node_graph import CONV, GRAPH, HIDDEN, RELU

from gnnperf.graph import Allocation, Edge, TensorSpec


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "serving"}, "mode 'serving' is not one of inference, training"),
        ({"precision": "fp8"}, "precision 'fp8' is not one of fp64"),
        ({"batch_size": 0}, "batch size 0 is not positive"),
        ({"smallest_batch_size": 0}, "batch size 0 is not positive"),
        ({"parameter_bytes": -1}, "a parameter, buffer or optimizer state size is negative"),
        ({"nodes": (CONV, CONV)}, "two nodes are named 'conv_0'"),
        ({"nodes": (CONV, dataclasses.replace(RELU, op=""))}, "node 'relu_1' has no op"),
        ({"nodes": (CONV, dataclasses.replace(RELU, phase="warmup"))}, "'relu_1' has the unknown phase 'warmup'"),
        (
            {"nodes": (CONV, dataclasses.replace(RELU, attribute_slopes={"k": 1.0}))},
            "scales attributes that it lacks: k",
        ),
        ({"allocations": (Allocation(1, 2, 8),)}, "memory of 8 bytes from node 1 to 2 cannot be"),
        ({"allocations": (Allocation(1, 0, 8),)}, "memory of 8 bytes from node 1 to 0 cannot be"),
        ({"allocations": (Allocation(0, 1, -8),)}, "memory of -8 bytes from node 0 to 1 cannot be"),
        ({"edges": (Edge(1, 1, HIDDEN),)}, "edge 1 -> 1 does not point forward to an existing node"),
        ({"edges": (Edge(0, 2, HIDDEN),)}, "edge 0 -> 2 does not point forward to an existing node"),
        ({"edges": (Edge(-1, 1, HIDDEN),)}, "edge -1 -> 1 does not point forward"),
        ({"inputs": (TensorSpec((2,), "float7"),)}, "unknown dtype 'float7'"),
        ({"inputs": (TensorSpec((2,), "float32", "ghost"),)}, "unknown tensor kind 'ghost'"),
        (
            {"inputs": (TensorSpec((-2,), "float32"),)},
            r"shape \[-2\] has a size that is not a non-negative 64-bit integer",
        ),
        ({"inputs": (TensorSpec((2,), "float32", broadcast=(1,)),)}, "broadcast dimensions"),
        ({"inputs": (TensorSpec((2,), "float32", batch_slope=(1.0, 1.0)),)}, "2 batch slopes for 1 dimensions"),
    ],
)
def test_validate_finds_inconsistencies(changes: dict[str, Any], message: str) -> None:
    GRAPH.validate()
    with pytest.raises(ValueError, match=f"^graph 'small': .*{message}"):
        dataclasses.replace(GRAPH, **changes).validate()
