"""
Read steps from what a worker writes: `--step-pattern "step=%d"`, for a script that calls no inplace.progress.

A pattern is text before and after a number. It is no regular expression: a chunk costs one search for the text before
the number, from its end, and LOOKS_MAX at most where no number follows. The newest number of a chunk is written into
one progress file, whose name says that it is the Pod's. It is done in the thread that passes the output on. If the file
cannot be written, the rest of the run is not looked at, and its end tells.
"""

from __future__ import annotations

import os
from _thread import allocate_lock

from inplace.common.bare.typed import Final

LOOKS_MAX: Final = 4  # at places of one chunk
DIGITS_MAX: Final = 12  # as a progress file has it
_DIGITS: Final = frozenset(b"0123456789")
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OutputSteps:
    """The newest step in the output of a run.

    Args:
        pattern: what stands before and after a step.
    """

    def __init__(self, pattern: tuple[bytes, bytes]) -> None:
        self._before, self._after = pattern
        self.problem = ""  # why the present run's steps are not seen any more
        self._longest = len(self._before) + DIGITS_MAX + len(self._after) + 1
        self._rests: dict[int, bytes] = {}  # by stream: the end of what was seen, where a step may begin
        self._folder = ""  # of the present run; "" while there is none
        self._lock = allocate_lock()

    def begin(self, folder: str) -> None:
        """Begin a run whose ranks tell their steps in a folder; "": its output is not looked at."""
        with self._lock:
            self._rests.clear()
            self._folder, self.problem = folder, ""

    def end(self) -> str:
        """Take in no more steps; return what went wrong in the run, "" for nothing."""
        problem = self.problem
        self.begin("")
        return problem

    def see(self, stream: int, chunk: bytes) -> None:
        """Take in what was written to a stream."""
        with self._lock:
            if not self._folder:
                return
            text = self._rests.get(stream, b"") + chunk
            self._rests[stream] = text[-self._longest :]
            step = self._newest(text)
            if step is not None:
                self._write(step)

    def _write(self, step: int) -> None:
        """Write a step into the progress file, which the agent removes when another run begins."""
        try:
            file = os.open(f"{self._folder}/pid-{os.getpid()}", _FLAGS, 0o644)
            try:
                os.fchmod(file, 0o644)  # whatever the umask: the agent may be another user
                os.pwrite(file, b"%-15d\n" % step, 0)
            finally:
                os.close(file)
        except OSError as error:
            self.problem, self._folder = error.strerror or "it cannot be written", ""

    def _newest(self, text: bytes) -> int | None:
        """Return the last number of a text that is whole."""
        end = len(text)
        for _ in range(LOOKS_MAX):
            at = text.rfind(self._before, 0, end)
            if at < 0:
                return None
            first = last = at + len(self._before)
            while last < len(text) and last - first <= DIGITS_MAX and text[last] in _DIGITS:
                last += 1
            is_whole = last < len(text) and 0 < last - first <= DIGITS_MAX  # of one at the end more may come
            if is_whole and text.startswith(self._after, last):
                return int(text[first:last])
            end = at
        return None
