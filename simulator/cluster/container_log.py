"""
Keep a container's output with the time of each line, as a container runtime does.

The log itself is a plain file, which people and tests read. Beside it a second file has a record for each line: where
the line ends, and when it was read from the container. A line beyond 16 KiB has several records, as the CRI cuts it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

PIECE_BYTES_MAX: Final = 16_384  # containerd's max_container_log_line_size
_RECORD: Final = struct.Struct("<QQ")
NS: Final = 1_000_000_000


class LogPiece(NamedTuple):
    """A line of a log, or a piece of a long one.

    Args:
        at_ns: when it was read from the container, Unix time.
        text: with its line end, if it has one.
        begins: it is the first piece of its line.
    """

    at_ns: int
    text: bytes
    begins: bool

    @property
    def ends(self) -> bool:
        """Say whether it is the last piece of its line."""
        return self.text.endswith(b"\n")


class OpenLog(Protocol):
    """The log of one container instance, open for one reader."""

    def pieces(self) -> Iterator[LogPiece]:
        """Yield the pieces that came since the last call."""

    @property
    def is_over(self) -> bool:
        """Say whether no more will come."""

    def close(self) -> None:
        """Let it go."""


def times_of(log: Path) -> Path:
    """Return the file with the times of a log."""
    return log.with_suffix(".times")


class ContainerLog:
    """Write the output of one container instance.

    Args:
        path: the log; it is appended to.
        wall_s: the node's clock.
        on_close: called when the log is complete.
    """

    def __init__(self, path: Path, wall_s: Callable[[], float], on_close: Callable[[], object] = lambda: None) -> None:
        self._on_close = on_close
        self._log = path.open("ab")
        self._times = times_of(path).open("ab")
        self._wall_s = wall_s
        self._end = self._log.tell()
        self._open_bytes = 0  # of a line whose end has not come

    def write(self, output: bytes) -> None:
        """Append output, cut anywhere, and let readers see it."""
        self._log.write(output)
        self._log.flush()  # BEFORE the times, which say how far a reader may go
        at_ns = int(self._wall_s() * NS)
        for line in _lines(output):
            left = self._open_bytes + len(line)
            while left > PIECE_BYTES_MAX:
                self._record(PIECE_BYTES_MAX, at_ns)
                left -= PIECE_BYTES_MAX
            if line.endswith(b"\n"):
                self._record(left, at_ns)
                left = 0
            self._open_bytes = left
        self._times.flush()

    def close(self) -> None:
        """End a line that is open, and the log."""
        if self._open_bytes:
            self._record(self._open_bytes, int(self._wall_s() * NS))
        self._times.close()
        self._log.close()
        self._on_close()

    def _record(self, size: int, at_ns: int) -> None:
        self._end += size
        self._times.write(_RECORD.pack(self._end, at_ns))


class LogFile:
    """Read the log of one container instance, piece by piece; the instance may still write.

    Args:
        path: the log.
        is_over: says whether the instance has ended.
    """

    def __init__(self, path: Path, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._log = path.open("rb")
        self._times = times_of(path).open("rb")
        self._at = 0
        self._begins = True

    def pieces(self) -> Iterator[LogPiece]:
        """Yield the pieces that came since the last call."""
        while len(record := self._times.read(_RECORD.size)) == _RECORD.size:
            end, at_ns = _RECORD.unpack(record)
            piece = LogPiece(at_ns, self._log.read(end - self._at), self._begins)
            self._at, self._begins = end, piece.ends
            yield piece
        self._times.seek(-len(record), 1)

    @property
    def is_over(self) -> bool:
        """Say whether no more will come."""
        return self._is_over()

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        self._times.close()


def _lines(output: bytes) -> list[bytes]:
    """Return the lines of an output, cut at LF alone."""
    *whole, rest = output.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])
