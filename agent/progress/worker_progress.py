"""Say of each worker that ends whether it got further than those before it in this Pod."""

from __future__ import annotations

from inplace.common.wire.last_progress import LONG_S, parse_last_progress


class WorkerProgress:
    """The highest step of this Pod's workers.

    Args:
        best: that of the workers before this process; None if none of them told a step.
    """

    def __init__(self, best: int | None = None) -> None:
        self.best = best

    def after_run(self, told: str, ran_s: float) -> bool:
        """Take in how far a worker got; say whether that is further than ever.

        Args:
            told: the progress of its slowest rank, as the announcement carries it; "" if it is not known.
            ran_s: how long it ran; that decides where no worker ever told a step.
        """
        progress = parse_last_progress(told)
        step = progress.step if progress is not None else None
        if step is None:
            return self.best is None and ran_s >= LONG_S
        if self.best is not None and step <= self.best:
            return False
        self.best = step
        return True
