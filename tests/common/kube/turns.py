"""Count the turns of the event loop, to show that other tasks run between two pieces of work."""

from __future__ import annotations

import asyncio

TURNS_MAX = 1_000  # the bound ends the counting, so that virtual time can go on


class Turns:
    """The turns of the running loop since `count`."""

    def __init__(self) -> None:
        self.number = 0

    def count(self) -> None:
        """Count from the next turn on."""
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.number += 1
        if self.number < TURNS_MAX:
            self.count()
