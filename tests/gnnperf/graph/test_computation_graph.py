import dataclasses

import networkx as nx
import pytest
from two_node_graph import CONV, GRAPH, HIDDEN, IMAGE, RELU, WEIGHT

from gnnperf.graph import Edge, Node, TensorSpec


def test_bytes_and_elements() -> None:
    assert WEIGHT.elements == 4 * 3 * 3 * 3 and WEIGHT.bytes == 108 * 4
    assert TensorSpec((5, 3), "float16").bytes == 30
    assert TensorSpec((), "int64").elements == 1 and TensorSpec((), "int64").bytes == 8
    assert TensorSpec((4, 0, 2), "float32").elements == TensorSpec((4, 0, 2), "float32").bytes == 0
    assert TensorSpec((5,), "int4").bytes == 3  # two to a byte
    repeated = TensorSpec((7, 5, 3), "float32", broadcast=(0, 1))
    assert repeated.elements == 105 and repeated.bytes == 3 * 4
    assert TensorSpec((0, 3), "float32", broadcast=(0,)).bytes == 0


def test_rescaling_grows_every_dimension_by_its_slope() -> None:
    graph = GRAPH.rescale(5)
    assert graph.batch_size == 5
    assert [t.shape for t in graph.nodes[0].inputs] == [(5, 3, 8, 8), (4, 3, 3, 3)]
    assert graph.edges[0].tensor.shape == graph.outputs[0].shape == graph.nodes[1].outputs[0].shape == (5, 4, 6, 6)
    assert graph.rescale(2) == GRAPH and GRAPH.rescale(2) is GRAPH
    assert GRAPH.batch_size == 2 and GRAPH.nodes[0].inputs[0].shape == (2, 3, 8, 8)


def test_rescaling_grows_attributes_too() -> None:
    node = Node("a", "conv", (IMAGE, WEIGHT), (HIDDEN,), {"groups": 8, "stride": [1]}, {"groups": 4.0})
    graph = dataclasses.replace(GRAPH, nodes=(node,), edges=(), allocations=())
    assert graph.rescale(3).nodes[0].attributes == {"groups": 12, "stride": [1]}
    assert node.attributes["groups"] == 8


@pytest.mark.parametrize("batch_size", [10**20, 10**400])
def test_a_batch_has_64_bits(batch_size: int) -> None:
    with pytest.raises(ValueError, match=r"^batch size 10*[.0]* is larger than 64 bits$"):
        GRAPH.rescale(batch_size)


def test_rescaling_refuses_what_64_bits_do_not_count() -> None:
    with pytest.raises(
        ValueError, match=r"^graph 'small' cannot be rescaled to batch .*: node 'conv_0': shape .* has mo"
    ):
        GRAPH.rescale(2**62)
    steep = dataclasses.replace(HIDDEN, batch_slope=(1e308, 0.0, 0.0, 0.0))
    with pytest.raises(
        ValueError, match=r"^graph 'small' cannot be rescaled to batch 7: .* is not a non-negative 64-bit"
    ):
        dataclasses.replace(GRAPH, outputs=(steep,)).rescale(7)
    node = dataclasses.replace(CONV, attribute_slopes={"groups": 1e308})
    with pytest.raises(ValueError, match=r"^graph 'small' cannot be rescaled to batch 7: .*'groups' is .* 64 bits"):
        dataclasses.replace(GRAPH, nodes=(node, RELU)).rescale(7)


def test_a_graph_that_cannot_be_rescaled_says_why_and_what_to_do() -> None:
    graph = dataclasses.replace(GRAPH, rescale_error="it sorts by size")
    assert graph.rescale(2) is graph and graph.rescale_problem(3) == "it sorts by size"
    message = (
        r"^graph 'small' cannot be rescaled from batch 2 to 3: it sorts by size; capture it again at that batch size$"
    )
    with pytest.raises(ValueError, match=message):
        graph.rescale(3)


