"""A modelled container whose main process is a guard: the machine of `common.protocol.guard`, and a worker below it."""

from __future__ import annotations

import asyncio
import signal

from inplace.agent.settings.arguments import GRACE_S
from inplace.common.protocol.guard import (
    GONE,
    RUNNING,
    WAITING,
    Event,
    GraceOver,
    GuardState,
    KillWorker,
    Leave,
    LinkEnded,
    PassOn,
    Signalled,
    StartWorker,
    StopWorker,
    TellAbsent,
    TellEnd,
    TellEnding,
    WorkerEnded,
    step,
)
from inplace.common.protocol.link import Absent, Ended, Ending, Failed, Lifted, Message, Started
from inplace.simulator.cluster.model_container import ModelContainer, ModelMachine, StayingContainer, WorkerRun
from inplace.simulator.cluster.model_worker import ChildWorker
from inplace.simulator.cluster.pod_spec import Probe
from inplace.simulator.cluster.runtime import SIGKILL_EXIT, ContainerRun


class GuardedContainer(StayingContainer):
    """The worker's container: the guard is its process 1, so the guard's end is the end of both."""

    def __init__(self, machine: ModelMachine, run: ContainerRun) -> None:
        super().__init__(machine, run)
        self._link = machine.link(self.uid)
        self._saves = machine.saves(run)
        self._state = GuardState()
        self._lifted = Lifted(0)  # that stands
        self._worker = ChildWorker(self._make_child)
        self._sweeping: asyncio.Task[None] | None = None
        self._grace: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Say whether it waits for a lift."""
        return self._state.phase == WAITING

    async def wait(self) -> int:
        """Follow the link until the guard leaves or is killed."""
        self._link.guard = self
        self._link.connect()
        try:
            return await asyncio.shield(self._ended)
        finally:
            self.end(SIGKILL_EXIT)
            self._cut()
            if self._grace is not None:
                self._grace.cancel()
            if self._sweeping is not None:
                self._sweeping.cancel()
            self._worker.kill()

    def terminate(self) -> None:
        """Take SIGTERM: the guard passes it on, after the time of a worker that saves."""
        epoch, now_s = self._state.epoch if self._state.phase == RUNNING else 0, self._machine.clock.monotonic_s()
        if self._saves is not None and self._saves.hold(signal.SIGTERM, epoch, now_s):
            asyncio.get_running_loop().call_later(self._saves.within_s, self._end_saving)
        else:
            self._take(Signalled(signal.SIGTERM))

    def signal_child(self, number: int) -> None:
        """Send the worker below the guard a signal; a model ends at once at any."""
        self._worker.strike(number)

    def hear(self, event: Event) -> None:
        """Take in an event of the link, unless the guard's process ends already: it reads no more."""
        if self._reads:
            self._take(event)

    def prepare(self, lifted: Lifted) -> None:
        """Take in what the next worker is told; a lift beside a worker says nothing."""
        if self._reads and self._state.phase == WAITING:
            self._lifted = lifted

    def complete(self) -> None:
        """End with 0, if no worker runs: the group has completed."""
        if self._reads and self._state.phase == WAITING:
            self._leave(0)

    def take_stacks(self, request: int) -> None:
        """Let the worker answer, unless the guard's process ends already."""
        if self._reads:
            self._worker.take_stacks(request)

    @property
    def _reads(self) -> bool:
        return self._link.guard is self and self._state.phase != GONE

    def _take(self, event: Event) -> None:
        """Advance the machine, and perform its actions in order."""
        self._state, actions = step(self._state, event)
        for action in actions:
            match action:
                case StartWorker(epoch):
                    if not self._ended.done():
                        self._worker.start_in(epoch or None).add_done_callback(self._worker_ended)
                    self._say(Started(epoch))
                case StopWorker():
                    self._worker.signal(signal.SIGTERM)
                    self._grace = asyncio.get_running_loop().call_later(GRACE_S, self._grace_over)
                case KillWorker():
                    self._worker.signal(signal.SIGKILL)
                case PassOn(number):
                    self._worker.signal(number)
                case TellEnding(epoch):
                    self._say(Ending(epoch))
                case TellEnd(epoch, code, failed):
                    self._say((Failed if failed else Ended)(epoch, code))
                case TellAbsent():
                    self._say(Absent(round(GRACE_S * 1000)))
                case Leave(code):
                    self._leave(code)

    def _leave(self, code: int) -> None:
        self.end(code)

    def _make_child(self, epoch: int | None) -> WorkerRun:
        return self._machine.make_child(self.run, epoch, self._lifted, leaves=self._state.stays)

    def _say(self, message: Message) -> None:
        if self._link.agent is not None:
            self._link.agent.said(self, message)

    def _cut(self) -> None:
        """End the guard's process without a word: the agent sees the end of the link."""
        if self._link.guard is self:
            self._link.guard = None
            if self._link.agent is not None:
                self._link.agent.gone(self)

    def _end_saving(self) -> None:
        """Pass the signal on that was held back, if one was."""
        if self._saves is not None and self._saves.let_go() and not self._ended.done():
            self._take(Signalled(self._saves.held))

    def _grace_over(self) -> None:
        if not self._ended.done():
            self._take(GraceOver())

    def _worker_ended(self, ended: asyncio.Future[int]) -> None:
        if ended.cancelled() or self._ended.done():
            return
        self._end_saving()
        if self._state.stays:
            self._machine.worker_dying(self.run.pod)
            sweep = self._sweep(ended.result())
            self._sweeping = asyncio.get_running_loop().create_task(sweep, context=self._machine.outside())
        else:
            self._take(WorkerEnded(ended.result()))

    async def _sweep(self, code: int) -> None:
        """End what the worker left, as a guard that stays does."""
        await self._worker.gone()
        if not self._ended.done():
            self._take(WorkerEnded(code))


class SupervisedContainer(GuardedContainer):
    """A guard with its agent below it, which is a model of its own; the end of either is the container's."""

    def __init__(self, machine: ModelMachine, run: ContainerRun, agent: ModelContainer) -> None:
        super().__init__(machine, run)
        self._agent = agent
        self._own_code: int | None = None  # the agent's
        self._is_left = False  # by the agent

    async def wait(self) -> int:
        """Follow the link until the guard leaves or is killed, and the agent with it."""
        agent = asyncio.create_task(self._agent.wait())
        agent.add_done_callback(self._agent_ended)
        try:
            return await super().wait()
        finally:
            agent.cancel()
            await asyncio.wait([agent])

    async def probe(self, probe: Probe) -> bool:
        """Return whether the agent's barrier is lifted."""
        return await self._agent.probe(probe)

    def hear(self, event: Event) -> None:
        """Take in an event of the link."""
        self._is_left = self._is_left or isinstance(event, LinkEnded)
        super().hear(event)

    def _leave(self, code: int) -> None:
        if not self._is_left:
            self.end(code)
        elif self._own_code is not None:
            self.end(self._own_code)

    def _agent_ended(self, agent: asyncio.Task[int]) -> None:
        if agent.cancelled() or self._ended.done():
            return
        if (error := agent.exception()) is not None:
            self._ended.set_exception(error)  # an agent's bug must stop the simulation
            return
        self._own_code = agent.result()
        if self._state.phase in (WAITING, GONE):
            self.end(self._own_code)
