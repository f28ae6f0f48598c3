"""Predictions as JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gnnperf.prediction import NODE_COLUMNS, Prediction
from gnnperf.report.numbers import shape_text


def to_json(source: str, predictions: Sequence[Prediction], max_batches: Sequence[int] | None = None) -> str:
    """One object: ``source`` and ``predictions``, each with its nodes; strict JSON, without NaN.

    With ``max_batches``, one for each prediction, each has a ``max_batch_size`` as well.
    """
    plain = [_plain(p) for p in predictions]
    for prediction, batch in zip(plain, max_batches or (), strict=False):
        prediction["max_batch_size"] = batch
    return json.dumps({"source": source, "predictions": plain}, indent=1, allow_nan=False)


def to_csv(predictions: Sequence[Prediction]) -> str:
    """A row for every node on every device; shapes such as ``1x64x112x112``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["device", *NODE_COLUMNS])
    for prediction in predictions:
        for row in node_rows(prediction):
            writer.writerow([prediction.device.id, *(_cell(row[name]) for name in NODE_COLUMNS)])
    return text.getvalue()


def _plain(prediction: Prediction) -> dict[str, Any]:
    return {
        "device": prediction.device.id,
        "total_ms": prediction.total_ms,
        "interval_ms": list(prediction.interval_ms),
        "peak_memory_bytes": prediction.peak_memory_bytes,
        "zero_shot": prediction.zero_shot,
        "unknown_ops": prediction.unknown_ops,
        "software": asdict(prediction.software),
        "nodes": [{**row, "output_shape": list(row["output_shape"])} for row in node_rows(prediction)],
    }


def node_rows(prediction: Prediction) -> list[dict[str, Any]]:
    """The rows of ``Prediction.nodes`` as plain Python values."""
    columns = [prediction.nodes[name].tolist() for name in NODE_COLUMNS]
    return [dict(zip(NODE_COLUMNS, values, strict=True)) for values in zip(*columns, strict=True)]


def _cell(value: Any) -> Any:
    return shape_text(value) if isinstance(value, tuple) else value
