"""Hold SIGTERM back from a guard's worker while that saves; loaded only with --save-within (docs/adr/0069)."""

from __future__ import annotations

import sys
import time

from inplace.agent.save_requests import SaveFile
from inplace.common.epoch.guard import RUNNING, SIGTERM, GuardState


class SavingTime:
    """The time that one guard's worker has to save, once SIGTERM came.

    Args:
        path: where the worker sees that it is asked.
        within_s: how long SIGTERM is held back.
    """

    def __init__(self, path: str, within_s: float) -> None:
        self._file = SaveFile(path)
        self._within_s = within_s
        self.by_s: float | None = None  # when the worker gets SIGTERM, by the monotonic clock; None while none is held

    def begins(self, number: int, state: GuardState) -> bool:
        """Ask the worker to save if SIGTERM came and it runs in an epoch; say whether the signal is held back.

        A second SIGTERM is not, and ends the time.
        """
        if number != SIGTERM or self.ends() or state.phase != RUNNING or not state.epoch:
            return False
        problem = self._file.ask(state.epoch)
        said = problem or f"SIGTERM: the worker has {self._within_s:g} s to save and end"
        print(f"inplace-agent guard: {said}", file=sys.stderr, flush=True)
        if not problem:
            self.by_s = time.monotonic() + self._within_s
        return not problem

    def ends(self) -> bool:
        """End the time; say whether a signal was held back, which the caller now passes on."""
        was_held, self.by_s = self.by_s is not None, None
        return was_held

    def is_over(self) -> bool:
        """End the time when it is over, and say so."""
        return self.by_s is not None and time.monotonic() >= self.by_s and self.ends()
