import io

import pytest

from gnnperf.hardware import catalogue
from gnnperf.report.device_table import print_devices


@pytest.mark.parametrize("columns", ["80", "120", "300"])
def test_every_device_is_a_row(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    file = io.StringIO()
    print_devices(list(catalogue().values()), file)
    text = file.getvalue()
    assert all(f"{device_id} " in text for device_id in catalogue())
    assert "\x1b" not in text and "…" not in text
    assert ("NVIDIA A100" in text) == (columns != "80")  # no room for names
    assert max(map(len, text.splitlines())) <= int(columns)


def test_prices_are_shown_where_known(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    file = io.StringIO()
    print_devices([catalogue()["rtx-4090"], catalogue()["xeon-platinum-8480-plus"], catalogue()["mi300x"]], file)
    known, cpu, unpriced = (line.split() for line in file.getvalue().rstrip().splitlines()[-3:])
    assert known[-1] == "$1,599" and cpu[-1] == "$10,710"
    assert unpriced[0] == "mi300x" and not unpriced[-1].startswith("$")
