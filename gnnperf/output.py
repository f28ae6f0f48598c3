"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def check_writable(path: str | Path) -> None:
    """See, before the work is done, that a file can be written.

    Raises:
        ValueError: If it cannot, with the reason.
    """
    path = Path(path)
    folder = path.parent
    if not folder.is_dir():
        raise ValueError(f"cannot write {str(path)!r}: there is no folder {str(folder)!r}")
    if path.is_dir():
        raise ValueError(f"cannot write {str(path)!r}: it is a folder; name a file in it")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"cannot write {str(path)!r}: no permission")


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file so that nobody ever sees half of it; what stood there before stays if writing fails.

    Raises:
        ValueError: If it cannot be written, with the reason.
    """
    target = Path(path).resolve()  # through a link, which stays
    try:
        replace_whole(target, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise ValueError(f"cannot write {str(target)!r}: {error.strerror}") from error


def replace_whole(path: Path, data: bytes) -> None:
    """The same for files of the library's own, such as caches, whose failure is no mistake of the user's.

    Raises:
        OSError: If it cannot be written.
    """
    if path.exists() and not path.is_file():  # a pipe or a terminal, which must not be replaced
        path.write_bytes(data)
        return
    partial = path.with_name(f".{path.name[:200]}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
