import copy
import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
from two_node_graph import GRAPH

from gnnperf.cost import node_cost
from gnnperf.graph import ComputationGraph, json_format


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
    with pytest.raises(ValueError, match=r"graph file '.*binary': not UTF-8 text"):
        ComputationGraph.load(tmp_path / "binary")


def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"cannot read graph file '/dev/zero': not a regular file"):
        ComputationGraph.load("/dev/zero")
    GRAPH.save(tmp_path / "graph.json")
    monkeypatch.setattr(json_format, "MAX_FILE_BYTES", 100)
    with pytest.raises(ValueError, match=r"graph.json': larger than 100 bytes, which no graph file is"):
        ComputationGraph.load(tmp_path / "graph.json")


def _changed(place: list[Any], value: Any) -> str:
    """The saved graph with another value at a place; without the key for ``...``."""
    content = json.loads(GRAPH.to_json())
    container = content
    for key in place[:-1]:
        container = container[key]
    container[place[-1]] = value
    if value is ...:
        del container[place[-1]]
    return json.dumps(content)


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(ComputationGraph)])
def test_no_field_of_a_graph_has_a_default_in_a_file(key: str) -> None:
    with pytest.raises(ValueError, match=f"is damaged: the key '{key}' is missing"):
        ComputationGraph.from_json(_changed([key], ...), "g.json")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["nodes", 0, "phase"], ..., r"nodes\[0\]: the key 'phase' is missing"),
        (["nodes", 1, "outputs", 0, "kind"], ..., r"nodes\[1\]: outputs\[0\]: the key 'kind' is missing"),
        (["edges", 0, "tensor", "dtype"], 3, r"edges\[0\]: tensor: dtype is 3, not str"),
        (["nodes", 0], "abc", r"nodes\[0\]: 'abc' is no Node"),
        (["nodes"], "abc", "nodes is 'abc', not a list"),
        (["batch"], 3, "the key 'batch' is unknown"),
        (["warnings"], "abc", "warnings is 'abc', not tuple"),
        (["name"], "a\nb", "its name has a line break or another control character: 'a.nb'"),
        (["nodes", 0, "module"], "\x1b[31m", r"the module of node 'conv_0' has a line break or another control"),
        (["nodes", 0, "attributes"], {"gradients": "01"}, "attribute 'gradients' is '01', not a list of operands"),
        (["nodes", 0, "attributes"], {"flops": -1e15}, "'flops' is -10*.0, not a count of zero or more"),
        (["nodes", 0, "attributes"], {"loop_scratch_bytes": -1}, "'loop_scratch_bytes' is -1, not a count"),
        (["nodes", 0, "attributes"], {"elements": "3"}, "'elements' is '3', not a count"),
        (
            ["nodes", 0, "attributes"],
            {"kernel_size": 10**300},
            "'kernel_size' is 10*....*0, which is larger than 64 bits",
        ),
    ],
)
def test_what_would_be_silently_wrong_is_refused_by_name(place: list[Any], value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^'g.json' is damaged: .*{message}") as raised:
        ComputationGraph.from_json(_changed(place, value), "g.json")
    assert str(raised.value).isprintable()


def test_a_key_that_repeats_is_refused() -> None:
    text = GRAPH.to_json().replace('"batch_size":2', '"batch_size":2,"batch_size":64')
    with pytest.raises(ValueError, match=r"^'g.json' is damaged: 'batch_size' is given twice$"):
        ComputationGraph.from_json(text, "g.json")


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
            try:
                graph.rescale(3)
            except ValueError as error:
                assert "batch 3" in str(error) or "to 3" in str(error)
                assert str(error).isprintable()
            assert len(graph.content_hash) == 64 and graph.to_networkx() is not None
            for node in graph.nodes:
                try:
                    assert node_cost(node).bytes >= 0
                except ValueError as error:
                    assert repr(node.name) in str(error) and str(error).isprintable()
    assert errors > 500 and survivors > 50
