"""
The link between an agent and its guard without a socket, and the guard without a process.

The agent is the real one; the guard is the real machine (`common.protocol.guard`). What is modelled is what the kernel
does: the end of either process is the end of the link, and the worker's container ends with its guard.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from inplace.agent.link.agent_end import OnEnd
from inplace.agent.link.server import Listener
from inplace.agent.start.arguments import GRACE_S
from inplace.common.protocol.guard import (
    GONE,
    RUNNING,
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
    Failed,
    Leaving,
    Lifted,
    Message,
    Signal,
    Started,
    is_completion,
)
from inplace.common.protocol.stall import Stalled


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
        self.agent: ModelLink | ModelServer | None = None
        self.guard: ModelGuard | None = None

    def connect(self) -> None:
        """Let a guard that waits meet its agent."""
        if self.agent is not None and self.guard is not None:
            self.agent.meet(self.guard)


class ModelLink:
    """An agent's end, in depth `containers`."""

    def __init__(self, link: PodLink) -> None:
        self._link = link
        self._ends: asyncio.Queue[tuple[int, int | None]] = asyncio.Queue()
        self._listening: asyncio.Task[None] | None = None
        self.lifted: int | None = None

    async def start(self, on_end: OnEnd) -> None:
        """Listen, in a task of the agent's own process."""
        self._listening = asyncio.create_task(self._listen(on_end), name="link")
        self._link.agent = self
        self._link.connect()

    async def until_fit(self) -> None:
        """Return at once: no guard here has a check."""

    def lift(self, epoch: int | None) -> None:
        """Let the guard start its worker."""
        self.lifted = epoch or 0
        self._link.connect()

    def runs(self) -> bool:
        """Say whether the guard's worker runs, and neither it nor its Pod has begun to end."""
        return self._link.guard is not None and self._link.guard.runs

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:
        """Say that there is no command."""

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

    def meet(self, guard: ModelGuard) -> None:
        """Let a guard hear of a lift."""
        if self.lifted is not None:
            guard.hear(BarrierLifted(self.lifted))

    def said(self, message: Message) -> None:
        """Hear of a failure, or of a completion."""
        if isinstance(message, Failed) or is_completion(message):
            self._ends.put_nowait((message.epoch, message.code))

    def gone(self, epoch: int) -> None:
        """Hear that a guard ended without a word; 0 if its worker's end is no news."""
        if epoch:
            self._ends.put_nowait((epoch, None))

    async def _listen(self, on_end: OnEnd) -> None:
        while True:
            on_end(*await self._ends.get())


class ModelServer:
    """An agent's end, in depth `process`; implements `agent.link.linked_worker.Server`."""

    def __init__(self, link: PodLink) -> None:
        self._link = link
        self._heard: asyncio.Queue[tuple[int, Message | None]] = asyncio.Queue()  # None: the guard left
        self._listening: asyncio.Task[None] | None = None
        self._met: ModelGuard | None = None
        self._number = 0  # of the connection

    async def start(self, listener: Listener) -> None:
        """Listen, in a task of the agent's own process."""
        self._listening = asyncio.create_task(self._listen(listener), name="link")
        self._link.agent = self
        self._link.connect()

    def meet(self, guard: ModelGuard) -> None:
        """Greet a guard."""
        if self._met is not guard:
            self._met = guard
            self._number += 1
            guard.hear(StayOn())

    def tell(self, peer: int, message: Message) -> None:
        """Say something to the guard, if that connection is still there."""
        if self._met is None or peer != self._number or self._link.agent is not self:
            return
        match message:
            case Lifted(epoch):
                self._met.hear(BarrierLifted(epoch))
            case Signal(number):
                self._met.hear(AgentSignal(number))
            case Leaving():
                self._met.hear(LinkEnded())

    def tell_all(self, message: Message) -> None:
        """Say something to the guard."""
        self.tell(self._number, message)

    def said(self, message: Message) -> None:
        """Hear what the guard says."""
        self._heard.put_nowait((self._number, message))

    def gone(self, _epoch: int) -> None:
        """Hear that the guard's process is gone."""
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

    async def _listen(self, listener: Listener) -> None:
        while True:
            peer, message = await self._heard.get()
            if message is None:
                listener.left(peer)
            else:
                listener.heard(peer, message)


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
                    self._told = False
                    self._worker.start_worker(epoch)
                    self._say(Started(epoch))
                case StopWorker():
                    self._worker.stop_worker()
                case KillWorker():
                    self._worker.signal_worker(9)
                case PassOn(number):
                    self._worker.signal_worker(number)
                case TellEnding(epoch):
                    self._told = True
                    self._say(Ending(epoch))
                case TellEnd(epoch, code, failed):
                    self._told = True
                    self._say((Failed if failed else Ended)(epoch, code))
                case TellAbsent():
                    self._say(Absent(round(GRACE_S * 1000)))
                case Leave(code):
                    self._worker.leave(code)

    def cut(self) -> None:
        """End the guard's process without a word: the agent sees the end of the link."""
        if self._link.guard is self:
            self._link.guard = None
            if self._link.agent is not None:
                unheard = not self._told and self._state.phase != WAITING
                self._link.agent.gone(self._state.epoch if unheard else 0)

    def _say(self, message: Message) -> None:
        if self._link.agent is not None:
            self._link.agent.said(message)
