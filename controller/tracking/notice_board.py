"""What the Pods of one scope tell of their running workers: O(1) for each Pod, whoever and however many tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.notices import GroupNotice, in_order
from inplace.common.kube.timestamps import precise_time
from inplace.common.wire.notice import BUSY, LISTED_MAX, PAUSE, STALL, Notice

_OTHERS: Final = {STALL: PAUSE, PAUSE: STALL}


@dataclass(slots=True)
class NoticeBoard:
    """The notices of one epoch that the status may list, at most LISTED_MAX of a kind.

    A Pod's annotation has its newest notice only, so a new controller begins with those that the status lists.
    """

    _epoch: int = 0
    _by_kind: dict[str, dict[str, GroupNotice]] = field(default_factory=dict)  # by kind, then by Pod

    def note(self, pod: Pod, notice: Notice, *, scope: str, synced: int, number: int | None = None) -> bool:
        """Take in what a Pod tells; say whether the list changes.

        Args:
            pod: that tells.
            notice: of the epoch that the Pod announced.
            scope: the Pod's.
            synced: S, as far as it is known here; a Pod may know of a newer one, but only of the next.
            number: the Pod's place in its group; None where it has none.
        """
        if not synced <= notice.epoch <= synced + 1:
            return False
        known = self._by_kind.get(notice.kind, {}).get(pod.metadata.name)
        if known is not None and known.epoch == notice.epoch and notice.kind != BUSY:
            return False  # who tells the same again and again costs nothing
        return self.put(entry_of(pod, notice, scope, number))

    def put(self, entry: GroupNotice) -> bool:
        """Take in an entry; say whether the list changes. One of an older epoch is passed over."""
        if entry.epoch > self._epoch:
            self._epoch, self._by_kind = entry.epoch, {}
        of_kind = self._by_kind.setdefault(entry.kind, {})
        if entry.epoch < self._epoch or of_kind.get(entry.pod) == entry:
            return False
        if (other := _OTHERS.get(entry.kind)) is not None:  # a Pod is silent, or it was
            self._by_kind.get(other, {}).pop(entry.pod, None)
        kept = in_order([*(one for one in of_kind.values() if one.pod != entry.pod), entry])[:LISTED_MAX]
        self._by_kind[entry.kind] = {one.pod: one for one in kept}
        return entry in kept

    def forget(self, pod: str) -> bool:
        """Drop what a Pod told that is gone; say whether the list changes."""
        return bool([told for of_kind in self._by_kind.values() if (told := of_kind.pop(pod, None)) is not None])

    def entries(self) -> Iterable[GroupNotice]:
        """Yield what the status may list; whether its epoch still runs, the planner knows."""
        return (entry for of_kind in self._by_kind.values() for entry in of_kind.values())


def entry_of(pod: Pod, notice: Notice, scope: str = "", number: int | None = None) -> GroupNotice:
    """Return the entry for what a Pod tells; a process without a rank of its own has its Pod's, as in logs."""
    name, node = pod.metadata.name, pod.spec.node_name or ""
    rank = f"rank-{number}" if number is not None and notice.rank.startswith("pid-") else notice.rank
    at = precise_time(notice.at_s)
    return GroupNotice(notice.kind, notice.epoch, scope, notice.value, rank, notice.step, name, node, at)
