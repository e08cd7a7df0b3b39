"""
The link between an agent and its guard without a socket, and the guard without a process.

The agent is the real one; the guard is the real machine (`common.protocol.guard`). What is modelled is what the kernel
does: the end of either process is the end of the link, and the worker's container ends with its guard.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from inplace.agent.link.server import Listener
from inplace.agent.start.arguments import GRACE_S
from inplace.common.protocol.guard import (
    GONE,
    WAITING,
    AgentSignal,
    BarrierLifted,
    Event,
    GuardState,
    KillWorker,
    Leave,
    LinkEnded,
    PassOn,
    StartWorker,
    StayOn,
    StopWorker,
    TellAbsent,
    TellEnd,
    TellEnding,
    step,
)
from inplace.common.protocol.link import (
    Absent,
    Ended,
    Ending,
    Examine,
    Failed,
    Leaving,
    Lifted,
    Message,
    Signal,
    Started,
    TakesStacks,
    TakeStacks,
)
from inplace.common.wire.names import DEPTH_PROCESS


class GuardedWorker(Protocol):
    """The worker of a guard, and the guard's process."""

    def start_worker(self, epoch: int) -> None:
        """Start the worker; its end is the guard's event WorkerEnded."""

    def stop_worker(self) -> None:
        """Let the worker end, and report GraceOver after its grace."""

    def signal_worker(self, number: int) -> None:
        """Send the worker a signal."""

    def take_stacks(self, request: int) -> None:
        """Let the worker answer a request for stacks, if one runs."""

    def leave(self, code: int) -> None:
        """End the guard's process."""


class PodLink:
    """The socket in one Pod's folder: it connects the agent that listens with the guard that is there."""

    def __init__(self) -> None:
        self.agent: ModelServer | None = None
        self.guard: ModelGuard | None = None

    def connect(self) -> None:
        """Let a guard that waits meet its agent; with a worker it looks for no other."""
        if self.agent is not None and self.guard is not None and self.guard.waits:
            self.agent.meet(self.guard)


class ModelServer:
    """An agent's end; implements `agent.link.server.GuardServer`.

    Args:
        depth: of a restart, `containers` or `process`, which each guard is told.
    """

    def __init__(self, link: PodLink, depth: str) -> None:
        self._link = link
        self._depth = depth
        self._heard: asyncio.Queue[tuple[int, Message | None]] = asyncio.Queue()  # None: the guard left
        self._listener: Listener
        self._listening: asyncio.Task[None] | None = None
        self._met: ModelGuard | None = None
        self._number = 0  # of the connection

    async def start(self, listener: Listener) -> None:
        """Listen, in a task of the agent's own process."""
        self._listener = listener
        self._listening = asyncio.create_task(self._listen(), name="link")
        self._link.agent = self
        self._link.connect()

    def meet(self, guard: ModelGuard) -> None:
        """Greet a guard."""
        if self._met is not guard:
            self._met = guard
            self._number += 1
            if self._depth == DEPTH_PROCESS:
                guard.hear(StayOn())
            self._listener.greeted(self._number)

    def tell(self, peer: int, message: Message) -> None:
        """Say something to the guard, if that connection is still there."""
        guard = self._met
        if guard is None or peer != self._number or self._link.agent is not self:
            return
        match message:
            case Lifted(epoch):
                guard.hear(BarrierLifted(epoch))
            case Signal(number):
                guard.hear(AgentSignal(number))
            case Examine(0, 0):
                self._listener.heard(peer, TakesStacks())
            case TakeStacks(request):
                guard.take_stacks(request)
            case Leaving():
                self._met = None
                guard.hear(LinkEnded())

    def tell_all(self, message: Message) -> None:
        """Say something to the guard."""
        self.tell(self._number, message)

    def said(self, guard: ModelGuard, message: Message) -> None:
        """Hear what the guard says, if it is at the other end."""
        if self._met is guard:
            self._heard.put_nowait((self._number, message))

    def gone(self, guard: ModelGuard) -> None:
        """Hear that the guard's process is gone."""
        if self._met is guard:
            self._met = None
            self._heard.put_nowait((self._number, None))

    def leave(self) -> None:
        """End the connection: the agent leaves, or was killed."""
        if self._link.agent is self:
            self.tell_all(Leaving())
            self._link.agent = None

    async def stop(self) -> None:
        """End the connection."""
        self.leave()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])

    async def _listen(self) -> None:
        while True:
            peer, message = await self._heard.get()
            if message is None:
                self._listener.left(peer)
            else:
                self._listener.heard(peer, message)


class ModelGuard:
    """A guard's machine between the link and a worker."""

    def __init__(self, link: PodLink, worker: GuardedWorker) -> None:
        self._link = link
        self._worker = worker
        self._state = GuardState()

    @property
    def waits(self) -> bool:
        """Say whether it waits for a lift."""
        return self._state.phase == WAITING

    @property
    def stays(self) -> bool:
        """Say whether it outlives its worker."""
        return self._state.stays

    def begin(self) -> None:
        """Be there."""
        self._link.guard = self
        self._link.connect()

    def hear(self, event: Event) -> None:
        """Take in an event of the link, unless this guard's process ends already: it reads no more."""
        if self._link.guard is self and self._state.phase != GONE:
            self.take(event)

    def take(self, event: Event) -> None:
        """Advance the machine, and perform its actions in order."""
        self._state, actions = step(self._state, event)
        for action in actions:
            match action:
                case StartWorker(epoch):
                    self._worker.start_worker(epoch)
                    self._say(Started(epoch))
                case StopWorker():
                    self._worker.stop_worker()
                case KillWorker():
                    self._worker.signal_worker(9)
                case PassOn(number):
                    self._worker.signal_worker(number)
                case TellEnding(epoch):
                    self._say(Ending(epoch))
                case TellEnd(epoch, code, failed):
                    self._say((Failed if failed else Ended)(epoch, code))
                case TellAbsent():
                    self._say(Absent(round(GRACE_S * 1000)))
                case Leave(code):
                    self._worker.leave(code)

    def take_stacks(self, request: int) -> None:
        """Let the worker answer, unless this guard's process ends already."""
        if self._link.guard is self and self._state.phase != GONE:
            self._worker.take_stacks(request)

    def cut(self) -> None:
        """End the guard's process without a word: the agent sees the end of the link."""
        if self._link.guard is self:
            self._link.guard = None
            if self._link.agent is not None:
                self._link.agent.gone(self)

    def _say(self, message: Message) -> None:
        if self._link.agent is not None:
            self._link.agent.said(self, message)
