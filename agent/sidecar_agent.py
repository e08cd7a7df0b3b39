"""A sidecar's agent: it lifts the barrier of another container, and a group restart ends its own process."""

from __future__ import annotations

import signal

from inplace.agent.config import AgentConfig
from inplace.agent.driver import Driver, Parts
from inplace.common.epoch.agent import AgentState, Event, LiftBarrier, RestartInPlace, step


class SidecarAgent:
    """One Pod's agent beside its worker's container."""

    def __init__(self, config: AgentConfig, parts: Parts) -> None:
        self.state = AgentState(previous=config.previous_epoch, reached=config.reached_epoch)
        self._restart_exit_code = config.restart_exit_code
        self._log = parts.log
        self._driver = Driver(config, parts, self)

    async def run(self) -> int:
        """Run until the Pod must restart in place, or cannot; return the process's exit code."""
        return await self._driver.run()

    def terminate(self, number: signal.Signals) -> None:
        """End by a signal."""
        self._log.info("signalled", signal=number.name, then=f"exit {128 + number}")
        self._driver.end(128 + number)

    def step(self, event: Event) -> tuple[object, ...]:
        """Advance the machine."""
        self.state, actions = step(self.state, event)
        return actions

    def perform(self, action: object) -> None:
        """Let the worker start, or end this process."""
        match action:
            case LiftBarrier(epoch):
                self._driver.remember_run(epoch)
                self._driver.lift(epoch)
            case RestartInPlace(epoch, verdict):
                code, view = self._restart_exit_code, self.state.view
                seen = {"synced": view.synced, "deprecated": view.deprecated} if view else {}
                self._log.warning("restarting_in_place", epoch=epoch, verdict=verdict.value, **seen, exit_code=code)
                self._driver.end(code)

    async def before_announcement(self) -> None:
        """Send at once."""

    def after_announcement(self) -> None:
        """Do nothing."""
