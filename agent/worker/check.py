"""
The check of `--before-announce`: a command in the worker's container that says whether this Pod may join its group.

A supervisor and a guard run it by /bin/sh, each BEFORE its Pod announces an epoch. This module has what both share: how
an end is judged, the last of the output, and the reason that kubelet puts into the Pod's status. Nobody loads it
without a check.
"""

from __future__ import annotations

import os
from contextlib import suppress

from inplace.agent.worker.command import NOT_EXECUTABLE, NOT_FOUND
from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.wire.unfit import WORDS

OUTPUT_BYTES_MAX: Final = 2048  # its last ones; the reason must fit into kubelet's 4096 bytes
READ_BYTES_MAX: Final = 65536  # what a pipe holds
DRAIN_READS_MAX: Final = 16  # at the end; a process that is left may write for ever
REASON_FILE: Final = "/dev/termination-log"  # kubelet's default; another terminationMessagePath is not looked for


@record
class Verdict:
    """What a check's end says.

    Args:
        joins: the Pod goes on to the barrier.
        problem: why it should not, or why the check gave no answer; "" if the Pod passed.
    """

    joins: bool
    problem: str = ""


def verdict_on(code: int | None, timeout_s: float, *, joins_unanswered: bool) -> Verdict:
    """Judge the end of a check; `code` is None if it did not end in time, and 128 + n after signal n."""
    if code == 0:
        return Verdict(joins=True)
    if code is None:
        return Verdict(joins_unanswered, f"it did not end within {timeout_s:g} s, and was killed")
    if code in (NOT_EXECUTABLE, NOT_FOUND):
        return Verdict(joins_unanswered, f"it cannot be run: exit code {code}")
    return Verdict(joins=False, problem=f"it ended with exit code {code}")


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


def reason_of(verdict: Verdict, output: str) -> str:
    """Return why this Pod ends, for kubelet."""
    words = f"{WORDS}: {verdict.problem}"
    return f"{words}: {output}" if output else words


def leave_reason(reason: str, path: str = REASON_FILE) -> None:
    """Write why this Pod ends to where kubelet looks for it; only where kubelet made the file."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, reason.encode()[: 2 * OUTPUT_BYTES_MAX])
        finally:
            os.close(descriptor)
