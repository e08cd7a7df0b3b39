"""
Read a file that a user named: a manifest, a kubeconfig.

Guarantees: what is no file (a named pipe, a device, a folder) is refused and not waited for, and of a file at most a
given number of bytes is read. An open descriptor of this process (/dev/stdin, /dev/fd/N, as the shell's `<(command)`
gives them) is read to its end, whatever it is: somebody just opened it for us.
"""

from __future__ import annotations

import errno
import os
import stat

from inplace.common.bare.typed import Final

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a pipe's open() does not wait for a writer
_DESCRIPTORS: Final = ("/dev/fd/", "/proc/self/fd/")
_CHUNK_BYTES: Final = 1 << 20
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_bounded(path: str, bytes_max: int) -> bytes:
    """Return a file's bytes.

    Args:
        path: links are followed.
        bytes_max: the largest file that is read.

    Raises:
        OSError: it cannot be opened, is no file, or is larger; `strerror` says which.
    """
    if "\0" in path:
        raise OSError(errno.EINVAL, "a path with a NUL character", path)
    descriptor = _descriptor(path)
    if descriptor is not None:
        file = os.dup(descriptor)
    else:
        _check_file(os.stat(path), path)  # noqa: PTH116 - BEFORE open(): opening a device may do something
        file = os.open(path, _FLAGS)
    try:
        if descriptor is None:
            _check_file(os.fstat(file), path)
        return _read(file, path, bytes_max)
    finally:
        os.close(file)


def _descriptor(path: str) -> int | None:
    """Return the number of this process's open descriptor that a path names, None for another path."""
    if path == "/dev/stdin":
        return 0
    for folder in _DESCRIPTORS:
        number = path.removeprefix(folder)
        if number != path and number.isascii() and number.isdigit():
            return min(int(number), (1 << 31) - 1)
    return None


def _check_file(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"{kind}, not a file", path)


def _read(file: int, path: str, bytes_max: int) -> bytes:
    parts, left = list[bytes](), bytes_max + 1
    while left and (part := os.read(file, min(left, _CHUNK_BYTES))):
        parts.append(part)
        left -= len(part)
    if not left:
        raise OSError(errno.EFBIG, f"more than {bytes_max:,} bytes", path)
    return b"".join(parts)
