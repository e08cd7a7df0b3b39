"""
The link between an agent and its guard without a socket, and the guard without a process.

The agent is the real one; the guard is the real machine (`common.epoch.guard`). What is modelled is what the kernel
does: the end of either process is the end of the link, and the worker's container ends with its guard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Protocol

from inplace.agent.link import OnFailure
from inplace.common.epoch.guard import (
    RUNNING,
    WAITING,
    BarrierLifted,
    Event,
    GuardState,
    KillWorker,
    Leave,
    LinkEnded,
    PassOn,
    StartWorker,
    StopWorker,
    TellEnd,
    TellEnding,
    step,
)

AGENT_COMMAND = "inplace-agent"


def is_guarded(command: Sequence[str]) -> bool:
    """Say whether a container's command is a guard with its worker, started from the image or from a file."""
    return any(
        word == "guard" and PurePosixPath(program).name.startswith(AGENT_COMMAND) for program, word in pairwise(command)
    )


class GuardedWorker(Protocol):
    """The worker of a guard, and the guard's process."""

    def start_worker(self, epoch: int) -> None:
        """Start the worker; its end is the guard's event WorkerEnded."""

    def stop_worker(self) -> None:
        """Let the worker end, and report GraceOver after its grace."""

    def signal_worker(self, number: int) -> None:
        """Send the worker a signal."""

    def leave(self, code: int) -> None:
        """End the guard's process."""


class PodLink:
    """The socket in one Pod's folder: it connects the agent that listens with the guard that is there."""

    def __init__(self) -> None:
        self.agent: ModelLink | None = None
        self.guard: ModelGuard | None = None

    def connect(self) -> None:
        """Let a guard that waits hear of a lift."""
        if self.agent is not None and self.guard is not None and self.agent.lifted is not None:
            self.guard.hear(BarrierLifted(self.agent.lifted))


class ModelLink:
    """An agent's end."""

    def __init__(self, link: PodLink) -> None:
        self._link = link
        self._deaths: asyncio.Queue[tuple[int, int | None]] = asyncio.Queue()
        self._listening: asyncio.Task[None] | None = None
        self.lifted: int | None = None

    async def start(self, on_failure: OnFailure) -> None:
        """Listen, in a task of the agent's own process."""
        self._listening = asyncio.create_task(self._listen(on_failure), name="link")
        self._link.agent = self
        self._link.connect()

    def lift(self, epoch: int | None) -> None:
        """Let the guard start its worker."""
        self.lifted = epoch or 0
        self._link.connect()

    def runs(self) -> bool:
        """Say whether the guard's worker runs, and neither it nor its Pod has begun to end."""
        return self._link.guard is not None and self._link.guard.runs

    def leave(self) -> None:
        """End the connection: the agent leaves, or was killed."""
        if self._link.agent is self:
            self._link.agent = None
            if self._link.guard is not None:
                self._link.guard.hear(LinkEnded())

    async def stop(self) -> None:
        """End the connection."""
        self.leave()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])

    def worker_failed(self, epoch: int, code: int | None) -> None:
        """Hear of a death."""
        self._deaths.put_nowait((epoch, code))

    async def _listen(self, on_failure: OnFailure) -> None:
        while True:
            on_failure(*await self._deaths.get())


class ModelGuard:
    """A guard's machine between the link and a worker."""

    def __init__(self, link: PodLink, worker: GuardedWorker) -> None:
        self._link = link
        self._worker = worker
        self._state = GuardState()
        self._told = False

    @property
    def runs(self) -> bool:
        """Say whether the worker runs, and does not end."""
        return self._state.phase == RUNNING

    def begin(self) -> None:
        """Be there."""
        self._link.guard = self
        self._link.connect()

    def hear(self, event: Event) -> None:
        """Take in an event of the link, unless there is nothing left to end."""
        if self._link.guard is self and not (isinstance(event, LinkEnded) and self._state.phase == WAITING):
            self.take(event)

    def take(self, event: Event) -> None:
        """Advance the machine, and perform its actions in order."""
        self._state, actions = step(self._state, event)
        for action in actions:
            match action:
                case StartWorker(epoch):
                    self._worker.start_worker(epoch)
                case StopWorker():
                    self._worker.stop_worker()
                case KillWorker():
                    self._worker.signal_worker(9)
                case PassOn(number):
                    self._worker.signal_worker(number)
                case TellEnding():
                    self._told = True
                case TellEnd(epoch, code, failed):
                    self._tell(epoch, code, failed=failed)
                case Leave(code):
                    self._worker.leave(code)

    def cut(self) -> None:
        """End the guard's process without a word: the agent sees the end of the link."""
        if self._link.guard is self:
            self._link.guard = None
            if not self._told and self._state.phase != WAITING:
                self._tell(self._state.epoch, None, failed=True)

    def _tell(self, epoch: int, code: int | None, *, failed: bool) -> None:
        self._told = True
        if failed and self._link.agent is not None:
            self._link.agent.worker_failed(epoch, code)
