"""
A sidecar's agent: it lifts the barrier of another container, and a group restart ends its own process.

Where a guard is the worker's parent, the agent hears of the worker's death at once, tells the controller, and leaves.
`common.epoch.sidecar` decides; this class performs.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Final

from inplace.agent.config import AgentConfig
from inplace.agent.driver import Driver, Parts
from inplace.agent.endings import cause_of, words_of
from inplace.agent.jobset_requests import failure_request
from inplace.agent.telling import telling_delay_s
from inplace.common.epoch.agent import AgentState, LiftBarrier, RestartInPlace
from inplace.common.epoch.sidecar import (
    Event,
    FailureTold,
    RestartPod,
    ScheduleTelling,
    SidecarState,
    TellFailure,
    TellingDue,
    WorkerFailed,
    step,
)
from inplace.common.kube.errors import ApiError, error_from_response
from inplace.common.kube.http import TransportError
from inplace.common.kube.watch import ending_of
from inplace.common.worker_failure import WorkerFailure, failure_text

TELLING_S_MAX: Final = 1.0  # by then kubelet has seen the death as well, and nobody need be told


class SidecarAgent:
    """One Pod's agent beside its worker's container."""

    def __init__(self, config: AgentConfig, parts: Parts) -> None:
        self._config = config
        self._machine = SidecarState(AgentState(previous=config.previous_epoch, reached=config.reached_epoch))
        self._transport = parts.transport
        self._link = parts.link
        self._clock = parts.clock
        self._rng = parts.rng
        self._log = parts.log
        self._metrics = parts.metrics
        self._driver = Driver(config, parts, self)
        self._telling: asyncio.Task[None] | None = None

    @property
    def state(self) -> AgentState:
        """Return where the agent's own machine stands."""
        return self._machine.agent

    async def run(self) -> int:
        """Run until the Pod must restart in place, or cannot; return the process's exit code."""
        await self._link.start(lambda epoch, code: self._driver.take(WorkerFailed(epoch, code)))
        try:
            return await self._driver.run()
        finally:
            await self._link.stop()

    def terminate(self, number: signal.Signals) -> None:
        """End by a signal."""
        self._log.info("signalled", signal=number.name, then=f"exit {128 + number}")
        self._end(128 + number)

    def step(self, event: Event) -> tuple[object, ...]:
        """Advance the machine."""
        self._machine, actions = step(self._machine, event)
        return actions

    def perform(self, action: object) -> None:
        """Let the worker start, tell of its death, or end this process."""
        match action:
            case LiftBarrier(epoch):
                self._driver.remember_run(epoch)
                self._link.lift(epoch)
                self._driver.lift(epoch)
            case ScheduleTelling():
                self._telling = self._driver.start(self._wait_to_tell())
            case TellFailure(epoch, code):
                self._telling = self._driver.start(self._tell(epoch, code))
            case RestartInPlace(epoch, verdict):
                view = self.state.view
                seen = {"synced": view.synced, "deprecated": view.deprecated} if view else {}
                self._leave(epoch, verdict=verdict.value, **seen)
            case RestartPod(epoch, code):
                self._leave(epoch, verdict="worker_failed", worker_exit_code=code)

    async def before_announcement(self) -> None:
        """Send at once."""

    def after_announcement(self) -> None:
        """Do nothing."""

    async def _wait_to_tell(self) -> None:
        """Let one of a group whose workers all die go first."""
        delay_s = telling_delay_s(self._config.group_size, self._rng.random())
        self._log.warning("worker_failed", epoch=self.state.epoch, tells_in_s=round(delay_s, 3))
        await self._clock.sleep(delay_s)
        self._driver.take(TellingDue())

    async def _tell(self, epoch: int, code: int | None) -> None:
        """Send the one PATCH; whatever becomes of it, kubelet shows the death later."""
        text = failure_text(WorkerFailure(epoch, code, self._clock.wall_s()))
        try:
            response = await self._transport.request(failure_request(self._config, text), timeout_s=TELLING_S_MAX)
            if response.status >= 400:
                raise error_from_response(response)
            self._metrics.requests["patch", "ok"] += 1
        except (ApiError, TransportError) as error:
            self._metrics.requests["patch", cause_of(ending_of(error))] += 1
            self._log.warning("failure_not_told", message=words_of(ending_of(error)), then="kubelet shows it later")
        self._driver.take(FailureTold())

    def _leave(self, epoch: int, **why: object) -> None:
        """End this process, and let the guards end their workers NOW: kubelet restarts what has ended together."""
        code = self._config.restart_exit_code
        self._link.leave()
        self._log.warning("restarting_in_place", epoch=epoch, **why, exit_code=code)
        self._end(code)

    def _end(self, code: int) -> None:
        """End this process; what still would be told, kubelet shows."""
        if self._telling is not None and self._telling is not asyncio.current_task():
            self._telling.cancel()
        self._driver.end(code)
