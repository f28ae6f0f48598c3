import pytest

from gnnperf.cost import Cost, node_cost
from gnnperf.cost.roofline import LAUNCH_MS, compute_precision, graph_roofline_ms, roofline_ms
from gnnperf.graph import ComputationGraph, Node, TensorSpec
from gnnperf.hardware import Software, load_device

DEVICE = load_device("rtx-4090")


def node(dtype: str, op: str = "linear") -> Node:
    x = TensorSpec((1024, 1024), dtype)
    return Node(op, op, (x, x), (x,))


@pytest.mark.parametrize(
    ("dtype", "graph_precision", "matrix", "expected"),
    [
        ("float64", "fp64", True, "fp64"),
        ("float32", "fp32", True, "fp32"),
        ("float32", "tf32", True, "tf32"),
        ("float32", "tf32", False, "fp32"),
        ("float16", "amp", True, "fp16"),
        ("bfloat16", "bf16", False, "bf16"),
        ("int8", "fp32", True, "int8"),
        ("int8", "fp32", False, "fp32"),
        ("int64", "fp16", False, "fp32"),
    ],
)
def test_precision_in_which_a_node_computes(dtype: str, graph_precision: str, matrix: bool, expected: str) -> None:
    assert compute_precision(node(dtype), graph_precision, matrix) == expected


def test_a_table_lookup_computes_as_its_table_and_not_as_its_indices() -> None:
    lookup = Node("a", "gather", (TensorSpec((5,), "int64"), TensorSpec((9,), "float16")), ())
    assert compute_precision(lookup, "fp16", False) == "fp16"
    assert compute_precision(Node("b", "fill", (), ()), "fp16", False) == "fp32"


def test_the_slower_of_computing_and_moving_decides() -> None:
    launch = LAUNCH_MS["gpu"]
    flops_per_s = DEVICE.peak_flops_per_s("fp16", True)
    bytes_per_s = DEVICE.memory_bandwidth_bytes_per_s
    computing = Cost(flops_per_s, 1.0, 1.0, 0.0, "matmul", matrix=True)  # a second of work
    assert roofline_ms(computing, "fp16", DEVICE) == pytest.approx(1000 + launch)
    moving = Cost(1.0, bytes_per_s, bytes_per_s, 0.0, "movement", kernels=3)  # two seconds of bytes
    assert roofline_ms(moving, "fp16", DEVICE) == pytest.approx(2000 + 3 * launch)


def test_a_graph_takes_the_sum_of_its_nodes() -> None:
    nodes = (node("float16"), node("float16", "relu"))
    graph = ComputationGraph("g", nodes, (), precision="fp16")
    parts = [roofline_ms(node_cost(n), "fp16", DEVICE) for n in nodes]
    assert graph_roofline_ms(graph, DEVICE, Software()) == pytest.approx(sum(parts))
