"""Estimate when a group will be complete: a straight line through the arrivals so far. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

WINDOW_S = 10.0  # a restart of 5,000 Pods takes about that long; older arrivals say little about the next
SEEN_MAX = 256  # looks kept; four a second for a minute


@dataclass(slots=True)
class Progress:
    """What was seen of one gathering; another epoch starts anew."""

    target: int = -1
    _seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=SEEN_MAX))

    def saw(self, now_s: float, target: int, arrived: int) -> None:
        """Take note of how many had arrived."""
        if target != self.target:
            self.target = target
            self._seen.clear()
        self._seen.append((now_s, arrived))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > WINDOW_S:
            self._seen.popleft()

    def left_s(self, expected: int) -> float | None:
        """Return the seconds until the last one arrives at this pace; None when no Pod arrived lately."""
        if len(self._seen) < 2:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        if last <= first or last_s <= first_s:
            return None
        return (expected - last) * (last_s - first_s) / (last - first)
