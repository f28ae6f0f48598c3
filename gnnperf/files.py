"""Reading what users write: regular files of bounded size, and JSON objects whose keys do not repeat."""

from __future__ import annotations

import reprlib
import stat
from pathlib import Path
from typing import Any


def read_text(path: str | Path, what: str, max_bytes: int) -> str:
    """The UTF-8 text of a regular file.

    Args:
        path: The file. Devices and pipes are refused: reading them may never end.
        what: What the file is, in errors, such as ``graph file``.
        max_bytes: The largest size that such a file can have.

    Raises:
        ValueError: If it cannot be read, is no regular file, is larger, or is not UTF-8 text.
    """
    name = repr(str(path))
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise ValueError("not a regular file")
        with Path(path).open("rb") as file:
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"cannot read {what} {name}: {reason}") from error
    if len(content) > max_bytes:
        raise ValueError(f"{what} {name}: larger than {max_bytes} bytes, which no {what} is")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} {name}: not UTF-8 text") from error


def unique_keys(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The mapping of key and value pairs, such as ``json.loads`` hands to its ``object_pairs_hook``.

    Raises:
        ValueError: If a key repeats: a plain dict would silently keep the last.
    """
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{reprlib.repr(next(key for key in keys if keys.count(key) > 1))} is given twice")
    return content
