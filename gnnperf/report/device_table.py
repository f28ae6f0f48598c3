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
    """Write a row for every device."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", no_wrap=True)
    table.add_column("name")
    for name in ("year", "memory", "bandwidth", "fp32\nFLOP/s", "fp16\nFLOP/s", "list\nprice"):
        table.add_column(name, justify="right", no_wrap=True)
    for device in devices:
        table.add_row(
            device.id,
            device.name,
            str(device.year or ""),
            short_bytes(device.memory_bytes),
            f"{short_count(device.memory_bandwidth_bytes_per_s)}B/s",
            short_count(device.peak_flops_per_s("fp32", matrix=True)),
            short_count(device.peak_flops_per_s("fp16", matrix=True)),
            f"${device.list_price_usd:,.0f}" if device.list_price_usd else "",
        )
    make_console(file).print(table)
