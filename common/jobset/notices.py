"""
What the group's Pods tell of workers that run: `status.notices`, and which kinds restart the group.

    inplace.dev/restart-on: "loss+slow"     of RESTARTING in common/wire/notice.py; unset: a notice restarts nothing

Only notices of running epochs are listed, at most LISTED_MAX of a kind in each scope: the newest busy ones, and of the
other kinds those of the lowest step. A Pod has one entry of a kind: its newest busy one, and its first of another kind;
a pause takes the place of its stall.
Agents read the list: a busy rank excuses its whole scope, and whoever would be one more tells nothing. docs/adr/0104.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from inplace.common.jobset.settings import MODE, OBSERVE, RESTART_ON
from inplace.common.jobset.status_record import StatusRecord
from inplace.common.wire import names as wire
from inplace.common.wire.notice import BUSY, KINDS, LISTED_MAX

NO_KINDS: Final[frozenset[str]] = frozenset()
ENTRIES_MAX: Final = 64  # of the list, as the CRD has it, which would refuse the whole write, with S in it


class GroupNotice(StatusRecord, frozen=True):
    """One entry of status.notices.

    Args:
        kind, epoch, value, rank, step: see `common.wire.notice`.
        scope: the Pod's; "" where the JobSet restarts as a whole.
        pod, node: who tells.
        at: RFC 3339, by the node's clock.
    """

    kind: str = ""
    epoch: int = 0
    scope: str = ""
    value: int = 0
    rank: str = ""
    step: int | None = None
    pod: str = ""
    node: str = ""
    at: str = ""

    @property
    def who(self) -> str:
        """Name the rank and its Pod."""
        kind, _, number = self.rank.partition("-")
        if (kind == "pid" and number.isdigit()) or self.rank == "_":  # no rank's number, or none yet: its Pod says more
            return f"pod {self.pod}"
        rank = f"rank {number}" if kind in ("rank", "jax") and number.isdigit() else f"rank {self.rank}"
        return f"{rank} ({self.pod})"

    def __str__(self) -> str:
        """Say it for a person."""
        times = f"{self.value / 100:.1f} times as long as before"
        since = "" if self.step is None else f" at step {self.step}"
        after = "" if self.step is None else f" after step {self.step}"
        match self.kind:
            case "loss":
                from_step = "" if self.step is None else f" from step {self.step} on"
                return f"{self.who}: the loss is no finite number{from_step}, {self.value} steps in a row or more"
            case "slow":
                return f"{self.who}: its own work on a step takes {times}{since}"
            case "steps":
                return f"{self.who}: steps take {times}{since}; which rank is slow, steps alone cannot tell"
            case "stall":
                return f"{self.who}: no step for {self.value} s{after}, longer than ever before"
            case "pause":
                return f"{self.who}: no step for {self.value} s{after}, then it went on"
            case "busy":
                return f"{self.who} is busy: for {self.value} s no silence of its group is a stall"
        return f"{self.who}: {self.kind}"


def listed(notices: Iterable[GroupNotice]) -> tuple[GroupNotice, ...]:
    """Return those that the status lists, in its order."""
    places: dict[tuple[str, str], int] = {}
    kept: list[tuple[int, GroupNotice]] = []
    for notice in in_order(notices):
        place = places[notice.scope, notice.kind] = places.get((notice.scope, notice.kind), -1) + 1
        if place < LISTED_MAX:
            kept.append((place, notice))
    if len(kept) > ENTRIES_MAX:  # then every scope has its first ones, of the busy ranks above all
        kept = sorted(kept, key=lambda one: (one[0], KINDS.index(one[1].kind)))[:ENTRIES_MAX]
    return in_order(notice for _, notice in kept)


def in_order(notices: Iterable[GroupNotice]) -> tuple[GroupNotice, ...]:
    """Return the same in the order of the list, in which the last of a kind has to go first."""
    newest_first = sorted(notices, key=lambda notice: (notice.at, notice.pod), reverse=True)
    return tuple(sorted(newest_first, key=_order))


def notices_of(status: Mapping[str, Any]) -> tuple[GroupNotice, ...]:
    """Read status.notices; what another program spoiled is passed over."""
    found = status.get(wire.NOTICES)
    entries = found if isinstance(found, list) else ()
    return tuple(one for one in map(GroupNotice.read, entries) if one.epoch > 0 and one.kind in KINDS)


def restart_on(annotations: Mapping[str, Any]) -> frozenset[str]:
    """Return the kinds of notices that restart the group."""
    given = RESTART_ON.read_or_default(annotations)
    return NO_KINDS if given.get(MODE.name) == OBSERVE else given.get("kinds", NO_KINDS)


def _order(notice: GroupNotice) -> tuple[object, ...]:
    group = notice.scope, KINDS.index(notice.kind)
    if notice.kind == BUSY:
        return group
    return *group, notice.step if notice.step is not None else -1, notice.at, notice.pod
