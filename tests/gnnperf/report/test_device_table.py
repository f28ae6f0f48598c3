import io

from gnnperf.hardware import catalogue
from gnnperf.report.device_table import print_devices


def test_every_device_is_a_row():
    file = io.StringIO()
    print_devices(list(catalogue().values()), file)
    text = file.getvalue()
    assert all(f"{device_id} " in text for device_id in catalogue())
    assert "\x1b" not in text
