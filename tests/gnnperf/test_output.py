import os

import pytest

from gnnperf.output import check_writable, replace_whole, write_whole


def test_a_file_is_written_whole(tmp_path):
    path = tmp_path / "out.txt"
    write_whole(path, "first")
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "out.txt"
    write_whole(path, "first")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    with pytest.raises(ValueError, match=r"cannot write .*out.txt': No space left on device"):
        write_whole(path, "second")
    with pytest.raises(OSError, match="No space left on device"):
        replace_whole(path, b"second")
    assert path.read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "text"


def test_what_is_no_file_is_not_replaced():
    write_whole(os.devnull, "text")
    assert not os.path.isfile(os.devnull)


def test_check_writable(tmp_path):
    check_writable(tmp_path / "new.txt")
    with pytest.raises(ValueError, match="there is no folder"):
        check_writable(tmp_path / "absent" / "new.txt")
    with pytest.raises(ValueError, match="it is a folder"):
        check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_check_writable_asks_for_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ValueError, match="no permission"):
        check_writable(tmp_path / "new.txt")
