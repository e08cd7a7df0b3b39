"""A modelled container whose main process is a guard: the real machine, and a worker below it."""

from __future__ import annotations

import asyncio
import signal

from inplace.agent.start.arguments import GRACE_S
from inplace.common.protocol.guard import GraceOver, Signalled, WorkerEnded
from inplace.simulator.cluster.model_container import ModelMachine, StayingContainer
from inplace.simulator.cluster.model_link import ModelGuard
from inplace.simulator.cluster.model_worker import ChildWorker
from inplace.simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun


class GuardedContainer(StayingContainer):
    """The worker's container: the guard is its process 1, so the guard's end is the end of both."""

    def __init__(self, machine: ModelMachine, run: ContainerRun) -> None:
        super().__init__(machine, run)
        self._guard = ModelGuard(machine.link(self.uid), self)
        self._worker = ChildWorker(lambda epoch: machine.make_child(run, epoch, leaves=self._guard.stays))
        self._sweeping: asyncio.Task[None] | None = None
        self._grace: asyncio.TimerHandle | None = None

    async def wait(self) -> int:
        """Follow the link until the guard leaves or is killed."""
        self._guard.begin()
        try:
            return await asyncio.shield(self._ended)
        finally:
            self.end(SIGKILL_EXIT)
            self._guard.cut()
            if self._grace is not None:
                self._grace.cancel()
            if self._sweeping is not None:
                self._sweeping.cancel()
            self._worker.kill()

    def terminate(self) -> None:
        """Take SIGTERM: the guard passes it on."""
        self._guard.take(Signalled(signal.SIGTERM))

    def signal_child(self, number: int) -> None:
        """Send the worker below the guard a signal; a model ends at once at any."""
        self._worker.strike(number)

    def start_worker(self, epoch: int) -> None:
        """Start the worker, unless the container was killed meanwhile."""
        if not self._ended.done():
            self._worker.start_in(epoch or None).add_done_callback(self._worker_ended)

    def stop_worker(self) -> None:
        """Send SIGTERM, and SIGKILL after the grace."""
        self.signal_worker(signal.SIGTERM)
        self._grace = asyncio.get_running_loop().call_later(GRACE_S, self._grace_over)

    def signal_worker(self, number: int) -> None:
        """Send the worker a signal."""
        self._worker.signal(number)

    def take_stacks(self, request: int) -> None:
        """Let the worker answer, if one runs."""
        self._worker.take_stacks(request)

    def leave(self, code: int) -> None:
        """End the guard's process, and with it the container."""
        self.end(code)

    def _grace_over(self) -> None:
        if not self._ended.done():
            self._guard.take(GraceOver())

    def _worker_ended(self, ended: asyncio.Future[int]) -> None:
        if ended.cancelled() or self._ended.done():
            return
        if self._guard.stays:
            self._machine.worker_dying(self.run.pod)
            sweep = self._sweep(ended.result())
            self._sweeping = asyncio.get_running_loop().create_task(sweep, context=self._machine.outside())
        else:
            self._guard.take(WorkerEnded(ended.result()))

    async def _sweep(self, code: int) -> None:
        """End what the worker left, as a guard that stays does."""
        await self._worker.gone()
        if not self._ended.done():
            self._guard.take(WorkerEnded(code))
