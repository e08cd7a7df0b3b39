"""The ranks that were slow in the run before the last restart, as `status.lastGroupRestart` keeps them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inplace.common.bare.record import record
from inplace.controller.spec.status_record import StatusRecord

NAMED_MAX: Final = 5  # the controller names no more


class SlowRank(StatusRecord, frozen=True):
    """One of them.

    Args:
        pod, node: where it was; "" if that is not known.
        rank: its number; None if it has none.
        work_milliseconds: the median of its own work on a step.
    """

    pod: str = ""
    node: str = ""
    rank: int | None = None
    work_milliseconds: int = 0

    def __str__(self) -> str:
        """Say it for a person."""
        who = f"rank {self.rank} ({self.pod})" if self.rank is not None else f"Pod {self.pod}"
        return f"{who}{f' on {self.node}' if self.node else ''}: {work_text(self.work_milliseconds)}"


@record
class SlowRanks:
    """All of them.

    Args:
        ranks: at most NAMED_MAX, at least one.
        typical_milliseconds: half of the Pods needed less for their own work on a step; None for not known.
    """

    ranks: tuple[SlowRank, ...]
    typical_milliseconds: int | None

    def __str__(self) -> str:
        """Say it in one line."""
        typical = self.typical_milliseconds
        half = f", half of the Pods less than {work_text(typical)}" if typical is not None else ""
        names = "; ".join(map(str, self.ranks))
        return f"slow in the run before the last restart: {names} of its own work on a step{half}"


def slow_ranks_of(entry: Mapping[str, Any]) -> SlowRanks | None:
    """Read a status.lastGroupRestart; what another program spoiled is passed over."""
    found, typical = entry.get("slowRanks"), entry.get("typicalWorkMilliseconds")
    ranks = map(SlowRank.read, found[:NAMED_MAX] if isinstance(found, list) else ())
    slow = tuple(one for one in ranks if one.pod and one.work_milliseconds > 0)
    return SlowRanks(slow, typical if isinstance(typical, int) and typical > 0 else None) if slow else None


def work_text(milliseconds: int) -> str:
    """Return a time of work on a step: `40 ms`, `3.1 s`."""
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:,.1f} s"
