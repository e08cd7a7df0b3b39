"""Find the Pods that were silent first while a group announces: O(1) for each Pod."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from inplace.common.jobset.furthest_behind import NAMED_MAX, FurthestBehind
from inplace.common.protocol.stall import LastProgress


@dataclass(slots=True)
class LastSteps:
    """What the Pods of a scope told since its last sync.

    A Pod that tells no step is not compared with those that do, unless none does.
    """

    _step: int | None = None
    _count: int = 0
    _first: list[tuple[float, str, str, LastProgress]] = field(
        default_factory=list
    )  # (minus quiet, Pod, node), NAMED_MAX

    def note(self, pod: str, node: str, progress: LastProgress) -> None:
        """Take in how far the worker of a Pod was, and on which node; each Pod tells it once."""
        if self._count and progress.step != self._step:
            if progress.step is None or (self._step is not None and progress.step > self._step):
                return
            self._count, self._first = 0, []
        self._step = progress.step
        self._count += 1
        insort(self._first, (-progress.quiet_s, pod, node, progress), key=lambda told: told[:2])
        del self._first[NAMED_MAX:]

    def result(self) -> FurthestBehind | None:
        """Return who was silent first; None if no Pod told."""
        if not self._first:
            return None
        _, _, node, progress = self._first[0]
        return FurthestBehind(tuple(pod for _, pod, *_ in self._first), self._count, progress, node)
