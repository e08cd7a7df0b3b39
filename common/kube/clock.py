"""
The only place that reads a clock or sleeps.

Under the simulator's virtual-time loop the same class runs unchanged, because it asks the running loop for the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol


class Clock(Protocol):
    """Monotonic seconds, wall seconds, and the right to sleep."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back; only differences mean something."""

    def wall_s(self) -> float:
        """Return seconds since the Unix epoch; may jump."""

    async def sleep(self, delay_s: float) -> None:
        """Sleep for `delay_s` seconds; cancellation propagates."""

    def timeout(self, delay_s: float | None) -> asyncio.Timeout:
        """Return an async context manager that raises TimeoutError after `delay_s` seconds; None never does."""


class LoopClock:
    """The running event loop's clock.

    Args:
        wall_offset_s: None reads the machine's wall clock; a number makes wall time `loop time + offset`, so that a
            virtual-time run has one reproducible date.
    """

    def __init__(self, wall_offset_s: float | None = None) -> None:
        self._wall_offset_s = wall_offset_s

    def monotonic_s(self) -> float:
        """Return the loop's time in seconds."""
        return asyncio.get_running_loop().time()

    def wall_s(self) -> float:
        """Return seconds since the Unix epoch."""
        return time.time() if self._wall_offset_s is None else self.monotonic_s() + self._wall_offset_s

    def sleep(self, delay_s: float) -> Coroutine[Any, Any, None]:
        """Sleep for `delay_s` seconds."""
        return asyncio.sleep(delay_s)  # not awaited here: each wake-up would pass through one coroutine more

    def timeout(self, delay_s: float | None) -> asyncio.Timeout:
        """Return `asyncio.timeout(delay_s)`."""
        return asyncio.timeout(delay_s)
