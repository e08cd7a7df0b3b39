"""The Pods of one scope of which it is asked whether they leave their node, and those that do, until the next sync."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from inplace.common.jobset.marked_nodes import MarkedPod

ASK_AGAIN_S: Final = 30.0  # of a Pod for which a barrier waits; a node may be marked meanwhile
HOLD_S_MAX: Final = 1.0  # for which the next epoch waits for an answer; most often it is there before the Pods are


@dataclass(slots=True)
class MarkedPods:
    """What was asked and answered since the last sync; at most one entry for each Pod."""

    _asked_s: dict[str, float] = field(default_factory=dict)  # by UID
    _open_s: dict[str, float] = field(default_factory=dict)  # by UID: when a question that is not answered was asked
    _leaving: dict[str, MarkedPod] = field(default_factory=dict)  # by UID, the first answered first

    def ask(self, uid: str, now_s: float) -> bool:
        """Note that somebody wants to ask about a Pod; say False if it was asked a moment ago."""
        asked_s = self._asked_s.get(uid)
        if asked_s is not None and now_s - asked_s < ASK_AGAIN_S:
            return False
        self._asked_s[uid] = self._open_s[uid] = now_s
        return True

    def answer(self, uid: str, marked: MarkedPod | None) -> None:
        """Take in the answer about a Pod: that it is to leave, or nothing."""
        self._open_s.pop(uid, None)
        if marked is not None:
            self._leaving[uid] = marked

    def forget(self, uid: str) -> bool:
        """Drop a Pod that is gone; say whether it makes room for another that is to leave."""
        self._asked_s.pop(uid, None)
        self._open_s.pop(uid, None)
        return self._leaving.pop(uid, None) is not None and bool(self._leaving)

    def open_s(self, now_s: float) -> float:
        """Return for how many seconds the next epoch still waits for an answer."""
        return max((asked_s + HOLD_S_MAX - now_s for asked_s in self._open_s.values()), default=0.0)

    @property
    def leaving(self) -> tuple[MarkedPod, ...]:
        """Return the Pods that are to leave."""
        return tuple(self._leaving.values())
