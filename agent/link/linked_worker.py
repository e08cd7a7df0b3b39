"""
The worker of a sidecar: guards in other containers start and end it, as this Pod's agent says.

`common.protocol.linked_worker` decides; this module carries the link's lines, and is the agent's `Worker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from inplace.agent.link.server import GuardServer
from inplace.agent.link.side_jobs import SideJobs
from inplace.agent.report.log import Log
from inplace.agent.settings.command import EPOCH
from inplace.agent.worker.worker import STUCK_S, Worker, WorkerLostError, WorkerStuckError
from inplace.common.kube.clock import Clock
from inplace.common.protocol.link import Leaving, Message
from inplace.common.protocol.linked_worker import (
    Event,
    Exited,
    Gone,
    Greeted,
    Heard,
    Lift,
    LinkedWorkerState,
    Lost,
    PeerLeft,
    SignalWorkers,
    Tell,
    step,
)
from inplace.common.protocol.stall import Stalled

GONE_S_MAX: Final = STUCK_S + 5.0  # a guard gives up after STUCK_S, unless it is stopped itself


class LinkedWorker(Worker):
    """The workers of this Pod's guards as one.

    Args:
        stays: the guards outlive their workers: depth `process`.
        checks: how many guards run a check before each announcement.
        guards: how many come if their workers' images let them in; kubelet starts those workers after the lift.
    """

    def __init__(
        self, server: GuardServer, *, stays: bool, clock: Clock, log: Log, checks: int = 0, guards: int = 0
    ) -> None:
        self._server = server
        self._side_jobs = SideJobs(server, checks=checks, clock=clock, log=log)
        self._clock = clock
        self._machine = LinkedWorkerState(stays=stays, awaited=guards)
        self._exit: asyncio.Future[int | None]  # None: the worker is lost
        self._gone: asyncio.Future[bool]  # False: the worker is lost

    async def prepare(self) -> None:
        """Listen to guards."""
        await self._server.start(self)

    async def until_fit(self, epoch: int) -> None:  # noqa: ARG002 - guards check before they know it
        """Wait for the guards' checks."""
        await self._side_jobs.until_fit()

    def start(self, env: Mapping[str, str]) -> None:
        """Let every guard start its worker, also those that connect later; they set the environment."""
        loop = asyncio.get_running_loop()
        self._exit, self._gone = loop.create_future(), loop.create_future()
        self._take(Lift(int(env[EPOCH] or 0)))

    async def exited(self) -> int:
        """Return the exit code of the first worker that failed, or of all."""
        code = await asyncio.shield(self._exit)
        if code is None:
            raise WorkerLostError
        return code

    async def gone(self) -> None:
        """Return when every guard has said that nothing of its worker is left."""
        try:
            async with self._clock.timeout(GONE_S_MAX):
                is_gone = await asyncio.shield(self._gone)
        except TimeoutError:
            raise WorkerStuckError(f"a guard has said nothing for {GONE_S_MAX:g} s after its worker's end") from None
        if not is_gone:
            raise WorkerLostError

    def signal(self, number: int) -> None:
        """Let the workers end by this signal."""
        self._take(SignalWorkers(number))

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:
        """Let the guards look at their workers."""
        return await self._side_jobs.examine(stalled, pid)

    def take_stacks(self, request: int) -> None:
        """Let the guards look at their workers."""
        self._side_jobs.take_stacks(request)

    def runs(self) -> bool:
        """Say whether some guard's worker runs."""
        return self._machine.runs()

    def completed(self) -> bool:
        """Say whether some guard's worker completed."""
        return self._machine.completed

    def grace_s(self) -> float | None:
        """Return the longest grace of the guards' command lines."""
        return self._machine.grace_s()

    async def close(self) -> None:
        """Let the guards end their workers, and themselves: this process ends."""
        self._server.tell_all(Leaving())
        await self._server.stop()

    def greeted(self, peer: int) -> None:
        """Take in a connection."""
        self._take(Greeted(peer))

    def heard(self, peer: int, message: Message) -> None:
        """Take in one message."""
        if not self._side_jobs.heard(peer, message):
            self._take(Heard(peer, message))

    def left(self, peer: int) -> None:
        """Take in the end of a connection."""
        self._side_jobs.left(peer)
        self._take(PeerLeft(peer))

    def _take(self, event: Event) -> None:
        """Advance the machine, and perform its actions in order."""
        self._machine, actions = step(self._machine, event)
        for action in actions:
            match action:
                case Tell(peer, message):
                    self._server.tell(peer, message)
                case Exited(code):
                    self._exit.set_result(code)
                case Gone():
                    self._gone.set_result(True)
                case Lost():
                    if not self._exit.done():
                        self._exit.set_result(None)
                    self._gone.set_result(False)
