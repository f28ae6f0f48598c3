import io
from dataclasses import replace

import pytest

from gnnperf.graph import ComputationGraph
from gnnperf.report.table import heading, print_table


@pytest.fixture(autouse=True)
def no_terminal_size(monkeypatch):
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def table(predictions, **options):
    file = io.StringIO()
    print_table("a [bold] source", predictions, file, **options)
    return file.getvalue()


def test_totals_come_first_then_parts(predictions):
    text = table(predictions)
    lines = text.splitlines()
    assert lines[0].startswith("a [bold] source: inference, batch 2, fp32, torch 2.9, eager; ")
    for word in ("total ms", "90 % interval", "samples/s", "peak memory", "fits?", "measured?"):
        assert word in text
    assert text.index("t4") < text.index("blocks.*.conv") < text.index("(overhead)")
    assert "zero-shot" in next(line for line in lines if line.strip().startswith("t4"))


def test_a_file_gets_no_colour_and_no_broken_lines(predictions):
    text = table(predictions)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 120


def test_rows_are_limited(predictions):
    assert len(table(predictions, rows=2).splitlines()) < len(table(predictions, rows=10).splitlines())


def test_what_does_not_fit_is_loud(predictions):
    graph: ComputationGraph = predictions[0].graph
    p = replace(predictions[0], graph=graph, peak_memory_bytes=100 * 2**30)
    assert "NO, it has 24 GiB" in table([p])


def test_many_devices_are_left_out_of_the_parts_and_named(predictions):
    text = table([predictions[0]] * 4 + [predictions[1]])
    assert "--json has them all (t4)" in text


def test_the_heading_names_software(predictions):
    software = replace(predictions[0].software, compiled=True, memory_format="channels_last")
    text = heading("x", replace(predictions[0], software=software))
    assert "torch 2.9, compiled, channels last" in text


def test_totals_fit_into_a_narrow_terminal(predictions, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = table(predictions).splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if line.startswith("rtx-4090"))
    assert row.split()[-2:] == ["yes", "yes"]
