"""
A sidecar's agent: it lifts the barrier of another container, and a group restart ends its own process.

Where a guard is the worker's parent, the agent hears of the worker's death at once, tells the controller, and leaves.
It does the same when its watchdog finds that the worker hangs.
`common.protocol.sidecar` decides; this class performs.
"""

from __future__ import annotations

import signal

from inplace.agent.agent import Agent
from inplace.agent.deps import AgentDeps
from inplace.agent.link.agent_end import Link, NoLink
from inplace.agent.start.config import AgentConfig
from inplace.common.protocol.agent import AgentState, LiftBarrier, RestartInPlace
from inplace.common.protocol.failure_report import WorkerFailed, WorkerStalled
from inplace.common.protocol.sidecar import Event, RestartPod, SidecarState, step


class SidecarAgent(Agent):
    """One Pod's agent beside its worker's container.

    Args:
        link: to the guards of its workers.
    """

    def __init__(self, config: AgentConfig, deps: AgentDeps, link: Link | None = None) -> None:
        super().__init__(config, deps)
        self._machine = SidecarState(AgentState(previous=config.previous_epoch, reached=config.reached_epoch))
        self._link = link or NoLink()

    @property
    def state(self) -> AgentState:
        """Return where the agent's own machine stands."""
        return self._machine.agent

    async def run(self) -> int:
        """Run until the Pod must restart in place, or cannot; return the process's exit code."""
        await self._link.start(self._worker_ended)
        try:
            return await super().run()
        finally:
            await self._link.stop()

    def terminate(self, number: signal.Signals) -> None:
        """End by a signal."""
        self._log.info("signalled", signal=number.name, then=f"exit {128 + number}")
        self.end(128 + number)

    def runs(self) -> bool:
        """Say whether some guard's worker runs."""
        return self._link.runs()

    def step(self, event: Event) -> tuple[object, ...]:
        """Advance the machine."""
        self._machine, actions = step(self._machine, event)
        return actions

    def perform(self, action: object) -> None:
        """Let the worker start, or end this process."""
        match action:
            case LiftBarrier(epoch):
                self._lift(epoch)
            case RestartInPlace(epoch, verdict):
                view = self.state.view
                seen = {"synced": view.synced, "deprecated": view.deprecated} if view else {}
                self._leave(epoch, verdict=verdict.value, **seen)
            case RestartPod(WorkerFailed(epoch, code)):
                self._leave(epoch, verdict="worker_failed", worker_exit_code=code)
            case RestartPod(WorkerStalled(epoch)):
                self._leave(epoch, verdict="worker_stalled")

    async def before_announcement(self) -> None:
        """Wait for the checks of the guards, where there are any."""
        await self._link.until_fit()

    def _worker_ended(self, epoch: int, code: int | None) -> None:
        """Tell the machine of a failure, and the next announcement of a completion: that is none by itself."""
        if code == 0:
            self.phases.worker_completed()
        else:
            self.take(WorkerFailed(epoch, code))

    def _lift(self, epoch: int | None) -> None:
        """Forget the last worker's progress BEFORE the guards may start the next one."""
        self.remember_run(epoch)
        if self._stalls is not None:
            self._stalls.begin(epoch)
            watching = self._stalls.watch(self.take, self._link.runs, self._link.examine)
            self._watching = self.start_task(watching)
        self._link.lift(epoch)
        self.lift(epoch)

    def _leave(self, epoch: int, **why: object) -> None:
        """End this process, and let the guards end their workers NOW: kubelet restarts what has ended together."""
        code = self._config.restart_exit_code
        self._link.leave()
        if self._stalls is not None:
            self.phases.worker_stepped(self._stalls.finish())
        self._log.warning("restarting_in_place", epoch=epoch, **why, exit_code=code)
        self.end(code)
