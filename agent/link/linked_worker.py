"""
The worker as an agent has it: its guards start and end it, as this Pod's agent says.

`common.protocol.linked_worker` decides; this module carries the link's lines.
"""

from __future__ import annotations

import asyncio
from typing import Final

from inplace.agent.link.server import GuardServer
from inplace.agent.link.side_jobs import SideJobs
from inplace.agent.report.log import Log
from inplace.agent.worker.process_tree import STUCK_S
from inplace.common.kube.clock import Clock
from inplace.common.protocol.link import Completed, Leaving, Lifted, Message
from inplace.common.protocol.linked_worker import (
    Event,
    Exited,
    Gone,
    Greeted,
    Heard,
    LinkedWorkerState,
    Lost,
    PeerLeft,
    SignalWorkers,
    Tell,
    step,
)
from inplace.common.protocol.stall import Silence

GONE_S_MAX: Final = STUCK_S + 5.0  # a guard gives up after STUCK_S, unless it is stopped itself


class WorkerStuckError(Exception):
    """Processes of the worker survive SIGKILL."""


class WorkerLostError(Exception):
    """The worker's container is gone, so that only kubelet can start it again."""


class LinkedWorker:
    """The workers of this Pod's guards as one, run after run.

    Args:
        stays: the guards outlive their workers: depth `process`.
        checks: how many guards run a check before each announcement.
        guards: how many come if their workers' images let them in; kubelet starts those workers after the lift.
        final_codes: exit codes that end the Pod, as far as the agent knows them.
    """

    def __init__(
        self,
        server: GuardServer,
        *,
        stays: bool,
        clock: Clock,
        log: Log,
        checks: int = 0,
        guards: int = 0,
        final_codes: frozenset[int] = frozenset(),
    ) -> None:
        self.final_codes = final_codes
        self._server = server
        self._side_jobs = SideJobs(server, checks=checks, clock=clock, log=log)
        self._clock = clock
        self._machine = LinkedWorkerState(stays=stays, awaited=guards)
        self._is_completed = False  # the group: no worker starts any more
        self._exit: asyncio.Future[int | None]  # None: the worker is lost
        self._gone: asyncio.Future[bool]  # False: the worker is lost

    async def prepare(self) -> None:
        """Listen to guards; called once, BEFORE the first start."""
        await self._server.start(self)

    async def until_fit(self) -> None:
        """Wait for the guards' checks: then this Pod may announce an epoch."""
        await self._side_jobs.until_fit()

    def start(self, lifted: Lifted) -> None:
        """Let every guard start its worker, also those that connect later."""
        loop = asyncio.get_running_loop()
        self._exit, self._gone = loop.create_future(), loop.create_future()
        self._take(lifted)

    async def exited(self) -> int:
        """Return the exit code of the first worker that failed, or of all, 128 + n after signal n.

        Raises:
            WorkerLostError: its container is gone.
        """
        code = await asyncio.shield(self._exit)
        if code is None:
            raise WorkerLostError
        return code

    async def gone(self) -> None:
        """Return when every guard has said that nothing of its worker is left.

        Raises:
            WorkerStuckError: one said nothing for GONE_S_MAX seconds.
            WorkerLostError: a container is gone.
        """
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

    async def examine(self, silent: Silence, pid: int | None) -> str | None:
        """Let the guards run their commands of --on-stall, for a bounded time.

        Args:
            silent: the rank that was found.
            pid: of the silent rank as its file says; None if it says none.

        Returns:
            What went wrong, "" when nothing did; None: there is no command.
        """
        return await self._side_jobs.examine(silent, pid)

    def take_stacks(self, request: int) -> None:
        """Let where the workers' ranks are be written to their logs, at most each `common.wire.stacks.ANSWER_S_MIN`.

        Args:
            request: its id, or SILENCE.
        """
        self._side_jobs.take_stacks(request)

    def runs(self) -> bool:
        """Say whether some guard's worker runs, and its silence means something: its Pod does not end."""
        return self._machine.runs()

    def completed(self) -> bool:
        """Say whether some guard's worker completed."""
        return self._machine.completed

    def grace_s(self) -> float:
        """Return the longest grace of the guards' command lines."""
        return self._machine.grace_s()

    def complete(self) -> None:
        """Let guards without a worker end with 0, also those that connect later."""
        self._is_completed = True
        self._server.tell_all(Completed())

    async def close(self) -> None:
        """Let the guards end their workers, and themselves: this process ends."""
        self._server.tell_all(Leaving())
        await self._server.stop()

    def greeted(self, peer: int) -> None:
        """Take in a connection."""
        if self._is_completed:
            self._server.tell(peer, Completed())
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
