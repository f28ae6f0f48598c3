import copy
import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from gnnperf.cost import node_cost
from gnnperf.graph import ComputationGraph, Edge, Node, TensorSpec

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
    warnings=("assumed something",),
)


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
    graph = dataclasses.replace(GRAPH, nodes=(node,), edges=())
    assert graph.rescale(3).nodes[0].attributes == {"groups": 12, "stride": [1]}
    assert node.attributes["groups"] == 8


def test_a_graph_that_cannot_be_rescaled_says_why_and_what_to_do() -> None:
    graph = dataclasses.replace(GRAPH, rescale_error="it sorts by size")
    assert graph.rescale(2) is graph and graph.rescale_problem(3) == "it sorts by size"
    message = (
        r"^graph 'small' cannot be rescaled from batch 2 to 3: it sorts by size; capture it again at that batch size$"
    )
    with pytest.raises(ValueError, match=message):
        graph.rescale(3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "serving"}, "mode 'serving' is not one of inference, training"),
        ({"precision": "fp8"}, "precision 'fp8' is not one of fp64"),
        ({"batch_size": 0}, "batch size 0 is not positive"),
        ({"smallest_batch_size": 0}, "batch size 0 is not positive"),
        ({"parameter_bytes": -1}, "a parameter or buffer size is negative"),
        ({"nodes": (CONV, CONV)}, "two nodes are named 'conv_0'"),
        ({"nodes": (CONV, dataclasses.replace(RELU, op=""))}, "node 'relu_1' has no op"),
        ({"nodes": (CONV, dataclasses.replace(RELU, phase="warmup"))}, "'relu_1' has the unknown phase 'warmup'"),
        (
            {"nodes": (CONV, dataclasses.replace(RELU, attribute_slopes={"k": 1.0}))},
            "scales attributes that it lacks: k",
        ),
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


def test_saving_and_loading_gives_the_same_graph(tmp_path: Path) -> None:
    GRAPH.save(tmp_path / "graph.json")
    loaded = ComputationGraph.load(str(tmp_path / "graph.json"))
    assert loaded == GRAPH and loaded.content_hash == GRAPH.content_hash
    assert loaded.rescale(7) == GRAPH.rescale(7)
    assert ComputationGraph.from_json(GRAPH.to_json(), "somewhere") == GRAPH


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a graph saved by gnnperf: not valid JSON"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "the key 'gnnperf_graph' is missing"),
        ("{}", "the key 'gnnperf_graph' is missing"),
        ('{"gnnperf_graph": 99}', "has graph format 99, this gnnperf reads 1: capture it again"),
        ('{"gnnperf_graph": 1}', "is damaged: "),
        ('{"gnnperf_graph": 1, "nodes": 3}', "is damaged: "),
    ],
)
def test_files_that_are_no_graphs(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        ComputationGraph.load(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read graph file .*: No such file or directory"):
        ComputationGraph.load(tmp_path / "absent.json")
    with pytest.raises(ValueError, match="cannot read graph file"):
        ComputationGraph.load(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not valid JSON"):
        ComputationGraph.load(tmp_path / "binary")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in nested JSON."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *_places(value[key])]]


def test_any_damage_is_a_one_line_error_or_leaves_a_graph_that_works() -> None:
    original = json.loads(GRAPH.to_json())
    generator, survivors, errors = random.Random(0), 0, 0
    values = [None, -1, 1.5, 1e400, "x", "", [], {}, [1], ["x"], [[1]], {"x": 1}, True, 1 << 70]
    for place in range(len(_places(original))):
        for value in [*values, "delete"]:
            content = copy.deepcopy(original)
            container, key = _places(content)[place]
            if value == "delete":
                del container[key]
            else:
                container[key] = generator.choice(values) if value == "x" else value
            try:
                graph = ComputationGraph.from_json(json.dumps(content), "damaged.json")
            except ValueError as error:
                assert "damaged.json" in str(error) and "\n" not in str(error)
                errors += 1
                continue
            survivors += 1
            graph.rescale(3) if not graph.rescale_problem(3) else None
            assert len(graph.content_hash) == 64 and graph.to_networkx() is not None
            for node in graph.nodes:
                try:
                    assert node_cost(node).bytes >= 0
                except ValueError as error:
                    assert node.name in str(error) and "\n" not in str(error)
    assert errors > 500 and survivors > 50
