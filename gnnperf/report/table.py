"""Predictions as tables in a terminal or a text file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.table import Table
from rich.text import Text

from gnnperf.prediction import OVERHEAD, Prediction
from gnnperf.report.breakdown import DEFAULT_ROWS, Part, by_module
from gnnperf.report.console import make_console
from gnnperf.report.numbers import short_bytes, short_count, significant

MAX_DEVICES = 4


def print_table(
    source: str,
    predictions: Sequence[Prediction],
    file: TextIO,
    rows: int = DEFAULT_ROWS,
    max_batches: Sequence[int] | None = None,
) -> None:
    """Write the totals of every device, then the parts of the network that cost most.

    Args:
        source: What was predicted, for the heading.
        predictions: Of one graph, on one device or more.
        file: Where to; colour only if it is a terminal, and 120 columns if it is not.
        rows: How many parts at most.
        max_batches: The largest batch that fits each device, if that is to be shown.
    """
    console = make_console(file)
    console.print(Text(heading(source, predictions[0]), style="bold"))
    console.print()
    console.print(_totals(predictions, max_batches))
    console.print()
    shown = predictions[:MAX_DEVICES]
    console.print(_parts(by_module(shown, rows), shown))
    if len(shown) < len(predictions):
        left_out = ", ".join(p.device.id for p in predictions[MAX_DEVICES:])
        console.print(Text(f"Parts are shown for the first {MAX_DEVICES} devices; --json has them all ({left_out})."))


def heading(source: str, prediction: Prediction) -> str:
    """What runs, in one line."""
    graph, software = prediction.graph, prediction.software
    mode = f"{software.framework} {software.version}, {'compiled' if software.compiled else 'eager'}"
    layout = ", channels last" if software.memory_format == "channels_last" else ""
    flops = sum(prediction.nodes["flops"])
    return (
        f"{source}: {graph.mode}, batch {graph.batch_size}, {graph.precision}, {mode}{layout}; "
        f"{short_count(graph.parameter_count)} parameters, {short_count(flops)}FLOPs, {len(graph.nodes)} ops"
    )


def _totals(predictions: Sequence[Prediction], max_batches: Sequence[int] | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    table.add_column("device", no_wrap=True)
    for name in ("total ms", "90 % interval", "samples/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("peak memory", justify="right")
    table.add_column("fits?")
    table.add_column("measured?")  # whether measurements of the device were in training
    if max_batches is not None:
        table.add_column("largest batch", justify="right")
    for position, p in enumerate(predictions):
        low, high = p.interval_ms
        table.add_row(
            p.device.id,
            significant(p.total_ms),
            f"{significant(low, 3)} - {significant(high, 3)}",
            significant(p.samples_per_s),
            short_bytes(p.peak_memory_bytes),
            "yes" if p.fits else f"NO, it has {short_bytes(p.device.memory_bytes)}",
            "zero-shot" if p.zero_shot else "yes",
            *([] if max_batches is None else [f"{max_batches[position]:,}"]),
        )
    return table


def _parts(parts: Sequence[Part], predictions: Sequence[Prediction]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    table.add_column("part", overflow="fold")
    table.add_column("ops", overflow="fold")
    for name in ("nodes", "FLOPs", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for p in predictions:
        table.add_column("ms" if len(predictions) == 1 else f"{p.device.id} ms", justify="right")
        table.add_column("%", justify="right", no_wrap=True)
    for part in parts:
        is_overhead = part.name == OVERHEAD
        cells = ["", "", "", ""] if is_overhead else _costs(part)
        for time_ms, p in zip(part.times_ms.tolist(), predictions, strict=True):
            cells += [significant(time_ms, 3), f"{100 * time_ms / p.total_ms:.1f}"]
        table.add_row(part.name or "(top level)", *cells)
    return table


def _costs(part: Part) -> list[str]:
    ops = part.ops[0] + (f" +{len(part.ops) - 1}" if len(part.ops) > 1 else "")
    return [ops, str(part.nodes), short_count(part.flops), short_bytes(part.bytes)]
