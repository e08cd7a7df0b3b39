"""What every modelled container is: an exit code that is decided once."""

from __future__ import annotations

import asyncio
from random import Random

from inplace.common.kube.clock import Clock
from inplace.simulator.cluster.runtime import SIGKILL_EXIT
from inplace.simulator.cluster.timings import Timings

SIGTERM_EXIT = 143


class ModelContainer:
    """The base of all models."""

    def __init__(self, clock: Clock, rng: Random, timings: Timings) -> None:
        self._clock = clock
        self._rng = rng
        self._timings = timings
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(self, code: int) -> None:
        """End with this exit code unless it has ended."""
        if not self._ended.done():
            self._ended.set_result(code)

    async def stop(self, grace_s: float) -> None:
        """End as a process that obeys SIGTERM does, or at once when there is no grace."""
        exit_s = self._timings.process_exit.draw(self._rng)
        await self._clock.sleep(min(exit_s, grace_s))
        self.end(SIGTERM_EXIT if exit_s <= grace_s else SIGKILL_EXIT)

    def signal(self, number: int) -> None:
        """End by a signal."""
        self.end(128 + number)

    def signal_child(self, number: int) -> None:  # noqa: ARG002
        """Refuse: it has no worker below it."""
        raise LookupError("expected a guard or a supervisor with a worker below it, saw neither")
