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


async def measure_pauses(clock: Clock, observe: Callable[[float], None]) -> None:
    """Tell `observe` of each wake-up how late it was, in seconds, until cancelled."""
    while True:
        began_s = clock.monotonic_s()
        await clock.sleep(INTERVAL_S)
        observe(max(0.0, clock.monotonic_s() - began_s - INTERVAL_S))
