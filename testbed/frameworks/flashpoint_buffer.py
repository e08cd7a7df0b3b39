"""
Stand in for the C++ buffer of ML Flashpoint 0.0.10, whose build needs GitHub: a file, mapped into memory.

`testbed.frameworks.unpacked` copies this module to where the library looks for the compiled one. It creates, sizes,
maps and cuts files by the same calls: the same files are left in the same places. It writes no log and checks less.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Self


class BufferObject(mmap.mmap):
    """One mapped file.

    Args:
        object_id: its path.
        capacity: its size in bytes; None opens one that exists, to read.
        overwrite: whether the file may exist.
    """

    def __new__(cls, object_id: str, capacity: int | None = None, overwrite: bool = False) -> Self:
        """Make the file and map it."""
        if capacity is None:
            fd, access = os.open(object_id, os.O_RDONLY), mmap.ACCESS_READ
        else:
            Path(object_id).parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(object_id, os.O_CREAT | os.O_RDWR | (os.O_TRUNC if overwrite else os.O_EXCL), 0o666)
            os.ftruncate(fd, capacity)
            access = mmap.ACCESS_WRITE
        made = super().__new__(cls, fd, 0, access=access)
        os.close(fd)
        made._path, made._reads = object_id, capacity is None
        return made

    def __init__(self, *_: Any) -> None:
        self._path: str
        self._reads: bool

    @property
    def is_readonly(self) -> bool:
        """Say whether it was opened to read."""
        return self._reads

    def get_id(self) -> str:
        """Return the path."""
        return self._path

    def get_capacity(self) -> int:
        """Return the size in bytes."""
        return len(self)

    def close(self, truncate_size: int | None = None) -> None:
        """Unmap the file, and cut it; what still has a view of it keeps the memory, as in C++ nothing may."""
        if truncate_size is not None and not self._reads:
            os.truncate(self._path, truncate_size)
        with suppress(BufferError):
            super().close()
