"""
Tell the controller with one PATCH how this Pod's worker failed, at a moment of this Pod's own; for both modes.

`common.protocol.failure_report` decides; this module waits and sends. Whatever becomes of the PATCH, the group learns
of the failure later by itself: from kubelet, or from the next announcement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from inplace.agent.announce.jobset_requests import failure_request
from inplace.agent.announce.report_delay import report_delay_s
from inplace.agent.announce.retry_causes import words_of
from inplace.agent.deps import AgentDeps
from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.errors import ApiError
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.watch import ending_of
from inplace.common.protocol.failure_report import (
    Action,
    ReportDue,
    ReportSent,
    SendReport,
    WorkerFailed,
    WorkerRaised,
    WorkerStalled,
)
from inplace.common.wire.worker_failure import WorkerFailure, failure_text

REPORT_S_MAX: Final = 1.0  # kubelet has reported the death by then


class FailureReporter:
    """Performs the report's actions, and reports their outcomes to the machine.

    Args:
        take: advances the machine by an event.
    """

    def __init__(self, config: AgentConfig, deps: AgentDeps, *, take: Callable[[ReportDue | ReportSent], None]) -> None:
        self._config = config
        self._clock = deps.clock
        self._rng = deps.rng
        self._log = deps.log
        self._metrics = deps.metrics
        self._take = take
        self._tasks = deps.tasks
        self._patches = deps.patches
        self._task: asyncio.Task[None] | None = None
        self._sends = False

    def perform(self, action: Action) -> None:
        """Begin to wait, or to send; what an older worker left unsaid is dropped."""
        self.drop()
        self._sends = isinstance(action, SendReport)
        work = self._tell(action.failure) if isinstance(action, SendReport) else self._wait()
        self._task = self._tasks.create_task(work)

    def keep_silent(self) -> None:
        """Wait no longer: the group restarts anyway. A PATCH that is out keeps its connection until it is answered."""
        if not self._sends:
            self.drop()

    def drop(self) -> None:
        """Stop, whatever is under way: this process ends, or begins to tell of something else."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _wait(self) -> None:
        """Let one of a group whose workers all fail go first."""
        delay_s = report_delay_s(self._config.herd.size, self._rng.random())
        self._log.warning("worker_failed", epoch=self._metrics.epoch, tells_in_s=round(delay_s, 3))
        await self._clock.sleep(delay_s)
        self._take(ReportDue())

    async def _tell(self, failure: WorkerFailed | WorkerStalled | WorkerRaised) -> None:
        """Send the one PATCH."""
        ended_s = self._patches.ended_s if not isinstance(failure, WorkerStalled) else None
        text = failure_text(_written(failure, self._clock.wall_s() if ended_s is None else ended_s))
        try:
            if (left_s := self._patches.left_s) > REPORT_S_MAX:
                raise TransportError(f"the server wants no request of this Pod for {left_s:.1f} s", sent=False)
            if left_s > 0:
                await self._clock.sleep(left_s)
            await self._patches.send_with_line(partial(failure_request, self._config, text), REPORT_S_MAX)
            self._metrics.requests["patch", "ok"] += 1
        except (ApiError, TransportError) as error:
            then = "the group learns of it later, from kubelet or the next announcement"
            self._log.warning("failure_not_told", message=words_of(ending_of(error)), then=then)
        self._take(ReportSent())


def _written(failure: WorkerFailed | WorkerStalled | WorkerRaised, at_s: float) -> WorkerFailure:
    if isinstance(failure, WorkerStalled):
        return WorkerFailure(failure.epoch, None, at_s, failure.silent_s, failure.step)
    in_vain = failure.in_vain if isinstance(failure, WorkerFailed) else 0
    return WorkerFailure(failure.epoch, failure.code, at_s, in_vain=in_vain)
