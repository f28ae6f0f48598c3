"""A prediction as a Chrome trace, for chrome://tracing and Perfetto.

The format is described in "Trace Event Format" (Google, 2016): complete events with start and duration in
microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from gnnperf.cost.registry import node_cost
from gnnperf.prediction import OVERHEAD, Prediction


def to_trace(source: str, predictions: Sequence[Prediction]) -> str:
    """A process for every device, in which the nodes follow each other.

    Overhead comes at the end; where it is negative, because work overlaps, it is a mark without a duration.
    """
    events = [event for number, p in enumerate(predictions) for event in _events(number, p)]
    content = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"source": source}}
    return json.dumps(content, allow_nan=False)


def _events(process: int, prediction: Prediction) -> Iterator[dict[str, Any]]:
    place = {"pid": process, "tid": 0}
    software = prediction.software
    name = f"{prediction.device.id} ({software.framework} {software.version})"
    yield {"ph": "M", "name": "process_name", "args": {"name": name}, **place}
    yield {"ph": "M", "name": "process_sort_index", "args": {"sort_index": process}, **place}
    start_us = 0.0
    for node, time_ms in zip(prediction.graph.nodes, prediction.node_times_ms.tolist(), strict=True):
        cost = node_cost(node, software.attention)
        details = {
            "module": node.module,
            "op": node.op,
            "phase": node.phase,
            "output_shape": list(node.outputs[0].shape) if node.outputs else [],
            "flops": cost.flops,
            "bytes": cost.bytes,
        }
        event = {"ph": "X", "name": node.name, "cat": cost.op_class, "ts": start_us, "dur": 1e3 * time_ms}
        yield {**event, "args": details, **place}
        start_us += 1e3 * time_ms
    overhead = {"name": OVERHEAD, "cat": "overhead", "ts": start_us, "args": {"time_ms": prediction.overhead_ms}}
    if prediction.overhead_ms > 0:
        yield {"ph": "X", "dur": 1e3 * prediction.overhead_ms, **overhead, **place}
    else:
        yield {"ph": "i", "s": "p", **overhead, **place}
