import pytest

from gnnperf.report.plot import to_plot

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF", ".PNG": b"\x89PNG"}


@pytest.mark.parametrize("suffix", MAGIC)
def test_pictures_are_of_the_kind_asked_for(predictions, suffix):
    picture = to_plot("a $source$", predictions, suffix)
    assert picture.startswith(MAGIC[suffix])
    if suffix == ".svg":
        assert all(text in picture.decode() for text in ("a $source$", "rtx-4090", "normalization", "blocks.*.conv"))


def test_the_same_prediction_gives_the_same_picture(predictions):
    assert to_plot("x", predictions[:1], ".svg") == to_plot("x", predictions[:1], ".svg")


def test_other_pictures_are_refused(predictions):
    with pytest.raises(ValueError, match=r"a plot is written as one of .png, .svg, .pdf"):
        to_plot("x", predictions, ".bmp")
