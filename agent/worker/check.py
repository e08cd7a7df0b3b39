"""
The check of `--before-announce`: a command in the worker's container that says whether this Pod may join its group.

The worker's host runs it by /bin/sh, each time BEFORE its Pod announces an epoch. How it ended, and the last of its
output, decide; the reason is left for kubelet, who puts it into the Pod's status. Nobody loads this without a check.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from inplace.agent.settings.command import NOT_EXECUTABLE, NOT_FOUND
from inplace.agent.worker.stall_command import kill_tree
from inplace.common.bare.record import record
from inplace.common.bare.typed import TYPE_CHECKING, Callable, Final, Mapping
from inplace.common.wire.unfit import WORDS

if TYPE_CHECKING:
    from inplace.agent.report.log import Log
    from inplace.agent.settings.arguments import WorkerOptions
    from inplace.agent.worker.standby import Readers

OUTPUT_BYTES_MAX: Final = 2048  # its last ones; the reason must fit into kubelet's 4096 bytes
READ_BYTES_MAX: Final = 65536  # what a pipe holds
DRAIN_READS_MAX: Final = 16  # at the end; a process that is left may write for ever
REASON_FILE: Final = "/dev/termination-log"  # kubelet's default; another terminationMessagePath is not looked for


@record
class CheckResult:
    """What a check's end says.

    Args:
        joins: the Pod goes on to the barrier.
        problem: why it should not, or why the check gave no answer; "" if the Pod passed.
    """

    joins: bool
    problem: str = ""


def result_of(code: int | None, timeout_s: float, *, joins_unanswered: bool) -> CheckResult:
    """Judge the end of a check; `code` is None if it did not end in time, and 128 + n after signal n."""
    if code == 0:
        return CheckResult(joins=True)
    if code is None:
        return CheckResult(joins_unanswered, f"it did not end within {timeout_s:g} s, and was killed")
    if code in (NOT_EXECUTABLE, NOT_FOUND):
        return CheckResult(joins_unanswered, f"it cannot be run: exit code {code}")
    return CheckResult(joins=False, problem=f"it ended with exit code {code}")


class Output:
    """The last bytes that a check wrote to its standard output and error."""

    def __init__(self) -> None:
        self._last = b""

    def read(self, descriptor: int) -> bool:
        """Take in what a pipe has now; return False at its end."""
        try:
            received = os.read(descriptor, READ_BYTES_MAX)
        except BlockingIOError:
            return True
        self._last = (self._last + received)[-OUTPUT_BYTES_MAX:]
        return bool(received)

    def drain(self, descriptor: int) -> None:
        """Take in what is left of a check that has ended."""
        for _ in range(DRAIN_READS_MAX):
            before = self._last
            if not self.read(descriptor) or self._last is before:
                return

    @property
    def text(self) -> str:
        """Return them in words, whatever they were."""
        return self._last.decode("utf-8", errors="replace").strip()


class Check:
    """One run of the command.

    Args:
        readers: calls back when there is output.

    Attributes:
        pid: of the command until its end was taken in; 0 if it does not run.
        due_s: when it is killed, of the monotonic clock; None if it does not run.
    """

    def __init__(self, options: WorkerOptions, readers: Readers, log: Log) -> None:
        self._options = options
        self._readers = readers
        self._log = log
        self._output = Output()
        self._descriptor = -1
        self._began_s = time.monotonic()
        self._code: int | None = None
        self.pid = 0
        self.due_s: float | None = None

    def begin(self, spawn: Callable[[str, Mapping[str, str], int], int]) -> bool:
        """Start the command; say whether it runs."""
        self._descriptor, write_end = os.pipe()
        os.set_blocking(self._descriptor, False)
        try:
            self.pid = spawn(self._options.before_announce, {}, write_end)
        except OSError:  # /bin/sh cannot be executed
            return False
        finally:
            os.close(write_end)
        self._readers.add_reader(self._descriptor, self._read)
        self.due_s = self._began_s + self._options.check_timeout_s
        return True

    def is_late(self, now_s: float) -> bool:
        """Say whether the command has to be killed now."""
        return self.due_s is not None and now_s >= self.due_s

    def end(self, code: int | None) -> None:
        """Take in the end of the command, None if it is killed for its time."""
        self._code = code
        if code is not None:
            self.pid = 0  # reaped: the number is not ours any more
        self.kill()

    def kill(self) -> None:
        """Kill the command, if it runs, and hang up."""
        if self.pid:
            kill_tree(self.pid)
        self.pid, self.due_s = 0, None
        if self._descriptor >= 0:
            self._readers.remove_reader(self._descriptor)
            self._output.drain(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def unfit(self, *, entirely: bool) -> str:
        """Return why this Pod may not join its group, "" if it may; kubelet is told as well.

        Args:
            entirely: no process of the command is left.
        """
        timeout_s, joins = self._options.check_timeout_s, self._options.joins_unanswered
        result = result_of(self._code, timeout_s, joins_unanswered=joins)
        if not entirely:
            result = CheckResult(joins=False, problem="its processes survive SIGKILL")
        took_s = round(time.monotonic() - self._began_s, 3)
        if not result.joins:
            reason = reason_of(result, self._output.text)
            leave_reason(reason)
            return reason
        if result.problem:
            output, then = self._output.text, "the Pod joins its group unchecked"
            self._log.warning("check_unanswered", message=result.problem, output=output, took_s=took_s, then=then)
        else:
            self._log.info("check_passed", took_s=took_s)
        return ""

    def _read(self) -> None:
        """Take in a part of the output; the command may have ended meanwhile."""
        if self._descriptor >= 0 and not self._output.read(self._descriptor):
            self._readers.remove_reader(self._descriptor)


def reason_of(result: CheckResult, output: str) -> str:
    """Return why this Pod ends, for kubelet."""
    words = f"{WORDS}: {result.problem}"
    return f"{words}: {output}" if output else words


def leave_reason(reason: str, path: str = REASON_FILE) -> None:
    """Write why this Pod ends to where kubelet looks for it; only where kubelet made the file."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, reason.encode()[: 2 * OUTPUT_BYTES_MAX])
        finally:
            os.close(descriptor)
