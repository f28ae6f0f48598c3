"""What is said about a device that cannot be loaded."""

from pathlib import Path

import pytest

from gnnperf.hardware import load_device


def error_of(path: Path | str) -> str:
    with pytest.raises(ValueError) as caught:
        load_device(path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500
    return message
