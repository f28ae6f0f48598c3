import pytest
import torch

import gnnperf
from gnnperf import networks
from gnnperf.cost import node_cost
from gnnperf.graph import Node
from gnnperf.networks.layers import ACTIVATIONS

CONV = "layer:conv2d,channels_in=3,channels_out=8,kernel=3"


def output_shape(name: str, image_size: int | None = None) -> tuple[int, ...]:
    model = networks.build(name, batch_size=2, image_size=image_size)
    return tuple(model.module(*model.example_inputs).shape)


def test_a_convolution_costs_what_is_worked_out_by_hand() -> None:
    graph = gnnperf.zoo(f"{CONV},stride=2,padding=same,size=5,bias,relu", batch_size=4)
    assert [node.op for node in graph.nodes] == ["conv", "relu"]
    # An output of 3 x 3 for 5 pixels; of each of its values 3 * 3 * 3 products and a bias.
    assert graph.outputs[0].shape == (4, 8, 3, 3)
    assert node_cost(graph.nodes[0]).flops == 4 * 8 * 9 * (2 * 27 + 1)
    assert graph.parameter_count == 8 * 27 + 8
    assert graph.rescale(9).outputs[0].shape == (9, 8, 3, 3)


def test_a_linear_layer_costs_what_is_worked_out_by_hand() -> None:
    graph = gnnperf.zoo("layer:linear,features_in=64,features_out=10,tanh", batch_size=4)
    assert [node.op for node in graph.nodes] == ["linear", "tanh"]
    assert graph.parameter_count == 640 and node_cost(graph.nodes[0]).flops == 2 * 4 * 640


def only_node(name: str, batch_size: int) -> Node:
    """The one op of a layer, whose operands lie in one piece."""
    graph = gnnperf.zoo(name, batch_size=batch_size)
    (node,) = graph.nodes
    assert not graph.edges and not graph.rescale_error
    assert all(t.layout == "row_major" and not t.broadcast for t in (*node.inputs, *node.outputs))
    assert gnnperf.zoo(name, batch_size=3).rescale(batch_size).content_hash == graph.content_hash
    return node


def test_rows_of_a_linear_layer_are_a_dimension_of_their_own() -> None:
    node = only_node("layer:linear,features_in=64,features_out=10,rows=7,bias", 5)
    assert [t.shape for t in node.inputs] == [(5, 7, 64), (10, 64), (10,)] and node.outputs[0].shape == (5, 7, 10)
    assert node_cost(node).flops == 2 * 5 * 7 * 64 * 10 + 5 * 7 * 10
    assert node_cost(node).bytes == 4 * (5 * 7 * 64 + 640 + 10 + 5 * 7 * 10)


def test_a_product_of_matrices_costs_what_is_worked_out_by_hand() -> None:
    node = only_node("layer:matmul,rows=3,depth=5,columns=7", 4)
    assert node.op == "matmul" and [t.shape for t in node.inputs] == [(4, 3, 5), (4, 5, 7)]
    assert node_cost(node).flops == 2 * 4 * 3 * 5 * 7
    assert node_cost(node).bytes == 4 * 4 * (15 + 35 + 21)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "pow"])
def test_ops_of_two_tensors_read_both_and_of_a_number_one(op: str) -> None:
    both, one = only_node(f"layer:{op},features=9", 4), only_node(f"layer:{op},features=9,scalar", 4)
    assert both.op == one.op == op
    assert [t.shape for t in both.inputs] == [(4, 9), (4, 9)] and [t.shape for t in one.inputs] == [(4, 9)]
    assert (node_cost(both).bytes, node_cost(one).bytes) == (3 * 4 * 36, 2 * 4 * 36)
    assert node_cost(both).flops == node_cost(one).flops == 36 * (8 if op == "pow" else 1)


@pytest.mark.parametrize("op", ["softmax", *ACTIVATIONS])
def test_ops_of_one_tensor(op: str) -> None:
    node = only_node(f"layer:{op},features=9", 4)
    assert node.op == op and [t.shape for t in node.inputs] == [(4, 9)]
    assert node_cost(node).bytes == 2 * 4 * 36
    assert [t.shape for t in only_node(f"layer:{op},features=9,rows=2", 4).inputs] == [(4, 2, 9)]


def test_a_softmax_and_a_norm_work_along_the_features() -> None:
    assert only_node("layer:softmax,features=9", 4).attributes == {"axes": [1]}
    node = only_node("layer:layer_norm,features=9", 4)
    assert [t.shape for t in node.inputs] == [(4, 9), (9,), (9,)]  # with weights and biases of its own
    # Mean and standard deviation of every row are written beside the result.
    assert node_cost(node).bytes == 4 * (36 + 2 * 9 + 36 + 2 * 4)


