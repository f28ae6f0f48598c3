import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from two_node_graph import GRAPH

from gnnperf.cost import node_cost
from gnnperf.graph import ComputationGraph


def test_saving_and_loading_gives_the_same_graph(tmp_path: Path) -> None:
    GRAPH.save(tmp_path / "graph.json")
    loaded = ComputationGraph.load(str(tmp_path / "graph.json"))
    assert loaded == GRAPH and loaded.content_hash == GRAPH.content_hash
    assert loaded.rescale(7) == GRAPH.rescale(7)
    assert ComputationGraph.from_json(GRAPH.to_json(), "somewhere") == GRAPH


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
