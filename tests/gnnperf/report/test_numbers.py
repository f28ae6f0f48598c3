import pytest

from gnnperf.report.numbers import shape_text, short_bytes, short_count, significant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.56, "1,235"),
        (123.456, "123.5"),
        (0.0123456, "0.01235"),
        (0.0, "0"),
        (-2.5, "-2.500"),
        (1e-12, "0.000000000"),
    ],
)
def test_significant(value, text):
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (999, "999"), (999.9, "1 K"), (8.22e9, "8.22 G"), (4e19, "40 E")]
)
def test_short_count(value, text):
    assert short_count(value) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (512, "512 B"), (2**20, "1 MiB"), (80 * 2**30, "80 GiB")])
def test_short_bytes(size, text):
    assert short_bytes(size) == text


def test_shape_text():
    assert (shape_text((1, 64, 7)), shape_text(())) == ("1x64x7", "")
