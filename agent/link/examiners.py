"""
The guards that have a command for a worker that hangs, as their agent asks them; for both depths.

Each looks into its own container: the agent cannot see the worker's processes.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from inplace.agent.worker.stall_command import COMMAND_S_MAX
from inplace.common.bare.typed import Final
from inplace.common.kube.clock import Clock
from inplace.common.protocol.int32 import INT32_MAX
from inplace.common.protocol.link import Examine, Message
from inplace.common.protocol.stall import Stalled

ANSWER_S: Final = 0.5  # a guard kills a command that takes COMMAND_S_MAX, and says so


class Server(Protocol):
    """Carries messages to the guards of this Pod."""

    def tell(self, peer: int, message: Message) -> None:
        """Say something to one guard, if it is there."""


class Examiners:
    """Asks every guard that has a command."""

    def __init__(self, server: Server, *, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._asked: dict[int, asyncio.Event] = {}  # connection -> its command does not run

    def ready(self, peer: int) -> None:
        """Take note that a guard has a command, and that it does not run."""
        self._asked.setdefault(peer, asyncio.Event()).set()

    def left(self, peer: int) -> None:
        """Take note of the end of a connection."""
        if asked := self._asked.pop(peer, None):
            asked.set()

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:
        """Let each of them run its command; see `agent.worker.process.Worker`."""
        waits = list(self._asked.items())
        if not waits:
            return None
        message = Examine(pid if pid is not None and pid <= INT32_MAX else 0, round(stalled.silent_s))
        for peer, answered in waits:
            answered.clear()
            self._server.tell(peer, message)
        try:
            async with self._clock.timeout(COMMAND_S_MAX + ANSWER_S):
                for _, answered in waits:
                    await answered.wait()
        except TimeoutError:
            return f"a guard said nothing for {COMMAND_S_MAX + ANSWER_S:g} s"
        return ""
