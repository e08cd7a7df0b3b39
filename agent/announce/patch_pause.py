"""For how long the server wants no PATCH of this Pod: what one was refused with (429, Retry-After) holds for all."""

from __future__ import annotations

from inplace.common.kube.clock import Clock


class PatchPause:
    """Until when this agent sends no PATCH."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = float("-inf")

    @property
    def left_s(self) -> float:
        """Return for how many seconds no PATCH is wanted; 0 for none."""
        return max(0.0, self._until_s - self._clock.monotonic_s())

    def hold_back(self, after_s: float) -> None:
        """Begin a pause of `after_s` seconds, because the server asked for it."""
        self._until_s = max(self._until_s, self._clock.monotonic_s() + after_s)
