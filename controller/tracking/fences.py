"""
Wait for the end of workers whose Pods are being deleted, where nobody can say that they have ended (docs/adr/0072).

The controller's side of `common.protocol.lease`, for one scope: since when it has known that every epoch so far is
over, and what the agents of such Pods promised. Both are of this process alone: the next leader counts anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inplace.common.protocol.lease import fenced_in_s


@dataclass(slots=True)
class Fences:
    """The Pods of one scope that leave with a promise.

    Args:
        shows_over: the stored status says that every epoch so far is over, and is not behind what the ledger knows.
        over_since_s: since when it does; None while it does not.
        promises: within how many seconds the worker of each Pod ends then, by UID.
    """

    shows_over: bool = False
    over_since_s: float | None = None
    promises: dict[str, int] = field(default_factory=dict)

    def note_status(self, *, shows_over: bool) -> None:
        """Take in what a status says; one that was lost, or that lets an epoch run, ends the count."""
        self.shows_over = shows_over
        if not shows_over:
            self.over_since_s = None

    def note_pod(self, uid: str, promised_s: int | None) -> bool:
        """Take in a Pod's promise, None for none; say whether it is a new one."""
        if promised_s == self.promises.get(uid):
            return False
        if promised_s is None:
            del self.promises[uid]
            return False
        self.promises[uid] = promised_s
        return True

    def forget(self, uid: str) -> None:
        """Drop a Pod that is gone."""
        self.promises.pop(uid, None)

    def kept(self, now_s: float) -> tuple[str, ...]:
        """Return the Pods whose workers have ended by now."""
        if self.over_since_s is None and self.shows_over:
            self.over_since_s = now_s
        if self.over_since_s is None or not self.promises:
            return ()
        since_s = self.over_since_s
        return tuple(uid for uid, promised in self.promises.items() if fenced_in_s(since_s, promised, now_s) <= 0.0)

    def next_in_s(self, now_s: float) -> float | None:
        """Return when the next promise is kept; None when none is waited for."""
        if self.over_since_s is None:
            return None
        waits_s = [fenced_in_s(self.over_since_s, promised, now_s) for promised in self.promises.values()]
        return min((wait_s for wait_s in waits_s if wait_s > 0.0), default=None)
