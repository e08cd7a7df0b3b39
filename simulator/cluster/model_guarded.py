"""A modelled container whose main process is a guard: the real machine, and a worker below it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from inplace.agent.start.arguments import GRACE_S
from inplace.common.protocol.guard import GraceOver, Signalled, WorkerEnded
from inplace.simulator.cluster.model_container import ModelContainer
from inplace.simulator.cluster.model_link import ModelGuard, PodLink
from inplace.simulator.cluster.model_worker import WorkerRun
from inplace.simulator.cluster.pod_spec import Probe
from inplace.simulator.cluster.runtime import SIGKILL_EXIT


class ModelGuardedWorker(ModelContainer):
    """Its worker runs once, or once in each epoch."""

    def __init__(
        self, link: PodLink, make_run: Callable[[], WorkerRun], on_start: Callable[[], None], *args: Any
    ) -> None:
        super().__init__(*args)
        self._guard = ModelGuard(link, self)
        self._make_run = make_run
        self._on_start = on_start
        self._run: WorkerRun | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._grace: asyncio.TimerHandle | None = None

    async def wait(self) -> int:
        """Follow the link until the guard leaves or is killed."""
        self._guard.begin()
        try:
            return await self._ended
        finally:
            self._guard.cut()
            if self._grace is not None:
                self._grace.cancel()
            if self._sweeping is not None:
                self._sweeping.cancel()
            if self._run is not None:
                self._run.end(SIGKILL_EXIT)

    async def probe(self, probe: Probe) -> bool:  # noqa: ARG002
        """Answer with success."""
        return True

    async def stop(self, grace_s: float) -> None:
        """Let the guard pass SIGTERM on; kill it after the grace."""
        if not self._ended.done():
            self._guard.take(Signalled(signal.SIGTERM))
            await asyncio.wait([self._ended], timeout=grace_s)
            self.end(SIGKILL_EXIT)

    def signal_child(self, number: int) -> None:
        """Send the worker below the guard a signal; a model ends at once at any."""
        if self._run is None or self._run.ended.done():
            raise LookupError("expected a worker below the guard, saw none")
        self._run.end(128 + number)

    def start_worker(self, epoch: int) -> None:  # noqa: ARG002
        """Begin a run, unless the container was killed meanwhile."""
        if not self._ended.done():
            self._run = self._make_run()
            self._run.ended.add_done_callback(self._take_worker_end)
            self._on_start()

    def stop_worker(self) -> None:
        """Send SIGTERM, and SIGKILL after the grace."""
        self.signal_worker(signal.SIGTERM)
        self._grace = asyncio.get_running_loop().call_later(GRACE_S, self._take_grace_over)

    def signal_worker(self, number: int) -> None:
        """Send the worker a signal."""
        if self._run is not None:
            self._run.signal(number)

    def leave(self, code: int) -> None:
        """End the guard's process, and with it the container."""
        self.end(code)

    def _take_grace_over(self) -> None:
        if not self._ended.done():
            self._guard.take(GraceOver())

    def _take_worker_end(self, ended: asyncio.Future[int]) -> None:
        if not self._ended.done():
            if self._guard.stays:
                self._sweeping = asyncio.ensure_future(self._sweep(ended.result()))
            else:
                self._guard.take(WorkerEnded(ended.result()))

    async def _sweep(self, code: int) -> None:
        """End what the worker left, as a guard that stays does."""
        assert self._run is not None
        await self._run.clear()
        if not self._ended.done():
            self._guard.take(WorkerEnded(code))
