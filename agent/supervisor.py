"""
The supervisor's shell: an `Agent` that is the worker's parent.

It differs from a sidecar in one thing: a group restart ends and starts a child process instead of the agent's own. The
watch and the connection for announcements stay as they are. `common.epoch.supervisor` decides; this class tells the
worker and reports what became of it.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any, Final

from agent.arguments import RunOptions
from agent.config import AgentConfig
from agent.exit_code import ExitCode
from agent.runtime import Agent
from agent.worker import Worker, WorkerStartError, WorkerStuckError
from common.epoch import supervisor
from common.epoch.supervisor import (
    Leave,
    StartWorker,
    StopWorker,
    SupervisorState,
    Terminate,
    WorkerExited,
    WorkerGone,
    WorkerNotStarted,
)

EPOCH: Final = "INPLACE_EPOCH"  # the worker's environment: the epoch it runs in; "" when in-place restart is off
RESTART_COUNT: Final = "INPLACE_RESTART_COUNT"  # the same in every worker of the group: epoch - 1


class Supervisor(Agent):
    """One Pod's agent and its worker.

    Args:
        config: settings, already checked.
        worker: starts and ends the worker's processes.
        options: how the worker is run.
        parts: as for `Agent`.
    """

    def __init__(self, config: AgentConfig, *, worker: Worker, options: RunOptions, **parts: Any) -> None:
        super().__init__(config, **parts)
        self._worker = worker
        self._options = options
        self._machine = SupervisorState(self._state, final_codes=options.final_codes)
        self._stop_signal = signal.SIGTERM
        self._patience: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Run until the Pod ends; return the exit code. Whatever happens, no process of the worker is left."""
        self._worker.prepare()
        try:
            return await super().run()
        finally:
            self._worker.kill()

    def terminate(self, number: signal.Signals) -> None:
        """Take note that this process was told to end; the worker is told by the same signal."""
        self._log.info("signalled", signal=number.name, then="the worker is ended first")
        self._stop_signal = number
        self._take_own(Terminate(number))

    def forward(self, number: signal.Signals) -> None:
        """Pass a signal on to the worker."""
        self._worker.signal(number)

    def _advance(self, event: supervisor.Event) -> tuple[object, ...]:
        self._machine, actions = supervisor.step(self._machine, event)
        self._state = self._machine.agent
        return actions

    def _take_own(self, event: supervisor.Event) -> None:
        self._take(event)  # type: ignore[arg-type]  # the sidecar's events and more, for `_advance` alone

    def _perform(self, action: object) -> None:
        match action:
            case StartWorker(epoch):
                self._start(epoch)
            case StopWorker():
                self._stop(action)
            case Leave(code):
                self._exit.set_result(code)
            case _:
                super()._perform(action)

    def _start(self, epoch: int | None) -> None:
        """Start the worker BEFORE anything else is done; then watch over it."""
        env = {EPOCH: "" if epoch is None else str(epoch), RESTART_COUNT: str((epoch or 1) - 1)}
        began_s = self._clock.monotonic_s()
        try:
            self._worker.start(env)
        except WorkerStartError as error:
            self._log.error("worker_not_started", message=str(error), then=f"exit {error.code}")
            asyncio.get_running_loop().call_soon(self._take_own, WorkerNotStarted(error.code))
            return
        self._phases.worker_runs(self._clock.monotonic_s() - began_s)
        self._tasks.create_task(self._see_off())
        self._lift(epoch)

    def _stop(self, action: StopWorker) -> None:
        """Tell the worker to end, and be patient for a while, or not."""
        self._phases.worker_down()
        if action.at_once:
            self._worker.signal(signal.SIGKILL)
            return
        if action.verdict is None:
            grace_s, number, why = self._options.termination_grace_s, self._stop_signal, "the Pod ends"
        else:
            grace_s, number, why = self._options.grace_s, signal.SIGTERM, action.verdict.value
        self._worker.signal(number)
        self._patience = self._tasks.create_task(self._kill_after(grace_s))
        self._log.info("worker_stopping", why=why, signal=number.name, grace_s=grace_s)

    async def _kill_after(self, grace_s: float) -> None:
        await self._clock.sleep(grace_s)
        self._log.warning("worker_killed", message=f"the worker did not end within {grace_s:g} s")
        self._worker.signal(signal.SIGKILL)

    async def _see_off(self) -> None:
        """Report the worker's end, and then that nothing is left of it: only then may the next epoch be announced."""
        code = await self._worker.exited()
        self._phases.worker_down()
        ended_s = self._started_s = self._clock.monotonic_s()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        self._take_own(WorkerExited(code))
        self._barrier.close()
        self._metrics.lifted = False
        try:
            await self._worker.gone()
        except WorkerStuckError as error:
            then = f"exit {ExitCode.WORKER_STUCK.value}; the next epoch is not announced"
            self._log.error("worker_stuck", message=str(error), then=then)
            self._exit.set_result(ExitCode.WORKER_STUCK)
            return
        gone_s = self._clock.monotonic_s()
        self._phases.worker_gone()
        self._take_own(WorkerGone())
        await asyncio.sleep(0)  # the announcement goes first
        self._log.info("worker_exited", exit_code=code, leftovers_s=round(gone_s - ended_s, 4))
