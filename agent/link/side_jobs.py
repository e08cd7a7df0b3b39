"""
What the guards of this Pod run beside their workers, as their agent asks and waits for it; for both depths.

The check of `--before-announce`: the agent waits for as many guards as CHECKS_BEFORE_ANNOUNCE says. A guard ends its
container if its check failed; then the agent lets the other guards end theirs, so that the Pod ends and is replaced.
The command of `--on-stall`: each guard looks into its own container, where the agent cannot see the processes. Each
guard also writes the stacks of its container's worker on request; the agent does not wait for them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from inplace.agent.link.server import GuardServer
from inplace.agent.report.log import Log
from inplace.agent.worker.stall_command import COMMAND_S_MAX
from inplace.common.kube.clock import Clock
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.link import Checking, Examine, Examines, Fit, Message, TakeStacks, Unfit
from inplace.common.protocol.stall import Silence

CHECK_ANSWER_S: Final = 5.0  # a guard kills a check that takes too long, and says so
COMMAND_ANSWER_S: Final = 0.5  # and a command that takes COMMAND_S_MAX
PATIENCE_S: Final = 10.0  # says once that it waits


class SideJobs:
    """Waits for the guards' checks, and lets them look at workers that hang.

    Args:
        checks: how many guards have a check; 0 for nothing to wait for.
    """

    def __init__(self, server: GuardServer, *, checks: int, clock: Clock, log: Log) -> None:
        self._server = server
        self._wanted = checks
        self._clock = clock
        self._log = log
        self._due_s: dict[int, float] = {}  # connection -> when its check must be over
        self._fit: set[int] = set()
        self._is_unfit = False
        self._changed = asyncio.Event()
        self._asked: dict[int, asyncio.Event] = {}  # connection with a command -> that does not run

    def heard(self, peer: int, message: Message) -> bool:
        """Take in where a guard's check or command stands; say whether the message was about that."""
        if isinstance(message, Examines):
            self._asked.setdefault(peer, asyncio.Event()).set()
        elif isinstance(message, Checking | Fit | Unfit):
            self._take(peer, message)
        else:
            return False
        return True

    def take_stacks(self, request: int) -> None:
        """Let each guard write its worker's stacks to the log."""
        self._server.tell_all(TakeStacks(request))

    def left(self, peer: int) -> None:
        """Take in the end of a connection."""
        self._forget(peer)
        self._changed.set()
        if asked := self._asked.pop(peer, None):
            asked.set()

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

    async def examine(self, silent: Silence, pid: int | None) -> str | None:
        """Let each guard that has a command run it; see `LinkedWorker.examine`."""
        waits = list(self._asked.items())
        if not waits:
            return None
        message = Examine(pid if pid is not None and pid <= INT32_MAX else 0, round(silent.silent_s))
        for peer, answered in waits:
            answered.clear()
            self._server.tell(peer, message)
        try:
            async with self._clock.timeout(COMMAND_S_MAX + COMMAND_ANSWER_S):
                for _, answered in waits:
                    await answered.wait()
        except TimeoutError:
            return f"a guard said nothing for {COMMAND_S_MAX + COMMAND_ANSWER_S:g} s"
        return ""

    def _take(self, peer: int, message: Checking | Fit | Unfit) -> None:
        self._forget(peer)
        if isinstance(message, Checking):
            self._due_s[peer] = self._clock.monotonic_s() + message.limit_ms / 1000 + CHECK_ANSWER_S
        elif isinstance(message, Fit):
            self._fit.add(peer)
        elif not self._is_unfit:
            self._is_unfit = True
            self._log.error("check_failed", message="a guard's check failed", then="the Pod ends")
            self._server.tell_all(Unfit())
        self._changed.set()

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
