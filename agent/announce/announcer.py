"""
Write the announcement, and report whether the server accepted it.

One attempt at a time. The protocol treats a refusal and a lost reply alike: both are sent again after a wait. The wait
comes BEFORE the outcome is reported, so that the machine decides with the newest view whether it still wants to
announce.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Final

from inplace.agent.announce.jobset_requests import announcement_request
from inplace.agent.announce.retry_budget import RetryBudget
from inplace.agent.announce.retry_causes import cause_of, cure_of, words_of
from inplace.agent.deps import AgentDeps
from inplace.agent.report.phases import RestartPhases
from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.errors import ApiError, Throttled
from inplace.common.kube.http.request import Request, Response, TransportError
from inplace.common.kube.watch import ending_of
from inplace.common.protocol.agent import Accepted, NotAccepted
from inplace.common.protocol.bounds import decimal
from inplace.common.protocol.resume import NOTHING, Saved

ANNOUNCEMENT_TIMEOUT_S: Final = 30.0  # API priority and fairness queues a request for at most 15 s
VERSION_MAX: Final = 2**64 - 1  # a resourceVersion is an unsigned integer
LEAVING_S: Final = 60.0  # a Pod that is being deleted asks again so seldom: nothing can change but its end


class Announcer:
    """Announce epochs on one Pod.

    Args:
        budget: shared with the watch.
        on_problem: called with the words of what is wrong, None when it works again.

    Attributes:
        ran: the last epoch in which this Pod started a worker; 0 for none.
    """

    def __init__(
        self,
        config: AgentConfig,
        deps: AgentDeps,
        *,
        budget: RetryBudget,
        phases: RestartPhases,
        on_problem: Callable[[str | None], None],
    ) -> None:
        self._config = config
        self._clock = deps.clock
        self._log = deps.log
        self._metrics = deps.metrics
        self._patches = deps.patches
        self._phases = phases
        self._on_problem = on_problem
        self._budget = budget
        self._answered = asyncio.Event()
        self.ran = config.ran_epoch

    async def until_answered(self) -> None:
        """Wait until the announcement that was begun has an answer or none is coming: its connection is free then."""
        await self._answered.wait()

    async def announce(self, epoch: int, saved: Saved = NOTHING) -> Accepted | NotAccepted:
        """Send the announcement once, with what this Pod could load.

        Returns:
            Its outcome, a failure only after the wait it asks for.
        """
        if (wait_s := self._patches.left_s) > 0:
            self._log.info("announcement_put_off", epoch=epoch, wait_s=round(wait_s, 3), why="the server asked for it")
            await self._clock.sleep(wait_s)
        phases = self._phases.announcing(epoch)
        try:
            make = partial(announcement_request, self._config, epoch, phases, ran=self.ran, saved=saved)
            response = await self._send(make)
        except (ApiError, TransportError) as error:
            await self._after(epoch, error)
            return NotAccepted(epoch)
        if self._config.fence_after_s and _is_leaving(response.body):
            return await self._void(epoch)
        self._metrics.requests["patch", "ok"] += 1
        self._budget.note_success(self._clock.monotonic_s())
        self._phases.accepted()
        self._on_problem(None)
        self._log.info("announcement_accepted", epoch=epoch, phases=phases)
        return Accepted(epoch, _version(response.body), told=saved != NOTHING)

    async def _void(self, epoch: int) -> NotAccepted:
        """Wait for this Pod's end: the controller may count it as gone, so it joins no epoch (docs/adr/0072)."""
        problem = "this Pod is being deleted: what it announces from now on counts for nobody"
        self._metrics.requests["patch", "leaving"] += 1
        self._on_problem(f"patch pods: {problem}")
        self._log.warning("announcement_void", epoch=epoch, message=problem, retry_in_s=LEAVING_S)
        await self._clock.sleep(LEAVING_S)
        return NotAccepted(epoch)

    async def _send(self, make: Callable[[str], Request]) -> Response:
        self._answered.clear()
        try:
            return await self._patches.send_with_line(make, ANNOUNCEMENT_TIMEOUT_S)
        finally:
            self._answered.set()

    async def _after(self, epoch: int, error: ApiError | TransportError) -> None:
        """Report a failure, and wait."""
        ending = ending_of(error)
        cause = cause_of(ending)
        wait_s = self._budget.wait_s(ending, self._clock.monotonic_s())
        self._metrics.wait("patch", cause, wait_s, throttled=isinstance(error, Throttled))
        self._on_problem(f"patch pods: {cause}: {words_of(ending)}")
        cure = cure_of(ending, "patch", "pods", self._config.namespace)
        self._log.warning(
            "announcement_failed",
            epoch=epoch,
            cause=cause,
            message=words_of(ending),
            retry_in_s=round(wait_s, 3),
            **({"cure": cure} if cure else {}),
        )
        await self._clock.sleep(wait_s)


def _version(answer: bytes) -> int:
    """Return the Pod's resourceVersion in the answer to a PATCH; 0 if there is none, or it is no number."""
    try:
        text = json.loads(answer)["metadata"]["resourceVersion"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    return (decimal(text, VERSION_MAX) or 0) if isinstance(text, str) else 0


def _is_leaving(answer: bytes) -> bool:
    """Say whether the answer to a PATCH of a Pod shows that it is being deleted; one that cannot be read may."""
    try:
        return "deletionTimestamp" in json.loads(answer)["metadata"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return True
