"""
The agent's end of the link in depth `containers`: it lets workers start, and hears how they end.

Depth `process` has `agent.link.linked_worker` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from inplace.agent.link.server import GuardServer
from inplace.agent.link.side_jobs import SideJobs
from inplace.agent.report.log import Log
from inplace.common.kube.clock import Clock
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.link import (
    Ended,
    Ending,
    Failed,
    Leaving,
    Lifted,
    Message,
    Started,
    is_completion,
)
from inplace.common.protocol.stall import Stalled

OnEnd = Callable[[int, int | None], object]  # epoch; exit code: 0 is a completion, None a container's silent end


class Link(Protocol):
    """Lets guarded workers start, and hears how they end."""

    async def start(self, on_end: OnEnd) -> None:
        """Begin to listen; each failure, and each completion, is reported once."""

    async def until_fit(self) -> None:
        """Return when the guards' checks are over, and this Pod may announce."""

    def lift(self, epoch: int | None) -> None:
        """Let the workers start; `epoch` is None when in-place restart is off."""

    def runs(self) -> bool:
        """Say whether some guard's worker runs; one whose Pod ends does not count."""

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:
        """Let the guards run their command for a worker that hangs; see `agent.worker.process.Worker`."""

    def leave(self) -> None:
        """Let the guards end their workers: this process ends."""

    async def stop(self) -> None:
        """Close every connection; idempotent."""


class NoLink:
    """Serves no guard."""

    async def start(self, on_end: OnEnd) -> None:
        """Do nothing."""

    async def until_fit(self) -> None:
        """Return at once."""

    def lift(self, epoch: int | None) -> None:
        """Do nothing."""

    def runs(self) -> bool:
        """Say that no guard's worker runs."""
        return False

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:
        """Say that there is no command."""

    def leave(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""


class GuardLink:
    """The guards of this Pod.

    Args:
        checks: how many of them run a check before each announcement.
    """

    def __init__(self, server: GuardServer, *, clock: Clock, log: Log, checks: int = 0) -> None:
        self._server = server
        self._side_jobs = SideJobs(server, checks=checks, clock=clock, log=log)
        self._running: dict[int, int] = {}  # connection -> the epoch in which its worker runs
        self._lifted: Lifted | None = None
        self._on_end: OnEnd

    async def start(self, on_end: OnEnd) -> None:
        """Listen; a folder that cannot be written costs the guard its agent, and is told."""
        self._on_end = on_end
        await self._server.start(self)

    async def until_fit(self) -> None:
        """Wait for the guards' checks."""
        await self._side_jobs.until_fit()

    def lift(self, epoch: int | None) -> None:
        """Tell every guard, also those that connect later."""
        self._lifted = Lifted(epoch or 0)
        self._server.tell_all(self._lifted)

    def runs(self) -> bool:
        """Say whether some guard's worker was started, and neither it nor its Pod has begun to end."""
        return bool(self._running)

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:
        """Ask every guard that has a command."""
        return await self._side_jobs.examine(stalled, pid)

    def leave(self) -> None:
        """Tell every guard; the end of the connection says the same, and comes later. What ends now is no news."""
        self._server.tell_all(Leaving())
        self._on_end = _ignore

    async def stop(self) -> None:
        """Close every connection."""
        await self._server.stop()

    def greeted(self, peer: int) -> None:
        """Let a guard that comes after the lift start its worker."""
        if self._lifted is not None:
            self._server.tell(peer, self._lifted)

    def heard(self, peer: int, message: Message) -> None:
        """Take in one message."""
        if self._side_jobs.heard(peer, message):
            return
        if not isinstance(message, Started | Failed | Ended | Ending):
            raise RemoteProtocolError(f"expected a guard's line, saw {message!r}")
        if self._lifted is None or message.epoch != self._lifted.epoch:
            raise RemoteProtocolError(f"expected news of the worker of {self._lifted}, saw {message!r}")
        self._running.pop(peer, None)
        if isinstance(message, Failed) or is_completion(message):
            self._on_end(message.epoch, message.code)
        elif isinstance(message, Started) and message.epoch:  # with in-place restart off, its end is no news
            self._running[peer] = message.epoch

    def left(self, peer: int) -> None:
        """Take the end for a death, if the guard did not say how its worker ended."""
        self._side_jobs.left(peer)
        epoch = self._running.pop(peer, 0)
        if epoch:
            self._on_end(epoch, None)


def _ignore(_epoch: int, _code: int | None) -> None:
    """Take no note of an end."""
