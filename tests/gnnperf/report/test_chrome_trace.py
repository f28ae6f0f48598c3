import json
from dataclasses import replace

import pytest

from gnnperf.report.chrome_trace import to_trace


def events_of(predictions):
    return json.loads(to_trace("small", predictions))["traceEvents"]


def test_every_device_is_a_process_with_its_nodes_in_sequence(predictions):
    events = events_of(predictions)
    for process, p in enumerate(predictions):
        own = [event for event in events if event["pid"] == process]
        names = [event["args"]["name"] for event in own if event["name"] == "process_name"]
        assert len(names) == 1 and names[0].startswith(p.device.id)
        nodes = [event for event in own if event["ph"] == "X" and event["name"] != "(overhead)"]
        assert [event["name"] for event in nodes] == [node.name for node in p.graph.nodes]
        end_us = 0.0
        for event in nodes:
            assert event["ts"] == pytest.approx(end_us)
            end_us = event["ts"] + event["dur"]
        assert end_us == pytest.approx(1e3 * (p.total_ms - p.overhead_ms))


@pytest.mark.parametrize(("overhead_ms", "phase"), [(0.5, "X"), (-0.5, "i")])
def test_overhead_ends_it(predictions, overhead_ms, phase):
    last = events_of([replace(predictions[0], overhead_ms=overhead_ms)])[-1]
    assert (last["name"], last["ph"], last["args"]) == ("(overhead)", phase, {"time_ms": overhead_ms})
    assert last.get("dur", 0) >= 0
