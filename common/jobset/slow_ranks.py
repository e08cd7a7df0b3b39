"""
Which ranks worked much longer on a step than their peers, in the epoch that ended.

The Pods tell it with their announcements (common/wire/last_progress.py): each the median of what its slowest rank
itself worked, without waiting for others. Pods of one replicatedJob do the same work, so they are compared with each
other. A Pod is slow if it works 1.5 times as long as half of them, AND if that is far outside of the spread between
Pods that are well: medians of few steps differ by chance, and to name a healthy node is worse than to name none.
docs/adr/0104. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log, sqrt
from statistics import median
from typing import Any, Final

from msgspec import field

from inplace.common.bare.record import record
from inplace.common.jobset.status_record import StatusRecord

PODS_MIN: Final = 4  # fewer say nothing of what is normal
NAMED_MAX: Final = 5  # it goes into every copy of the JobSet
SHARE_MAX: Final = 0.25  # of the Pods that told; where more are slow, nobody knows what is normal
RATIO_MIN: Final = 1.5  # to the median; what is less is not worth a look at the node
SPREADS_MIN: Final = 6.0  # by which the logarithm of a slow one is above the median's
SPREAD_KNOWN: Final = 0.1  # ranks that are well differ by some 10 %
PODS_KNOWN: Final = 8  # that many Pods are as certain about it
TAIL_FACTOR: Final = 1.5  # for the slow quarter, which is left out of the spread


@record
class PodWork:
    """How long the slowest rank of a Pod itself worked on a step.

    Args:
        rank: its number; None if it has none.
        work_s: the median, > 0.
    """

    pod: str
    node: str
    replicated_job: str
    rank: int | None
    work_s: float


class SlowRank(StatusRecord, frozen=True):
    """One entry of status.lastGroupRestart.slowRanks."""

    pod: str = ""
    node: str = ""
    rank: int | None = None
    work_ms: int = field(default=0, name="workMilliseconds")

    @property
    def who(self) -> str:
        """Name the rank and its Pod."""
        return f"pod {self.pod}" if self.rank is None else f"rank {self.rank} ({self.pod})"


@record
class SlowRanks:
    """The slow ranks of one replicatedJob.

    Args:
        ranks: at most NAMED_MAX, the slowest first.
        typical_ms: what half of the Pods stay below.
    """

    ranks: tuple[SlowRank, ...]
    typical_ms: int

    def fields(self) -> dict[str, Any]:
        """Return them as status.lastGroupRestart has them."""
        return {"typicalWorkMilliseconds": self.typical_ms, "slowRanks": [rank.fields() for rank in self.ranks]}

    def __str__(self) -> str:
        """Say it for a person."""
        ranks = ", ".join(f"{rank.who} works {_duration(rank.work_ms)}" for rank in self.ranks)
        return f"{ranks} on a step, half of the pods less than {_duration(self.typical_ms)}"


def slow_ranks(works: Iterable[PodWork]) -> SlowRanks | None:
    """Return the slow ranks of the replicatedJob where they are the slowest for their kind; None if none are."""
    by_job: dict[str, list[PodWork]] = {}
    for work in works:
        by_job.setdefault(work.replicated_job, []).append(work)
    found: list[tuple[float, SlowRanks]] = []
    for peers in by_job.values():
        if slow := _slow_of(peers):
            typical_s = median(work.work_s for work in peers)
            ranks = (SlowRank(one.pod, one.node, one.rank, round(one.work_s * 1000)) for one in slow[:NAMED_MAX])
            found.append((slow[0].work_s / typical_s, SlowRanks(tuple(ranks), round(typical_s * 1000))))
    return max(found, key=lambda one: one[0])[1] if found else None


def slow_ranks_of_entry(entry: Mapping[str, Any]) -> SlowRanks | None:
    """Read them from a status.lastGroupRestart; None if it names none."""
    entries, typical_ms = entry.get("slowRanks"), entry.get("typicalWorkMilliseconds")
    ranks = tuple(map(SlowRank.read, entries)) if isinstance(entries, list) else ()
    return SlowRanks(ranks, typical_ms) if ranks and isinstance(typical_ms, int) else None


def _slow_of(peers: Sequence[PodWork]) -> list[PodWork]:
    """Return those of one replicatedJob that are slow, the slowest first."""
    if len(peers) < PODS_MIN:
        return []
    limit_s = _limit_s([work.work_s for work in peers])
    slow = sorted((work for work in peers if work.work_s > limit_s), key=lambda work: (-work.work_s, work.pod))
    return slow if len(slow) <= SHARE_MAX * len(peers) else []


def _limit_s(works_s: Sequence[float]) -> float:
    """Return how long a rank may work on a step that is well.

    The spread is that of logarithms, because times are never negative and some are long. Slow ranks may be a quarter of
    all, so it is measured on the others.
    """
    logs = sorted(map(log, works_s))
    middle, fast = median(logs), logs[: len(logs) - int(SHARE_MAX * len(logs))]
    squares = TAIL_FACTOR * sum((one - middle) ** 2 for one in fast)
    spread = sqrt((PODS_KNOWN * SPREAD_KNOWN**2 + squares) / (PODS_KNOWN + len(fast)))
    return exp(middle + max(log(RATIO_MIN), SPREADS_MIN * spread))


def _duration(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds} ms"
