"""A guard and its worker in one container: the real guard's machine, and a worker that only runs."""

from __future__ import annotations

import asyncio
import signal

from inplace.agent.link.linked_worker import LinkedWorker
from inplace.agent.start.arguments import GRACE_S, RunOptions
from inplace.agent.start.config import AgentConfig
from inplace.agent.supervisor_agent import SupervisorAgent
from inplace.common.protocol.guard import GraceOver, Signalled, WorkerEnded
from inplace.simulator.campaign.containers import Container, Machine, Training
from inplace.simulator.campaign.process import outside
from inplace.simulator.campaign.supervised import StayingContainer
from inplace.simulator.cluster.model_link import ModelGuard, ModelServer
from inplace.simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun


class GuardedContainer(Container):
    """The worker's container: the guard is its process 1, so the guard's end is the end of both."""

    def __init__(self, machine: Machine, run: ContainerRun) -> None:
        super().__init__(machine, run)
        self._guard = ModelGuard(machine.link(self.uid), self)
        self._training: Training | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []

    async def wait(self) -> int:
        """Follow the link until the guard leaves or is killed."""
        self._guard.begin()
        try:
            return await asyncio.shield(self._ended)
        finally:
            self.end(SIGKILL_EXIT)
            self._guard.cut()
            for timer in self._timers:
                timer.cancel()
            if self._sweeping is not None:
                self._sweeping.cancel()
            if self._training is not None:
                self._training.end(SIGKILL_EXIT)
                self._training.clear()

    def terminate(self) -> None:
        """Take SIGTERM: the guard passes it on."""
        if not self._ended.done():
            self._guard.take(Signalled(signal.SIGTERM))

    def start_worker(self, epoch: int) -> None:
        """Start the worker, unless the container was killed meanwhile."""
        if not self._ended.done():
            self._training = Training(self._machine, self.pod, epoch or None, leaves=self._guard.stays)
            self._training.ended.add_done_callback(self._worker_ended)

    def stop_worker(self) -> None:
        """Send SIGTERM, and SIGKILL after the grace."""
        self.signal_worker(signal.SIGTERM)
        self._timers.append(asyncio.get_running_loop().call_later(GRACE_S, self._grace_over))

    def signal_worker(self, number: int) -> None:
        """Send a signal; SIGTERM is obeyed after a while, unless the Pod's containers are deaf to it."""
        if self._training is None:
            return
        if number == signal.SIGKILL:
            self._training.end(SIGKILL_EXIT)
        elif self.uid not in self._machine.deaf:
            exit_s = self._machine.timings.supervised_exit.draw(self._machine.rng)
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(exit_s, self._training.end, 128 + number))

    def leave(self, code: int) -> None:
        """End the container."""
        self.end(code)

    def _grace_over(self) -> None:
        if not self._ended.done():
            self._guard.take(GraceOver())

    def _worker_ended(self, ended: asyncio.Future[int]) -> None:
        if ended.cancelled() or self._ended.done():
            return
        if self._guard.stays:
            self._machine.watcher.worker_dying(self.pod)
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep(ended.result()), context=outside())
        else:
            self._guard.take(WorkerEnded(ended.result()))

    async def _sweep(self, code: int) -> None:
        """End what the worker left, as a guard that stays does."""
        await self._machine.clock.sleep(self._machine.timings.supervised_left.draw(self._machine.rng))
        assert self._training is not None
        self._training.clear()
        if not self._ended.done():
            self._guard.take(WorkerEnded(code))


class LinkedAgentContainer(StayingContainer):
    """A sidecar of depth `process`: the agent stays, and its worker is at the other end of the link."""

    def _make(self, config: AgentConfig, run: ContainerRun) -> SupervisorAgent:  # noqa: ARG002
        deps = self._deps(config)
        worker = LinkedWorker(self._server, clock=deps.clock, log=deps.log)
        return SupervisorAgent(config, deps, worker=worker, options=RunOptions(command=("guard",)))

    def _connect(self) -> None:
        self._server = ModelServer(self._machine.link(self.uid))

    def _leave_link(self) -> None:
        self._server.leave()
