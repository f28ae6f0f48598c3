import numpy as np
import pytest

from gnnperf.report.breakdown import by_module, by_op_class


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 8, 20])
def test_parts_are_the_whole_network_in_few_rows(predictions, rows):
    parts = by_module(predictions, rows)
    assert len(parts) <= rows + 1
    assert parts[-1].name == "(overhead)"
    assert sum(part.nodes for part in parts) == len(predictions[0].graph.nodes)
    totals = np.sum([part.times_ms for part in parts], axis=0)
    assert totals == pytest.approx([p.total_ms for p in predictions])
    assert sum(part.flops for part in parts) == pytest.approx(sum(predictions[0].nodes["flops"]))
    assert sum(part.bytes for part in parts) == pytest.approx(sum(predictions[0].nodes["bytes"]))
    costs = [part.times_ms[0] for part in parts[:-1] if part.name != "(others)"]
    assert costs == sorted(costs, reverse=True)


def test_repeated_blocks_are_taken_together_and_opened_up(predictions):
    parts = {(part.name, part.ops): part for part in by_module(predictions, 20)}
    assert parts["blocks.*.conv", ("conv",)].nodes == 3
    assert parts["blocks.*", ("add",)].nodes == 3
    assert parts["stem", ("conv",)].nodes == 1


def test_what_does_not_fit_is_one_row(predictions):
    assert [part.name for part in by_module(predictions, 2)][1:] == ["(others)", "(overhead)"]
    assert [part.name for part in by_module(predictions, 1)] == ["(others)", "(overhead)"]


def test_op_classes_are_all_nodes(predictions):
    p = predictions[0]
    classes = by_op_class(p)
    assert set(classes) == {"conv", "normalization", "elementwise", "reduction", "matmul"}
    assert sum(classes.values()) == pytest.approx(p.total_ms - p.overhead_ms)
    assert list(classes.values()) == sorted(classes.values(), reverse=True)