def test_the_content_hash_is_stable() -> None:
    # written down, so that a hash stored by another version or machine is still found
    assert GRAPH.content_hash == "1cda1debd5ac950a51d96e1feeef550b27d186a5bb4f606f62e2339fce447332"


def test_the_content_hash_depends_on_what_decides_the_cost_and_on_nothing_else() -> None:
    same = [
        dataclasses.replace(GRAPH, name="other", warnings=()),
        dataclasses.replace(GRAPH, nodes=(dataclasses.replace(CONV, name="x", module="y"), RELU)),
        dataclasses.replace(GRAPH, nodes=(dataclasses.replace(CONV, attributes={"groups": 1, "stride": [1, 1]}), RELU)),
    ]
    assert {graph.content_hash for graph in same} == {GRAPH.content_hash}
    half = dataclasses.replace(HIDDEN, dtype="float16")
    other = [
        GRAPH.rescale(3),
        dataclasses.replace(GRAPH, precision="tf32"),
        dataclasses.replace(GRAPH, mode="training"),
        dataclasses.replace(GRAPH, edges=()),
        dataclasses.replace(GRAPH, nodes=(CONV, dataclasses.replace(RELU, op="gelu"))),
        dataclasses.replace(GRAPH, nodes=(CONV, dataclasses.replace(RELU, phase="backward"))),
        dataclasses.replace(GRAPH, nodes=(CONV, dataclasses.replace(RELU, outputs=(half,)))),
        dataclasses.replace(GRAPH, nodes=(dataclasses.replace(CONV, attributes={"groups": 2}), RELU)),
    ]
    assert len({GRAPH.content_hash, *(graph.content_hash for graph in other)}) == len(other) + 1


def test_the_structure_hash_is_that_of_the_network_whatever_its_precision_and_mode() -> None:
    half = dataclasses.replace(HIDDEN, dtype="float16")
    cast = Node("cast", "cast", (HIDDEN,), (half,))
    training = dataclasses.replace(CONV, attributes={**CONV.attributes, "training": True})
    backward = dataclasses.replace(RELU, phase="backward")
    same = [
        dataclasses.replace(GRAPH, precision="amp", nodes=(CONV, cast, dataclasses.replace(RELU, inputs=(half,)))),
        dataclasses.replace(GRAPH, mode="training", nodes=(training, RELU, backward)),
    ]
    assert {graph.structure_hash for graph in same} == {GRAPH.structure_hash}
    other = [GRAPH.rescale(3), dataclasses.replace(GRAPH, nodes=(CONV, dataclasses.replace(RELU, op="gelu")))]
    assert len({GRAPH.structure_hash, *(graph.structure_hash for graph in other)}) == 3


def test_a_broadcast_dimension_of_size_one_is_no_difference() -> None:
    plain, repeated = TensorSpec((1, 3), "float32"), TensorSpec((1, 3), "float32", broadcast=(0,))
    graphs = [dataclasses.replace(GRAPH, nodes=(Node("a", "relu", (t,), (t,)),), edges=()) for t in (plain, repeated)]
    assert graphs[0].content_hash == graphs[1].content_hash


def test_networkx() -> None:
    graph = GRAPH.to_networkx()
    assert isinstance(graph, nx.MultiDiGraph) and nx.is_directed_acyclic_graph(graph)
    assert graph.graph["name"] == "small" and graph.graph["batch_size"] == 2
    assert graph.nodes[0]["op"] == "conv" and graph.nodes[0]["inputs"] == (IMAGE, WEIGHT)
    assert graph.nodes[1]["module"] == "body.1"
    assert list(graph.edges(data=True)) == [(0, 1, {"shape": (2, 4, 6, 6), "dtype": "float32", "bytes": 2 * 144 * 4})]
    twice = dataclasses.replace(GRAPH, edges=(Edge(0, 1, HIDDEN), Edge(0, 1, WEIGHT))).to_networkx()
    assert twice.number_of_edges(0, 1) == 2
