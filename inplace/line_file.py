"""
One file of the folder INPLACE_PROGRESS_DIR that holds one line: each write overwrites all of the last one.

A program may close descriptors that are not its own, so every write makes sure that the descriptor is still the file's.
It needs os alone and runs under Python 3.8.
"""

from __future__ import annotations

import os

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LineFile:
    """A file of `size` bytes.

    Args:
        size: of the line, with its padding.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.fd = -1
        self._file = (0, 0)  # device and inode behind the descriptor

    def write(self, name: str, line: bytes) -> None:
        """Write a line into the file of this name.

        Raises:
            OSError, ValueError: it cannot be written.
        """
        if not self.is_open():
            self._open(name)
        os.pwrite(self.fd, line.ljust(self._size - 1) + b"\n", 0)

    def close(self) -> None:
        """Forget the file, for a process that was forked."""
        if self.fd >= 0 and self.is_open():
            os.close(self.fd)
        self.fd = -1

    def is_open(self) -> bool:
        """Say whether the descriptor is still this file's, and the file still in its folder."""
        if self.fd < 0:
            return False
        try:
            found = os.fstat(self.fd)
        except OSError:  # somebody closed it
            return False
        if (found.st_dev, found.st_ino) != self._file:  # closed, and its number is another file's now: leave that alone
            return False
        if not found.st_nlink:
            os.close(self.fd)
            return False
        return True

    def _open(self, name: str) -> None:
        self.fd = -1
        fd = os.open(path_of(name), _FLAGS, 0o644)
        found = os.fstat(fd)
        try:
            os.fchmod(fd, 0o644)  # whatever the umask: the agent may be another user
            if found.st_size > self._size:
                os.ftruncate(fd, self._size)
        except OSError:  # another user's file, which may be written all the same
            pass
        self.fd, self._file = fd, (found.st_dev, found.st_ino)


def path_of(name: str) -> str:
    """Return the path of a file in the folder."""
    return os.path.join(os.environ.get("INPLACE_PROGRESS_DIR", ""), name)  # noqa: PTH118 - os alone