@pytest.mark.parametrize("size", [7, 8, 9, 10])
@pytest.mark.parametrize("kernel", [1, 2, 3, 6])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_outputs_have_the_sizes_of_tensorflow(size: int, kernel: int, stride: int) -> None:
    name = f"layer:conv2d,channels_in=1,channels_out=1,kernel={kernel},stride={stride},size={size}"
    same, valid = -(-size // stride), -(-(size - kernel + 1) // stride)
    assert output_shape(f"{name},padding=same") == (2, 1, same, same)
    assert output_shape(f"{name},padding=valid") == output_shape(name) == (2, 1, valid, valid)


def test_an_odd_pixel_of_padding_lies_after_the_image() -> None:
    module = networks.build(f"{CONV},stride=2,padding=same,size=56").module
    assert [tuple(m.padding) for m in module if isinstance(m, torch.nn.ZeroPad2d)] == [(0, 1, 0, 1)]
    graph = gnnperf.zoo(f"{CONV},stride=2,padding=same,size=56")
    assert [(n.op, n.outputs[0].shape) for n in graph.nodes] == [("pad", (1, 3, 57, 57)), ("conv", (1, 8, 28, 28))]
    assert [n.op for n in gnnperf.zoo(f"{CONV},padding=same,size=56").nodes] == ["conv"]


def test_padding_in_pixels_groups_and_image_size() -> None:
    assert output_shape(f"{CONV},padding=2,size=8") == (2, 8, 10, 10)
    assert output_shape(CONV) == (2, 8, 222, 222)
    assert output_shape(f"{CONV},size=8", image_size=32) == (2, 8, 30, 30)
    depthwise = networks.build("layer:conv2d,channels_in=8,channels_out=8,groups=8,kernel=3").module
    assert sum(p.numel() for p in depthwise.parameters()) == 8 * 9


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    graph = gnnperf.zoo(f"layer:linear,features_in=4,features_out=4,bias,{name}")
    assert [node.op for node in graph.nodes] == ["linear", name]


def test_without_trained_data_the_weights_alone_are_trained() -> None:
    graph = gnnperf.zoo(f"{CONV},padding=1,size=8", batch_size=2, mode="training", optimizer="sgd")
    (backward,) = (n for n in graph.nodes if n.op == "conv_backward")
    assert [t.shape for t in backward.outputs] == [(8, 3, 3, 3)]
    (update,) = (n for n in graph.nodes if n.op == "optimizer_step")
    assert node_cost(update).bytes == 3 * 4 * 8 * 27


def test_with_trained_data_input_and_target_are_updated_too() -> None:
    name = f"{CONV},padding=1,size=8,trained_data"
    assert [n.op for n in gnnperf.zoo(name).nodes] == ["conv"]
    graph = gnnperf.zoo(name, batch_size=2, mode="training", optimizer="momentum")
    assert graph.batch_size == 2
    (backward,) = (n for n in graph.nodes if n.op == "conv_backward")
    assert [t.shape for t in backward.outputs] == [(2, 3, 8, 8), (8, 3, 3, 3)]
    (update,) = (n for n in graph.nodes if n.op == "optimizer_step")
    assert node_cost(update).bytes == 5 * 4 * (8 * 27 + 2 * 3 * 64 + 2 * 8 * 64)
    # Difference, its square and their mean; backwards a constant, twice the difference and its sign for the target.
    ops = [n.op for n in graph.nodes]
    assert ops[:4] == ["conv", "sub", "pow", "reduce_mean"] and "neg" in ops
    assert "its data are parameters for batch 2" in graph.rescale_error


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("conv3d,kernel=3", r"layer:conv3d,kernel=3 names no kind of layer: .* the kinds are conv2d, linear, matmul"),
        ("conv2d,kernel=3", "lacks channels_in, channels_out$"),
        ("linear,feature_in=3", r"has no field 'feature_in': did you mean features_in="),
        ("linear,features_in=3,features_out=3,kernel=3", r"has no field 'kernel': linear takes features_in=, .*bias"),
        ("matmul,rows=3,depth=3,columns=3,bias", r"has no field 'bias': matmul takes rows=, depth=, columns=$"),
        ("relu,features=3,scalar", r"has no field 'scalar': relu takes features=, rows=$"),
        ("add,rows=3", "lacks features$"),
        ("add,features=3,rows=-1", "rows must be a whole number of at least 0, not '-1'"),
        ("linear,features_in=3,features_in=4", "gives features_in twice"),
        ("linear,features_in", "features_in is given without a value"),
        ("linear,features_in=2,features_out=2,bias=1", "bias is a flag and takes no value"),
        ("linear,features_in=2,features_out=2,relu,tanh", "has several activations: relu, tanh"),
        ("linear,features_in=2,features_out=0", "features_out must be a whole number of at least 1, not '0'"),
        ("conv2d,channels_in=2,channels_out=2,kernel=3,padding=full", "at least 0, valid or same, not 'full'"),
        ("conv2d,channels_in=2,channels_out=2,kernel=3,groups=4", "cannot be built: in_channels must be divisible"),
        ("conv2d,channels_in=2,channels_out=2,kernel=3,size=2", "a kernel of 3 does not fit into 2 pixels"),
    ],
)
def test_errors_are_one_line(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        networks.build(f"layer:{name}")
    assert "\n" not in str(error.value)


def test_sizes_that_a_layer_does_not_have() -> None:
    with pytest.raises(ValueError, match="reads no images: leave image_size out"):
        networks.build("layer:linear,features_in=2,features_out=2", image_size=8)
    with pytest.raises(ValueError, match="has no dimension 'seq'"):
        networks.build(CONV, dims={"seq": 8})
