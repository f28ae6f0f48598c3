"""Predictions as one web page that needs nothing else: no scripts, no fonts, no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gnnperf.prediction import OVERHEAD, Prediction
from gnnperf.report.breakdown import by_module, by_op_class
from gnnperf.report.colors import OP_CLASS_COLORS, OVERHEAD_COLOR
from gnnperf.report.export import node_rows
from gnnperf.report.numbers import shape_text, short_bytes, short_count, significant
from gnnperf.report.table import heading

_PARTS = 40
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 2em; }
table { border-collapse: collapse; } th, td { padding: .2em .8em; text-align: left; }
thead th { border-bottom: 1px solid gray; } tbody tr:hover { background: #8882; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.bar { display: flex; height: 1.4em; margin: .2em 0 .8em; } .bar span { display: block; }
.key { display: inline-block; margin-right: 1em; } .key i { display: inline-block; width: .8em; height: .8em; }
.warning { border-left: 4px solid #e15759; padding-left: .8em; }
summary { cursor: pointer; }
"""


def to_html(source: str, predictions: Sequence[Prediction]) -> str:
    """Totals, time by op class, the costliest parts, and every node of every device."""
    body = [
        f"<h1>{escape(source)}</h1>",
        f"<p>{escape(heading(source, predictions[0]))}</p>",
        *_warnings(predictions),
        "<h2>Totals</h2>",
        _totals(predictions),
        "<h2>Time by class of op</h2>",
        *_bars(predictions),
        "<h2>Where the time goes</h2>",
        _parts(predictions),
        "<h2>Nodes</h2>",
        *(_nodes(p) for p in predictions),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(source)} - gnnperf</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _warnings(predictions: Sequence[Prediction]) -> list[str]:
    messages = dict.fromkeys(message for p in predictions for message in p.warnings)
    return [f'<p class="warning">{escape(message)}</p>' for message in messages]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int) -> str:
    """A table of plain text; all columns after the first ``texts`` hold numbers."""

    def cells(tag: str, values: Sequence[str]) -> str:
        kinds = ["" if column < texts else ' class="number"' for column in range(len(values))]
        return "".join(f"<{tag}{kind}>{escape(v)}</{tag}>" for kind, v in zip(kinds, values, strict=True))

    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{cells('th', head)}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _totals(predictions: Sequence[Prediction]) -> str:
    rows = [
        [
            p.device.id,
            p.device.name,
            "zero-shot" if p.zero_shot else "yes",
            significant(p.total_ms),
            f"{significant(p.interval_ms[0], 3)} - {significant(p.interval_ms[1], 3)}",
            significant(p.samples_per_s),
            short_bytes(p.peak_memory_bytes),
            short_bytes(p.device.memory_bytes),
        ]
        for p in predictions
    ]
    numbers = ["total ms", "90 % interval", "samples/s", "peak memory", "device memory"]
    return _table(["device", "name", "measured?", *numbers], rows, texts=3)


def _bars(predictions: Sequence[Prediction]) -> list[str]:
    """A bar for every device, as long as its time, stacked by op class, with a legend."""
    by_device = [by_op_class(p) for p in predictions]
    longest_ms = max(
        sum(times_ms.values()) + max(0.0, p.overhead_ms) for times_ms, p in zip(by_device, predictions, strict=True)
    )
    lines = []
    for p, times_ms in zip(predictions, by_device, strict=True):
        pieces = [(name, time_ms, OP_CLASS_COLORS[name]) for name, time_ms in times_ms.items()]
        pieces.append((OVERHEAD, max(0.0, p.overhead_ms), OVERHEAD_COLOR))
        spans = "".join(
            f'<span title="{escape(name)}: {significant(time_ms)} ms" '
            f'style="width:{100 * time_ms / longest_ms:.3f}%;background:{color}"></span>'
            for name, time_ms, color in pieces
        )
        overlap = f", less {significant(-p.overhead_ms, 3)} ms of overlap" if p.overhead_ms < 0 else ""
        lines.append(f'<div>{escape(p.device.id)}{overlap}</div><div class="bar">{spans}</div>')
    used = [name for name in OP_CLASS_COLORS if any(name in times_ms for times_ms in by_device)]
    keys = [*((name, OP_CLASS_COLORS[name]) for name in used), (OVERHEAD, OVERHEAD_COLOR)]
    legend = "".join(
        f'<span class="key"><i style="background:{color}"></i> {escape(name)}</span>' for name, color in keys
    )
    return [*lines, f"<p>{legend}</p>"]


def _parts(predictions: Sequence[Prediction]) -> str:
    head = ["part", "ops", "nodes", "FLOPs", "bytes"]
    for p in predictions:
        head += [f"{p.device.id} ms", "%"]
    rows = []
    for part in by_module(predictions, _PARTS):
        row = [part.name or "(top level)", ", ".join(part.ops), str(part.nodes or "")]
        row += [short_count(part.flops), short_bytes(part.bytes)] if part.nodes else ["", ""]
        for time_ms, p in zip(part.times_ms.tolist(), predictions, strict=True):
            row += [significant(time_ms, 3), f"{100 * time_ms / p.total_ms:.1f}"]
        rows.append(row)
    return _table(head, rows, texts=2)


def _nodes(prediction: Prediction) -> str:
    rows = [
        [
            *(row[name] for name in ("node", "module", "op", "phase")),
            *(shape_text(row["output_shape"]), short_count(row["flops"]), short_bytes(row["bytes"])),
            significant(row["time_ms"]),
        ]
        for row in node_rows(prediction)
    ]
    table = _table(["node", "module", "op", "phase", "output shape", "FLOPs", "bytes", "ms"], rows, texts=5)
    return f"<details><summary>{escape(prediction.device.id)}</summary>\n{table}\n</details>"
