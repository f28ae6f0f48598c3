"""Where tables are written to."""

from __future__ import annotations

import os
from typing import TextIO

from rich.console import Console

FILE_WIDTH = 120


def make_console(file: TextIO) -> Console:
    """A console that prints names as they are; as wide as the terminal, or ``FILE_WIDTH`` columns in a file."""
    width = None if file.isatty() or "COLUMNS" in os.environ else FILE_WIDTH
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False)
