import csv
import io
import json
import math

import pytest

from gnnperf.report.export import to_csv, to_json


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


def test_json_is_one_strict_object(predictions):
    content = json.loads(to_json("small", predictions), parse_constant=refuse)
    assert list(content) == ["source", "predictions"]
    assert content["source"] == "small"
    assert [p["device"] for p in content["predictions"]] == ["rtx-4090", "t4"]
    first = content["predictions"][0]
    assert list(first) == [
        *("device", "total_ms", "interval_ms", "peak_memory_bytes", "zero_shot", "unknown_ops", "software", "nodes")
    ]
    assert first["total_ms"] == predictions[0].total_ms
    assert first["interval_ms"] == list(predictions[0].interval_ms)
    assert (first["zero_shot"], first["unknown_ops"]) == (False, {})
    assert first["software"]["framework"] == "torch" and first["software"]["version"]
    assert list(first["nodes"][0]) == ["node", "module", "op", "phase", "output_shape", "flops", "bytes", "time_ms"]
    assert first["nodes"][0]["output_shape"] == [2, 8, 16, 16]
    assert first["nodes"][-1]["node"] == "(overhead)"
    assert math.fsum(node["time_ms"] for node in first["nodes"]) == pytest.approx(first["total_ms"])


def test_csv_is_a_row_for_every_node_and_device(predictions):
    rows = list(csv.DictReader(io.StringIO(to_csv(predictions))))
    assert list(rows[0]) == ["device", "node", "module", "op", "phase", "output_shape", "flops", "bytes", "time_ms"]
    assert len(rows) == 2 * (len(predictions[0].graph.nodes) + 1)
    assert rows[0]["output_shape"] == "2x8x16x16"
    for p in predictions:
        times_ms = [float(row["time_ms"]) for row in rows if row["device"] == p.device.id]
        assert math.fsum(times_ms) == pytest.approx(p.total_ms)
