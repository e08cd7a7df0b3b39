"""
The checks that guards run before their Pod announces, as the agent hears of them; for both depths.

The agent waits for as many guards as CHECKS_BEFORE_ANNOUNCE says. A guard ends its container if its check failed; then
the agent lets the other guards end theirs, so that the Pod ends and its Job replaces it.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from inplace.agent.report.log import Log
from inplace.common.kube.clock import Clock
from inplace.common.protocol.link import Checking, Fit, Message, Unfit

ANSWER_S: Final = 5.0  # a guard kills a check that takes too long, and says so
PATIENCE_S: Final = 10.0  # says once that it waits


class Server(Protocol):
    """Carries messages to the guards of this Pod."""

    def tell_all(self, message: Message) -> None:
        """Say something to every guard that is there."""


class Checks:
    """Waits for the guards' checks.

    Args:
        wanted: how many guards have one; 0 for nothing to wait for.
    """

    def __init__(self, server: Server, wanted: int, *, clock: Clock, log: Log) -> None:
        self._server = server
        self._wanted = wanted
        self._clock = clock
        self._log = log
        self._due_s: dict[int, float] = {}  # connection -> when its check must be over
        self._fit: set[int] = set()
        self._is_unfit = False
        self._changed = asyncio.Event()

    def heard(self, peer: int, message: Checking | Fit | Unfit) -> None:
        """Take in where a guard's check stands."""
        self._forget(peer)
        if isinstance(message, Checking):
            self._due_s[peer] = self._clock.monotonic_s() + message.limit_ms / 1000 + ANSWER_S
        elif isinstance(message, Fit):
            self._fit.add(peer)
        elif not self._is_unfit:
            self._is_unfit = True
            self._log.error("check_failed", message="a guard's check failed", then="the Pod ends")
            self._server.tell_all(Unfit())
        self._changed.set()

    def left(self, peer: int) -> None:
        """Take in the end of a connection."""
        self._forget(peer)
        self._changed.set()

    async def until_fit(self) -> None:
        """Return when no check runs any more and enough are over; never if one failed: this Pod ends."""
        said_s = self._clock.monotonic_s() + PATIENCE_S
        while self._waits():
            now_s = self._clock.monotonic_s()
            if now_s >= said_s:
                said_s = float("inf")
                self._log.warning("checks_awaited", expected=self._wanted, seen=len(self._fit))
            wait_s = min([PATIENCE_S, *(due_s - now_s for due_s in self._due_s.values())])
            try:
                async with self._clock.timeout(max(wait_s, 0.0)):
                    await self._changed.wait()
                    self._changed.clear()
            except TimeoutError:
                continue

    def _waits(self) -> bool:
        """Say whether the Pod may not announce yet; a guard that is late is believed to be fit."""
        now_s = self._clock.monotonic_s()
        for peer in [peer for peer, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[peer]
            self._fit.add(peer)
            problem = "a guard said nothing of its check in time"
            self._log.warning("check_unanswered", message=problem, then="the Pod joins its group unchecked")
        return self._is_unfit or bool(self._due_s) or len(self._fit) < self._wanted

    def _forget(self, peer: int) -> None:
        self._due_s.pop(peer, None)
        self._fit.discard(peer)
