"""Say of each worker that ends whether it got further than those before it in this process."""

from __future__ import annotations

from inplace.common.last_progress import parse_last_progress
from inplace.common.typed import Final

LONG_S: Final = 60.0  # as controller/spec/crash_loop.py: where nobody tells steps, a run so long was not in vain


class WorkerProgress:
    """The highest step of all workers that this process ran."""

    def __init__(self) -> None:
        self._best: int | None = None

    def after_run(self, told: str, ran_s: float) -> bool:
        """Take in how far a worker got; say whether that is further than ever.

        Args:
            told: of its rank that was furthest behind, as the announcement carries it; "" if nobody knows.
            ran_s: how long it ran; that decides where no worker ever told a step.
        """
        step = _step_of(told)
        if step is None:
            return self._best is None and ran_s >= LONG_S
        is_further = self._best is None or step > self._best
        self._best = step if is_further else self._best
        return is_further


def _step_of(told: str) -> int | None:
    progress = parse_last_progress(told)
    return progress.step if progress is not None else None
