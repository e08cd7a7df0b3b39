"""
Keep the tail of what each run of a worker writes, and pass all of it on to the container's log.

This process puts a pipe in the place of its own standard output, and one in the place of its standard error; all below
it inherits them, as it did the log's own. A thread for each copies what comes, in its order, and writes the last bytes
to a file (`common.wire.run_tail`). A thread may wait for the log's reader; then the pipe is full, and the worker waits
as it did before. The parent itself never waits for the log longer than DRAIN_S_MAX.

No end of a pipe is waited for: this process, a standby and whatever a worker left behind hold it open. A run's output
is complete when the pipes are empty.

Where both lead to the same file there is one pipe, so the order of the worker's writes stays. A terminal stays the
worker's own, and nothing of it is kept.
"""

from __future__ import annotations

import os
import select
import time
from _stat import S_ISREG
from _thread import allocate_lock, start_new_thread

from inplace.agent.report.line_writer import STDERR, write_all
from inplace.common.bare.typed import TYPE_CHECKING, Final, Sequence
from inplace.common.wire.run_tail import FILES_MAX, HEAD_BYTES, TAIL_BYTES, head_of, tail_file

if TYPE_CHECKING:
    from inplace.agent.report.log import Log
    from inplace.agent.worker.output_steps import OutputSteps

DRAIN_S_MAX: Final = 0.3  # the wait for a log that is not read; kubelet's shortest grace period is 2 s
PIPE_BYTES: Final = 65_536  # what one read takes: all that a pipe holds
_PAUSE_S: Final = 0.001
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class TailFile:
    """The file of this process's runs, one run after the other; it stays open.

    Args:
        folder: where it is made; another parent of this Pod has another file there.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file = -1
        self._lock = allocate_lock()
        self._epoch = self._began_ms = self._total = 0
        self.problem = ""  # why the present run's tail is not kept

    def begin(self, epoch: int) -> None:
        """Empty the file for a run; a run of epoch 0 is not kept."""
        with self._lock:
            self._epoch, self._began_ms, self._total = epoch, int(time.time() * 1000), 0
            self.problem = ""
            try:
                if self._file < 0:
                    self._file = _own_file(self._folder)
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, head_of(epoch, self._began_ms, 0), 0)
            except OSError as error:
                self.problem = error.strerror or "it cannot be written"

    def end(self) -> None:
        """End the run: what comes from now on is not kept."""
        with self._lock:
            self._epoch = 0

    def append(self, chunk: bytes) -> None:
        """Keep a chunk, over the oldest bytes."""
        with self._lock:
            if not self._epoch or self.problem:
                return
            kept = chunk[-TAIL_BYTES:]
            at = (self._total + len(chunk) - len(kept)) % TAIL_BYTES
            self._total += len(chunk)
            try:
                _write_at(self._file, kept[: TAIL_BYTES - at], HEAD_BYTES + at)
                _write_at(self._file, kept[TAIL_BYTES - at :], HEAD_BYTES)
                os.pwrite(self._file, head_of(self._epoch, self._began_ms, self._total), 0)
            except OSError as error:
                self.problem = error.strerror or "it cannot be written"


class _Copier:
    """Copies what is written to some descriptors of this process on to where they led."""

    def __init__(self, numbers: Sequence[int], tail: TailFile, steps: OutputSteps | None) -> None:
        self._numbers = numbers
        self._tail = tail
        self._steps = steps
        self._log = os.dup(numbers[0])
        self._read, write = os.pipe2(os.O_CLOEXEC)
        for number in numbers:
            os.dup2(write, number)  # which everybody below inherits
        os.close(write)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        self._copying = allocate_lock()  # held from BEFORE a read to AFTER its write
        start_new_thread(self._follow, ())

    def drain(self, by_s: float) -> None:
        """Return when nothing is left in the pipe, at `by_s` at the latest."""
        while time.monotonic() < by_s:
            if self._copying.acquire(timeout=_PAUSE_S):
                is_empty = not self._poll.poll(0)
                self._copying.release()
                if is_empty:
                    return
                time.sleep(0)  # the thread wants the lock

    def restore(self) -> None:
        """Let the descriptors lead to the log again."""
        for number in self._numbers:
            os.dup2(self._log, number)

    def _follow(self) -> None:
        """Copy, for ever."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while True:
            poll.poll()
            with self._copying:
                chunk = os.read(self._read, PIPE_BYTES)
                if not chunk:
                    return
                self._tail.append(chunk)
                write_all(self._log, chunk)
                if self._steps is not None:
                    self._steps.see(self._read, chunk)


