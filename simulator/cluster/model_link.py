"""
The link between an agent and its guard without a socket: an agent's end, and what connects it with a guard.

What is modelled is what the kernel does: the end of either process is the end of the link.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from inplace.agent.link.server import GuardServer, Listener
from inplace.common.protocol.guard import AgentSignal, BarrierLifted, Event, LinkEnded, StayOn
from inplace.common.protocol.link import Completed, Leaving, Lifted, Message, Signal, TakeStacks
from inplace.common.wire.names import DEPTH_PROCESS


class LinkedGuard(Protocol):
    """A guard at the other end."""

    @property
    def waits(self) -> bool:
        """Say whether it waits for a lift."""

    def hear(self, event: Event) -> None:
        """Take in an event of the link."""

    def prepare(self, lifted: Lifted) -> None:
        """Take in what the worker is told that the next lift starts."""

    def complete(self) -> None:
        """End with 0, if no worker runs: the group has completed."""

    def take_stacks(self, request: int) -> None:
        """Let the worker answer a request for stacks, if one runs."""


class PodLink:
    """The socket in one Pod's folder: it connects the agent that listens with the guard that is there."""

    def __init__(self) -> None:
        self.agent: ModelServer | None = None
        self.guard: LinkedGuard | None = None

    def connect(self) -> None:
        """Let a guard that waits meet its agent; with a worker it looks for no other."""
        if self.agent is not None and self.guard is not None and self.guard.waits:
            self.agent.meet(self.guard)


class ModelServer(GuardServer):
    """An agent's end.

    Args:
        depth: of a restart, `containers` or `process`, which each guard is told.
    """

    def __init__(self, link: PodLink, depth: str) -> None:
        self._link = link
        self._depth = depth
        self._heard: asyncio.Queue[tuple[int, Message | None]] = asyncio.Queue()  # None: the guard left
        self._listener: Listener
        self._listening: asyncio.Task[None] | None = None
        self._met: LinkedGuard | None = None
        self._number = 0  # of the connection

    async def start(self, listener: Listener) -> None:
        """Listen, in a task of the agent's own process."""
        self._listener = listener
        self._listening = asyncio.create_task(self._listen(), name="link")
        self._link.agent = self
        self._link.connect()

    def meet(self, guard: LinkedGuard) -> None:
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
                guard.prepare(message)
                guard.hear(BarrierLifted(epoch))
            case Signal(number):
                guard.hear(AgentSignal(number))
            case TakeStacks(request):
                guard.take_stacks(request)
            case Completed():
                guard.complete()
            case Leaving():
                self._met = None
                guard.hear(LinkEnded())

    def tell_all(self, message: Message) -> None:
        """Say something to the guard."""
        self.tell(self._number, message)

    def said(self, guard: LinkedGuard, message: Message) -> None:
        """Hear what the guard says, if it is at the other end."""
        if self._met is guard:
            self._heard.put_nowait((self._number, message))

    def gone(self, guard: LinkedGuard) -> None:
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
