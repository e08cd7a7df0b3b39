"""
Write lines to the container's log without ever waiting for its reader.

A worker shares its parent's standard error. When nobody reads the log, the pipe is full, and a write waits: the parent
would then pass no signal on, and end no worker. O_NONBLOCK is no way out: it would hold for the worker as well. So a
thread writes and may wait; its owner puts lines into a bounded queue. On the guard's start path.
"""

from __future__ import annotations

import os
import select
import time
from _thread import allocate_lock, start_new_thread

from inplace.agent.report.log_line import log_line
from inplace.common.bare.typed import Callable, Final

LINES_MAX: Final = 1000  # that wait for the reader; later ones are counted
FLUSH_S_MAX: Final = 0.5  # at the process's end; kubelet's shortest grace period is 2 s
_PAUSE_S: Final = 0.0002


class LineWriter:
    """Write lines to a descriptor, in order."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: list[bytes] = []
        self._left_out = 0
        self._guard = allocate_lock()  # of the three
        self._is_writing = False
        self._wake = allocate_lock()  # free while there may be lines
        self._runs_in = 0  # the process that has the thread; a child has none
        self.behind: Callable[[], object] = _do_nothing  # what passes these lines on, to be waited for as well

    def write(self, line: str) -> None:
        """Put one line into the queue, without its end."""
        text = line.encode("utf-8", "replace") + b"\n"
        with self._guard:
            if len(self._lines) >= LINES_MAX:
                self._left_out += 1
            else:
                self._lines.append(text)
            if self._wake.locked():
                self._wake.release()
        if self._runs_in != (pid := os.getpid()):
            self._runs_in = pid
            start_new_thread(self._follow, ())

    def settle(self, by_s: float) -> None:
        """Wait until every line so far is written, at `by_s` of the monotonic clock at the latest."""
        while self._is_busy() and time.monotonic() < by_s:
            time.sleep(_PAUSE_S)

    def flush(self) -> None:
        """Wait until every line is written, for a while at most; the process ends."""
        self.settle(time.monotonic() + FLUSH_S_MAX)
        self.behind()

    def _is_busy(self) -> bool:
        with self._guard:
            return bool(self._lines or self._left_out or self._is_writing)

    def _follow(self) -> None:
        """Write what is in the queue, for ever."""
        while True:
            self._wake.acquire()
            with self._guard:
                lines, self._lines = self._lines, []
                if self._left_out:
                    why = {"lines": self._left_out, "message": "nobody read this log"}
                    lines.append(log_line(time.time(), "warning", "log_lines_dropped", why).encode() + b"\n")
                    self._left_out = 0
                self._is_writing = bool(lines)
            for line in lines:
                write_all(self._descriptor, line)
            with self._guard:
                self._is_writing = False


def write_all(descriptor: int, text: bytes) -> None:
    """Write to a log until all is written, however long that takes; nothing if there is no log any more."""
    rest = memoryview(text)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
        except OSError:
            return


def _do_nothing() -> None:
    """Wait for nothing."""


STDERR: Final = LineWriter(2)
