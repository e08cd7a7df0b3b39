"""Hold SIGTERM back from a guard's worker while that saves; loaded only with --save-within (docs/adr/0069)."""

from __future__ import annotations

import time

from inplace.agent.report.guard_log import GUARD_LOG
from inplace.agent.worker.save_requests import SaveFile
from inplace.agent.worker.stop_signal import signal_name
from inplace.common.protocol.guard import RUNNING, SIGINT, GuardState


class SavingTime:
    """The time that one guard's worker has to save, once SIGTERM came.

    Args:
        path: where the worker sees that it is asked.
        within_s: how long the signal is held back by which the Pod ends.
    """

    def __init__(self, path: str, within_s: float) -> None:
        self._file = SaveFile(path)
        self._within_s = within_s
        self.by_s: float | None = None  # when the worker gets the signal, by the monotonic clock; None: none is held
        self.number = 0  # of that signal

    def begins(self, number: int, state: GuardState) -> bool:
        """Ask the worker to save if it runs in an epoch and its Pod ends by this signal; say whether that is held back.

        A second one is not, and ends the time; neither is SIGINT, which a person types.
        """
        if number == SIGINT or self.ends() or state.phase != RUNNING or not state.epoch:
            return False
        problem = self._file.ask(state.epoch)
        if problem:
            GUARD_LOG.warning(
                "save_not_requested", epoch=state.epoch, message=problem, then="the worker is stopped unsaved"
            )
            return False
        GUARD_LOG.info("signalled", signal=signal_name(number), then=f"the worker has {self._within_s:g} s to save")
        self.by_s, self.number = time.monotonic() + self._within_s, number
        return True

    def ends(self) -> bool:
        """End the time; say whether a signal was held back, which the caller now passes on."""
        was_held, self.by_s = self.by_s is not None, None
        return was_held

    def is_over(self) -> bool:
        """End the time when it is over, and say so."""
        return self.by_s is not None and time.monotonic() >= self.by_s and self.ends()
