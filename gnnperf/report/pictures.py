"""Kinds of pictures that a plot can be written as."""

from __future__ import annotations

from pathlib import Path

SUFFIXES = (".png", ".svg", ".pdf")


def check_suffix(path: str | Path) -> None:
    """See that ``path`` ends as a picture that can be drawn; imports nothing heavy.

    Raises:
        ValueError: If it does not.
    """
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ValueError(f"a plot is written as one of {', '.join(SUFFIXES)}, not {str(path)!r}")
