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
from typing import Final

from inplace.agent.announce.jobset_requests import announcement_request
from inplace.agent.announce.patch_pause import PatchPause
from inplace.agent.announce.retry_budget import RetryBudget
from inplace.agent.announce.retry_causes import cause_of, cure_of, words_of
from inplace.agent.report.log import Log
from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.report.phases import RestartPhases
from inplace.agent.start.config import AgentConfig
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, Forbidden, Invalid, Throttled, check_answer
from inplace.common.kube.http.request import Request, Response, Transport, TransportError
from inplace.common.kube.watch import Busy, ending_of
from inplace.common.protocol.agent import Accepted, NotAccepted

ANNOUNCEMENT_TIMEOUT_S: Final = 30.0  # API priority and fairness queues a request for at most 15 s

LEAVING_S: Final = 60.0  # a Pod that is being deleted asks again so seldom: nothing can change but its end


class Announcer:
    """Announce epochs on one Pod.

    Args:
        budget: shared with the watch.
        pause: shared with all PATCHes of this Pod.
        on_problem: called with the words of what is wrong, None when it works again.
        last_line: returns what the worker that failed wrote last, as the annotation has it; "" for nothing.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        transport: Transport,
        clock: Clock,
        budget: RetryBudget,
        log: Log,
        metrics: AgentMetrics,
        phases: RestartPhases,
        pause: PatchPause,
        on_problem: Callable[[str | None], None],
        last_line: Callable[[], str] = str,
    ) -> None:
        self._config = config
        self._transport = transport
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._phases = phases
        self._on_problem = on_problem
        self._last_line = last_line
        self._is_line_refused = False
        self._budget = budget
        self._answered = asyncio.Event()
        self._pause = pause

    async def until_answered(self) -> None:
        """Wait until the announcement that was begun has an answer or none is coming: its connection is free then."""
        await self._answered.wait()

    async def announce(self, epoch: int) -> Accepted | NotAccepted:
        """Send the announcement once; return its outcome, a failure only after the wait it asks for."""
        if (wait_s := self._pause.left_s) > 0:
            self._log.info("announcement_put_off", epoch=epoch, wait_s=round(wait_s, 3), why="the server asked for it")
            await self._clock.sleep(wait_s)
        phases = self._phases.announcing(epoch)
        line = "" if self._is_line_refused else self._last_line()
        try:
            try:
                response = await self._send(announcement_request(self._config, epoch, phases, line))
                check_answer(response)
            except (Forbidden, Invalid):
                if not line:
                    raise
                self._is_line_refused = True  # deploy/admission is older than this agent
                self._log.warning("last_line_refused", epoch=epoch, then="it is announced without the line")
                response = await self._send(announcement_request(self._config, epoch, phases))
                check_answer(response)
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
        return Accepted(epoch)

    async def _void(self, epoch: int) -> NotAccepted:
        """Wait for this Pod's end: the controller may count it as gone, so it joins no epoch (docs/adr/0072)."""
        problem = "this Pod is being deleted: what it announces from now on counts for nobody"
        self._metrics.requests["patch", "leaving"] += 1
        self._on_problem(f"patch pods: {problem}")
        self._log.warning("announcement_void", epoch=epoch, message=problem, retry_in_s=LEAVING_S)
        await self._clock.sleep(LEAVING_S)
        return NotAccepted(epoch)

    async def _send(self, request: Request) -> Response:
        self._answered.clear()
        try:
            return await self._transport.request(request, timeout_s=ANNOUNCEMENT_TIMEOUT_S)
        finally:
            self._answered.set()

    async def _after(self, epoch: int, error: ApiError | TransportError) -> None:
        """Report a failure, and wait."""
        ending = ending_of(error)
        cause = cause_of(ending)
        if isinstance(ending, Busy):
            self._pause.hold_back(ending.after_s)
        wait_s = self._budget.wait_s(ending, self._clock.monotonic_s())
        self._metrics.requests["patch", cause] += 1
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


def _is_leaving(answer: bytes) -> bool:
    """Say whether the answer to a PATCH of a Pod shows that it is being deleted; one that cannot be read may."""
    try:
        return "deletionTimestamp" in json.loads(answer)["metadata"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return True
