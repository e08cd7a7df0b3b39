"""
Measure pauses of the event loop from inside: a task sleeps and records how late it woke.

The loop serves renewals, probes and restarts in turn. Anything that blocks it (one large object, a CPU limit that
throttles) delays all of them. A pause is measured without the part of the sleep that was left when it began, so it is
at most INTERVAL_S too short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from inplace.common.kube.clock import Clock

INTERVAL_S: Final = 0.1  # ten wake-ups a second; fifty took an eighth of the CPU of a restart of 5,000 Pods


class PauseMeter:
    """Measures the running loop.

    Args:
        clock: sleeps.
        observe: told of each wake-up how late it was, in seconds.
    """

    def __init__(self, clock: Clock, observe: Callable[[float], None]) -> None:
        self._clock = clock
        self._observe = observe

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            began_s = self._clock.monotonic_s()
            await self._clock.sleep(INTERVAL_S)
            self._observe(max(0.0, self._clock.monotonic_s() - began_s - INTERVAL_S))