class RunOutput:
    """What the runs of one worker write.

    Args:
        folder: of the tail's file, on a file system in memory; "" keeps none, and changes no descriptor.
        pattern: what stands before and after a step in the output; None: it is not looked for.
    """

    def __init__(self, folder: str, log: Log, pattern: tuple[bytes, bytes] | None = None) -> None:
        self._folder = folder
        self._steps: OutputSteps | None = None
        if pattern:
            from inplace.agent.worker.output_steps import OutputSteps

            self._steps = OutputSteps(pattern)
        self._log = log
        self._tail = TailFile(folder)
        self._copiers: list[_Copier] = []
        self._has_begun = False

    def begin(self, epoch: int, progress: str = "") -> None:
        """Keep the tail of a run that starts; its ranks tell their steps in the folder `progress`."""
        if not self._folder:
            return
        self._tail.begin(epoch)
        if self._steps is not None:
            self._steps.begin(progress)
        if not self._has_begun:
            self._has_begun = True
            self._copiers = [_Copier(numbers, self._tail, self._steps) for numbers in _streams()]
            STDERR.behind = self.close

    def settle(self) -> None:
        """Take in what was written until now, for a while at most."""
        by_s = time.monotonic() + DRAIN_S_MAX
        STDERR.settle(by_s)  # this process's own lines go the same way
        for copier in self._copiers:
            copier.drain(by_s)

    def end(self) -> None:
        """Take in what is left of a run that ended."""
        self.settle()
        if self._tail.problem:
            then = "the log of this run is in its container's log alone"
            self._log.warning("tail_not_kept", message=f"{self._folder}: {self._tail.problem}", then=then)
        self._tail.end()
        if self._steps is not None and (problem := self._steps.end()):
            self._log.warning("steps_not_seen", message=f"the worker's steps: {problem}", then="the agent saw no more")

    def close(self) -> None:
        """Pass on what is left, and write to the log itself again; this process ends."""
        self.settle()
        for copier in self._copiers:
            copier.restore()
        self._copiers = []


def _streams() -> list[tuple[int, ...]]:
    """Return standard output and error, as one where they lead to the same file; without terminals and closed ones."""
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for number in (1, 2):
        try:
            place = os.fstat(number)
        except OSError:
            continue
        if not os.isatty(number):
            key = place.st_dev, place.st_ino
            found[key] = (*found.get(key, ()), number)
    return list(found.values())


def _own_file(folder: str) -> int:
    """Open the first file of this user's that no other parent holds.

    Raises:
        OSError: there is none.
    """
    from fcntl import LOCK_EX, LOCK_NB, flock

    problem = OSError(0, f"{FILES_MAX} files are held by other processes")
    for number in range(FILES_MAX):
        try:
            file = os.open(f"{folder}/{tail_file(number)}", _FLAGS, 0o644)
        except OSError as error:
            problem = error
            continue
        found = os.fstat(file)
        if S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            try:
                flock(file, LOCK_EX | LOCK_NB)
                os.fchmod(file, 0o644)  # whatever the umask: the agent may be another user
            except OSError as error:
                problem = error
            else:
                return file
        os.close(file)
    raise problem


def _write_at(file: int, text: bytes, at: int) -> None:
    if text:
        os.pwrite(file, text, at)
