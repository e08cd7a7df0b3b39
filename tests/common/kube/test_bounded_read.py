from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from inplace.common.kube.bounded_read import read_bounded


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    """A file of exactly the bound is read whole; one byte more is refused with the bound."""
    file = tmp_path / "config"
    file.write_bytes(b"x" * 2_000_000)
    assert read_bounded(str(file), 2_000_000) == b"x" * 2_000_000
    with pytest.raises(OSError, match=r"more than 1,999,999 bytes"):
        read_bounded(str(file), 1_999_999)


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    """A file of 1 TB is refused at the bound."""
    file = tmp_path / "config"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(OSError, match=r"more than 1,000 bytes"):
        read_bounded(str(file), 1_000)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """A named pipe without a writer, a device, a folder and a socket are refused by their kind, links to them too."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        with pytest.raises(OSError, match="a named pipe, not a file"):
            read_bounded(str(path), 1_000)
    for device in ("/dev/zero", "/dev/tty0", "/dev/null"):
        if Path(device).exists():
            with pytest.raises(OSError, match="a device, not a file"):
                read_bounded(device, 1_000)
    with pytest.raises(OSError, match="a folder, not a file"):
        read_bounded(str(tmp_path), 1_000)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="a socket, not a file"):
            read_bounded(str(tmp_path / "socket"), 1_000)


def test_an_open_descriptor_may_be_a_pipe() -> None:
    """What a shell's process substitution hands over is read to its end, and has the bound of a file."""
    for folder in ("/dev/fd", "/proc/self/fd"):
        for bytes_max, seen in ((5, b"hello"), (4, None)):
            reader, writer = os.pipe()
            os.write(writer, b"hello")
            os.close(writer)
            try:
                if seen is None:
                    with pytest.raises(OSError, match="more than 4 bytes"):
                        read_bounded(f"{folder}/{reader}", bytes_max)
                else:
                    assert read_bounded(f"{folder}/{reader}", bytes_max) == seen
            finally:
                os.close(reader)


@pytest.mark.parametrize("path", ["", "no\0name", "/dev/fd/99999999999", "/dev/fd/x", "not-there"])
def test_a_name_of_nothing_is_an_oserror(path: str) -> None:
    """A path that names nothing raises OSError, whatever is in it."""
    with pytest.raises(OSError, match=r".+"):
        read_bounded(path, 1_000)
