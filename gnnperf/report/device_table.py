"""The catalogue of devices as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.table import Table

from gnnperf.hardware import Device
from gnnperf.report.console import make_console
from gnnperf.report.numbers import short_bytes, short_count


def print_devices(devices: Sequence[Device], file: TextIO) -> None:
    """Write a row for every device; without the names where the terminal has no room for them beside the rest."""
    console = make_console(file)
    table = _table(devices, names=True)
    if console.measure(table, options=console.options.update(max_width=10 * console.width)).minimum > console.width:
        table = _table(devices, names=False)
    console.print(table)


def _table(devices: Sequence[Device], names: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("id", no_wrap=True)
    if names:
        table.add_column("name", min_width=12)
    for name in ("year", "memory", "bandwidth", "fp32\nFLOP/s", "fp16\nFLOP/s", "list\nprice"):
        table.add_column(name, justify="right", no_wrap=True)
    for device in devices:
        table.add_row(
            device.id,
            *([device.name] if names else []),
            str(device.year or ""),
            short_bytes(device.memory_bytes),
            f"{short_count(device.memory_bandwidth_bytes_per_s)}B/s",
            short_count(device.peak_flops_per_s("fp32", matrix=True)),
            short_count(device.peak_flops_per_s("fp16", matrix=True)),
            f"${device.list_price_usd:,.0f}" if device.list_price_usd else "",
        )
    return table
