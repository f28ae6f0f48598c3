import os
from pathlib import Path

import pytest

from gnnperf.files import read_text, unique_keys


def test_text_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("naïve\r\n".encode())
    assert read_text(tmp_path / "a", "note", 8) == "naïve\r\n"
    with pytest.raises(ValueError, match=r"^note '.*a': larger than 7 bytes, which no note is$"):
        read_text(str(tmp_path / "a"), "note", 7)


def test_what_is_no_text_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ValueError, match=r"^cannot read note '.*': not a regular file$"):
            read_text(path, "note", 8)
    with pytest.raises(ValueError, match=r"^cannot read note 'absent': No such file or directory$"):
        read_text("absent", "note", 8)
    with pytest.raises(ValueError, match=r"^cannot read note '.*': embedded null byte$"):
        read_text("a\0b", "note", 8)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"^note '.*binary': not UTF-8 text$"):
        read_text(tmp_path / "binary", "note", 8)


def test_keys_are_unique() -> None:
    assert unique_keys([("a", 1), ("b", 2)]) == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match=r"^'b' is given twice$"):
        unique_keys([("a", 1), ("b", 2), ("b", 2)])
