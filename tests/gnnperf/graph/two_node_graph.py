"""A graph of two nodes, written by hand."""

from gnnperf.graph import Allocation, ComputationGraph, Edge, Node, TensorSpec

IMAGE = TensorSpec((2, 3, 8, 8), "float32", "input", batch_slope=(1.0, 0.0, 0.0, 0.0))
WEIGHT = TensorSpec((4, 3, 3, 3), "float32", "parameter")
HIDDEN = TensorSpec((2, 4, 6, 6), "float32", batch_slope=(1.0, 0.0, 0.0, 0.0))
CONV = Node("conv_0", "conv", (IMAGE, WEIGHT), (HIDDEN,), {"stride": [1, 1], "groups": 1}, module="body.0")
RELU = Node("relu_1", "relu", (HIDDEN,), (HIDDEN,), module="body.1")
GRAPH = ComputationGraph(
    name="small",
    nodes=(CONV, RELU),
    edges=(Edge(0, 1, HIDDEN),),
    inputs=(IMAGE,),
    outputs=(HIDDEN,),
    batch_size=2,
    parameter_count=108,
    parameter_bytes=432,
    allocations=(Allocation(0, 1, 1152, 576.0), Allocation(1, 1, 1152, 576.0)),
    warnings=("assumed something",),
)
