"""What a group with spares waits for, by this process's clock, and which groups it saw from their first Pod on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from inplace.common.kube.errors import ApiError
from inplace.common.kube.http.request import TransportError
from inplace.common.protocol.member_ledger import MemberLedger

MOVE_S: Final = 1.0  # nodes that are drained together are cordoned within it, and cost one restart


@dataclass(slots=True)
class SpareClock:
    """The waits of one scope, by this process's clock; the next leader begins anew.

    Args:
        short_since_s: since when fewer Pods can come than the group would have at most; None while enough can.
        grows_since_s: since when spares would make the running group larger; None while none would.
        moves_since_s: since when spares could take the ranks of members that should leave; None while none could.
        waited: long enough for more Pods: the barrier may lift for fewer.
        may_grow: the running group may restart to become larger.
        may_move: the running group may restart so that members leave their nodes.
        grows_to: so many members it could become; one that gets no larger by a restart waits twice as long.
        growth_wait_s: before the next growth, beyond what its policy says.
    """

    short_since_s: float | None = None
    grows_since_s: float | None = None
    moves_since_s: float | None = None
    waited: bool = False
    may_grow: bool = False
    may_move: bool = False
    grows_to: int = 0
    growth_wait_s: float = 0.0

    def note(self, ledger: MemberLedger, moves: bool, wait_s: Callable[[], float], now_s: float) -> bool:
        """Take in where a ledger stands; say whether a wait has begun, or is over."""
        since = (self.short_since_s, self.grows_since_s, self.moves_since_s)
        if since == (None, None, None) and not (ledger.is_short or ledger.grown > 0 or moves):
            return False  # as at each of a herd's announcements
        before = self._state()
        self.short_since_s = _since(self.short_since_s, now_s, holds=ledger.is_short)
        self.grows_since_s = _since(self.grows_since_s, now_s, holds=ledger.grown > 0)
        self.moves_since_s = _since(self.moves_since_s, now_s, holds=moves)
        ends = (end_s is not None and now_s >= end_s for end_s in self._ends(wait_s()))
        self.waited, self.may_grow, self.may_move = ends
        if self.may_grow:
            self.grows_to = ledger.grown
        return before != self._state()

    def note_members(self, size: int, wait_s: float) -> None:
        """Note how many members the next epoch got."""
        if self.grows_to:
            self.growth_wait_s = 0.0 if size >= self.grows_to else max(2.0 * self.growth_wait_s, wait_s)
        self.grows_to = 0

    def next_in_s(self, wait_s: float, now_s: float) -> float | None:
        """Return when one of the waits is over; None while nothing waits."""
        return min((end_s - now_s for end_s in self._ends(wait_s) if end_s is not None and end_s > now_s), default=None)

    def _ends(self, wait_s: float) -> tuple[float | None, float | None, float | None]:
        """Return when the waits end."""
        since_s = (self.short_since_s, self.grows_since_s, self.moves_since_s)
        short_s, grows_s, moves_s = since_s
        return (
            None if short_s is None else short_s + wait_s,
            None if grows_s is None else grows_s + wait_s + self.growth_wait_s,
            None if moves_s is None else moves_s + MOVE_S,
        )

    def _state(self) -> tuple[object, ...]:
        since = (self.short_since_s, self.grows_since_s, self.moves_since_s)
        return *since, self.waited, self.may_grow, self.may_move


def _since(since_s: float | None, now_s: float, *, holds: bool) -> float | None:
    if not holds:
        return None
    return now_s if since_s is None else since_s


@dataclass(slots=True)
class FirstSight:
    """What this process may have missed of Pods: a group may have had some before its list.

    It has missed nothing of a JobSet whose scopes it wrote itself: nobody makes Jobs, and so Pods, before that.

    Args:
        listed: the version of the newest list of Pods; 0 before the first.
        divided: by UID, the JobSets whose scopes it has written, or is about to write, since that list.
    """

    listed: int = 0
    divided: set[str] = field(default_factory=set)

    def note_list(self, version: int) -> None:
        """Take in that a list was read: what happened to Pods before it may have been missed."""
        self.listed = version
        self.divided.clear()

    @contextmanager
    def dividing(self, uid: str, relisted: Callable[[int], None]) -> Iterator[None]:
        """Note a write of a JobSet's scopes BEFORE it, as a watch may be faster; take it back where it fails.

        If only the answer was lost, the group pays for that with one skipped epoch.
        """
        self.divided.add(uid)
        try:
            yield
        except (ApiError, TransportError):
            self.divided.discard(uid)
            relisted(self.listed)
            raise

    def since(self, uid: str) -> int:
        """Return the version from which on all of a JobSet's Pods were seen; 0: from the first one."""
        return 0 if uid in self.divided else self.listed
