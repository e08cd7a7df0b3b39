"""A barrier that waits, with the slots that it waits for, as the planner reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from inplace.common.jobset.kinds import Pod

PATIENCE_S: Final = 15.0  # a restart takes up to 10 s, and says nothing of itself meanwhile
NAMES_MAX: Final = 10  # missing Pods that are named


@dataclass(frozen=True, slots=True)
class Missing:
    """One slot that a barrier waits for.

    Args:
        job: name of its Job.
        index: its completion index.
        why: what is known of it, in words.
        pod: the one in the slot; None if there is none, or more.
    """

    job: str
    index: int
    why: str
    pod: Pod | None = None

    def __str__(self) -> str:
        """Return the Pod's name without its random end, and why it is not there."""
        return f"{self.job}-{self.index} ({self.why})"


@dataclass(frozen=True, slots=True)
class WaitingBarrier:
    """A barrier that waits.

    Args:
        epoch: at which Pods meet, or meet again.
        arrived: slots that are there.
        expected: N.
        waited_s: for how long it has waited.
        missing: the first slots that it waits for; none while they are not needed.
        in_the_way: names of Pods that hold it up beside those that are missing, by reason.
        runs: the epoch has begun, and lost a Pod.
        deadline_in_s: how long until its deadline is over; None when it has none.
        late: names of the Jobs that exist and have missing slots, when the deadline is over; else empty.
    """

    epoch: int
    arrived: int
    expected: int
    waited_s: float
    missing: tuple[Missing, ...] = ()
    in_the_way: Mapping[str, Sequence[str]] = field(default_factory=dict)
    runs: bool = False
    deadline_in_s: float | None = None
    late: frozenset[str] = frozenset()

    @property
    def is_late(self) -> bool:
        """Say whether its deadline is over."""
        return self.deadline_in_s == 0.0

    @property
    def is_worth_telling(self) -> bool:
        """Say whether it has waited long enough to be told of, by our measure or by its own."""
        return self.waited_s >= PATIENCE_S or self.is_late
