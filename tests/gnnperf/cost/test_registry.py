import dataclasses

import pytest

from gnnperf.cost import Cost, has_rule, node_cost, register, registry, unknown_ops
from gnnperf.graph import ComputationGraph, Node, TensorSpec

X = TensorSpec((4, 6), "float32", "input")
WEIGHT = TensorSpec((5, 6), "float32", "parameter")


def test_an_op_without_a_rule_costs_its_bytes_and_is_not_known() -> None:
    node = Node("a", "mystery", (X, WEIGHT), (X,))
    assert node_cost(node) == Cost(0.0, (24 + 30) * 4, 24 * 4, 30 * 4, "unknown", known=False)
    assert not has_rule("mystery") and has_rule("conv")
    graph = ComputationGraph("g", (node, dataclasses.replace(node, name="b"), Node("c", "relu", (X,), (X,))), ())
    assert unknown_ops(graph) == {"mystery": 2}


def test_names_are_not_guessed_from_parts() -> None:
    for op in ("Conv", "conv2d_backward_of_mine", "relu_", "MatMul", "mylib::relu"):
        assert not node_cost(Node("a", op, (X,), (X,))).known


def test_a_second_rule_for_an_op_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_RULES", {})
    rule = register("one", "two")(lambda node: registry.moved(node, "movement"))
    assert node_cost(Node("a", "two", (X,), (X,))).bytes == 2 * 24 * 4
    with pytest.raises(ValueError, match="op 'two' already has a cost rule"):
        register("two")(rule)


def test_operands_that_do_not_fit_name_the_node() -> None:
    with pytest.raises(ValueError, match=r"^node 'layer_3' \(conv\) lacks what its cost depends on: ") as raised:
        node_cost(Node("layer_3", "conv", (X,), (X,)))
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match=r"node 'b' \(lstm_backward\) lacks what its cost depends on"):
        node_cost(Node("b", "lstm_backward", (X,), (X,), {"gradients": [0]}))
    with pytest.raises(ValueError, match="kernel_size"):
        node_cost(Node("a", "max_pool", (X,), (X,)))


@pytest.mark.parametrize(
    ("op", "attributes", "reason"),
    [
        ("linear_backward", {"gradients": "01"}, "AssertionError"),
        ("lstm_backward", {}, "IndexError"),
        ("max_pool", {"kernel_size": 10**400}, "OverflowError"),
        ("max_pool", {"kernel_size": "wide"}, "ValueError"),
        ("optimizer_step", {"flops": -1e15}, "would cost less than nothing"),
        ("max_pool", {"kernel_size": -1}, "would cost less than nothing"),
        ("optimizer_step", {"flops": float("inf")}, "without bounds"),
    ],
)
def test_whatever_a_rule_trips_over_is_one_error_that_names_the_node(op: str, attributes: dict, reason: str) -> None:
    cube = TensorSpec((4, 6, 6), "float32", "input")
    with pytest.raises(ValueError, match=rf"^node 'layer_3' \({op}\) .*{reason}") as raised:
        node_cost(Node("layer_3", op, (cube, cube, cube), (cube,), attributes))
    assert "\n" not in str(raised.value)


def test_what_memory_repeats_is_read_once() -> None:
    repeated = TensorSpec((4, 6), "float32", broadcast=(0,))
    cost = node_cost(Node("a", "add", (X, repeated), (X,)))
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (24, (24 + 6) * 4, 24 * 4)
    assert cost.bytes == cost.bytes_read + cost.bytes_written


def test_every_rule_gives_a_cost_of_a_known_class() -> None:
    image = TensorSpec((2, 4, 6, 6), "float32", "input")
    square, weight = TensorSpec((4, 4), "float32", "input"), TensorSpec((4, 4), "float32", "parameter")
    attributes = {"kernel_size": [2, 2], "num_layers": 1, "bidirectional": False, "axes": [0], "mode": "bilinear2d"}
    attributes |= {"gradients": [0, 1, 2], "flops": 10}
    weighed = ("conv_backward", "conv_transpose_backward")
    state = TensorSpec((1, 4, 4), "float32")
    for op in sorted(registry._RULES):
        tensor = image if "pool" in op or op == "resize" else square
        inputs = (tensor, weight, tensor)
        if op.endswith("_backward"):
            inputs = (tensor, tensor, weight if op in weighed else tensor, tensor)
        if op in ("lstm_backward", "gru_backward", "rnn_backward"):
            states = (state,) * (2 if op.startswith("lstm") else 1)
            inputs = (state, state, *states, weight, weight, state, *states, state)
        cost = node_cost(Node("a", op, inputs, (tensor,), dict(attributes)))
        assert cost.op_class in registry.OP_CLASSES[:-1], op
        assert cost.known and cost.flops >= 0 and cost.bytes > 0 and cost.kernels >= 1, op
        assert 0 <= cost.parameter_bytes <= cost.bytes_read, op


def test_attention_can_be_priced_as_another_implementation() -> None:
    q = TensorSpec((2, 3, 5, 4), "float16")
    node = Node("a", "attention", (q, q, q), (q,), {"attention_implementation": "fused"})
    assert node_cost(node) == node_cost(node, "fused")
    assert node_cost(node, "decomposed").bytes > node_cost(node).bytes
    assert node.attributes == {"attention_implementation": "fused"}
    relu = Node("b", "relu", (q,), (q,))
    assert node_cost(relu, "decomposed") == node_cost(relu)
