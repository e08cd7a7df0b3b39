"""
The guard's check before its Pod announces: it runs in the worker's container, and the guard goes on listening.

`agent.worker.check` has what it shares with a supervisor's.
"""

from __future__ import annotations

import os
import time

from inplace.agent.worker.check import Output, leave_reason, reason_of, verdict_on
from inplace.agent.worker.command import NOT_EXECUTABLE
from inplace.agent.worker.spawn import spawn
from inplace.agent.worker.stall_command import shell_words
from inplace.common.bare.typed import TYPE_CHECKING, Callable, Mapping
from inplace.common.protocol.link import Checking, Fit

if TYPE_CHECKING:
    from inplace.agent.report.log import Log
    from inplace.agent.start.arguments import GuardOptions


class GuardCheck:
    """Runs one command again and again, one at a time.

    Args:
        log: where events go.
        sweep: leaves no process of the command.

    Attributes:
        pid: of the command until its end was taken in; 0 if it does not run.
        descriptor: of its output; -1 for none.
        by_s: when it is killed, of the monotonic clock; None if it does not run.
    """

    def __init__(
        self,
        options: GuardOptions,
        env: Mapping[str, str],
        log: Log,
        sweep: Callable[[], bool],
    ) -> None:
        self._sweep = sweep
        self._options = options
        self._env = env
        self._log = log
        self._output = Output()
        self.pid = 0
        self.descriptor = -1
        self.by_s: float | None = None

    def begin(self) -> bool:
        """Start the command; say whether the Pod may join, or may be found to do so."""
        self._output, self.by_s = Output(), time.monotonic() + self._options.check_timeout_s
        self.descriptor, write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        try:
            self.pid = spawn(shell_words(self._options.before_announce), self._env, write_end)
        except OSError:
            return self.ended(NOT_EXECUTABLE)
        finally:
            os.close(write_end)
        return True

    def word(self) -> Checking | Fit:
        """Return what the agent is told now."""
        return Fit() if self.by_s is None else Checking(round(self._options.check_timeout_s * 1000))

    def read(self) -> None:
        """Take in a part of the output; the command may have ended meanwhile."""
        if self.descriptor >= 0 and not self._output.read(self.descriptor):
            self._close()

    def is_late(self) -> bool:
        """Say whether the command has to be killed now."""
        return self.by_s is not None and time.monotonic() >= self.by_s

    def ended(self, code: int | None) -> bool:
        """Take in the end of the command, None if it is killed for its time; say whether the Pod may join."""
        self._clear()
        verdict = verdict_on(code, self._options.check_timeout_s, joins_unanswered=self._options.joins_unanswered)
        if not verdict.joins:
            reason = reason_of(verdict, self._output.text)
            leave_reason(reason)
            self._log.error("check_failed", message=reason, then="the Pod ends")
        elif verdict.problem:
            then = "the Pod joins its group unchecked"
            self._log.warning("check_unanswered", message=verdict.problem, output=self._output.text, then=then)
        return verdict.joins

    def cut(self, why: str) -> None:
        """Kill the command, if it runs; its end means nothing."""
        if self.pid:
            self._log.info("check_killed", why=why)
            self._clear()

    def _clear(self) -> None:
        """Leave no process of the command."""
        self._sweep()  # there is no worker yet: but for a standby, whatever is below the guard is the check's
        if self.descriptor >= 0:
            self._output.drain(self.descriptor)
        self._close()
        self.pid, self.by_s = 0, None

    def _close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1
