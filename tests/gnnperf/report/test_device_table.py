import io

from gnnperf.hardware import catalogue
from gnnperf.report.device_table import print_devices


def test_every_device_is_a_row():
    file = io.StringIO()
    print_devices(list(catalogue().values()), file)
    text = file.getvalue()
    assert all(f"{device_id} " in text for device_id in catalogue())
    assert "\x1b" not in text


def test_prices_are_shown_where_known():
    file = io.StringIO()
    print_devices([catalogue()["rtx-4090"], catalogue()["xeon-platinum-8480-plus"], catalogue()["mi300x"]], file)
    known, cpu, unpriced = (line.split() for line in file.getvalue().rstrip().splitlines()[-3:])
    assert known[-1] == "$1,599" and cpu[-1] == "$10,710"
    assert unpriced[0] == "mi300x" and not unpriced[-1].startswith("$")
