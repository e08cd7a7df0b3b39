"""
The supervisor's shell: an `Agent` that is the worker's parent.

It differs from a sidecar in one thing: a group restart ends and starts a child process instead of the agent itself. The
watch and the connection for announcements stay open. `common.epoch.supervisor` decides; this class starts and stops the
worker and reports its end.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any, Final

from inplace.agent.arguments import RunOptions
from inplace.agent.config import AgentConfig
from inplace.agent.exit_code import ExitCode
from inplace.agent.runtime import Agent
from inplace.agent.worker import EPOCH, STUCK_S, Worker, WorkerStartError, WorkerStuckError
from inplace.common.epoch import supervisor
from inplace.common.epoch.agent import Announce, Phase, View
from inplace.common.epoch.supervisor import (
    Leave,
    Life,
    StartWorker,
    StopWorker,
    SupervisorState,
    Terminate,
    WorkerExited,
    WorkerGone,
    WorkerNotStarted,
)

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
        self._machine = SupervisorState(
            self._state,
            final_codes=options.final_codes,
            restart_code=config.restart_exit_code if options.once else None,
        )
        self._stop_signal = signal.SIGTERM
        self._patience: asyncio.Task[None] | None = None  # while the worker is being stopped
        self._watch_over: asyncio.Task[None] | None = None  # of the newest worker
        self._ordered_s: float | None = None  # when a view made the whole group announce again

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
        announced_before = self._state.epoch > 0
        self._machine, actions = supervisor.step(self._machine, event)
        self._state = self._machine.agent
        if (
            announced_before
            and isinstance(event, View)
            and isinstance(next(iter(actions), None), StopWorker | Announce)
        ):
            self._ordered_s = self._clock.monotonic_s()
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
                self._leave(code)
            case _:
                super()._perform(action)

    async def _announce(self, epoch: int) -> None:
        """Announce; while the group waits at the barrier, the next worker's process may get ready."""
        await self._take_slot()
        await super()._announce(epoch)
        if self._options.standby and self._machine.life is Life.ABSENT and self._state.phase is Phase.WAITING:
            self._worker.stage()

    async def _take_slot(self) -> None:
        """Spread what every supervisor of a large group sends on the same view; who found out by itself goes first."""
        if self._ordered_s is not None:
            due_s, self._ordered_s = self._ordered_s + self._config.restart_slot_s, None
            await self._clock.sleep(max(0.0, due_s - self._clock.monotonic_s()))

    def _start(self, epoch: int | None) -> None:
        """Start the worker BEFORE anything else is done; then watch over it."""
        env = {EPOCH: "" if epoch is None else str(epoch), RESTART_COUNT: str((epoch or 1) - 1)}
        self._remember_run(epoch)
        began_s = self._clock.monotonic_s()
        try:
            self._worker.start(env)
        except WorkerStartError as error:
            self._log.error("worker_not_started", message=str(error), then=f"exit {error.code}")
            asyncio.get_running_loop().call_soon(self._take_own, WorkerNotStarted(error.code))
            return
        self._phases.worker_runs(self._clock.monotonic_s() - began_s)
        self._watch_over = self._tasks.create_task(self._see_off())
        self._lift(epoch)

    def _stop(self, action: StopWorker) -> None:
        """Tell the worker to end, and be patient for a while, or not."""
        self._phases.worker_down()
        if action.at_once:
            grace_s, number, why = 0.0, signal.SIGKILL, "told twice to end"
        elif action.verdict is None:
            grace_s, number, why = self._options.termination_grace_s, self._stop_signal, "the Pod ends"
        else:
            grace_s, number, why = self._options.grace_s, signal.SIGTERM, action.verdict.value
        self._worker.signal(number)
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self._tasks.create_task(self._kill_after(grace_s))
        self._log.info("worker_stopping", why=why, signal=number.name, grace_s=grace_s)

    async def _kill_after(self, grace_s: float) -> None:
        """Kill the worker's main process after its grace; cancelled when it ends by itself."""
        await self._clock.sleep(grace_s)
        self._log.warning("worker_killed", message=f"the worker did not end within {grace_s:g} s")
        self._worker.signal(signal.SIGKILL)
        await self._clock.sleep(STUCK_S)
        self._give_up(f"the worker's main process survives SIGKILL for more than {STUCK_S:g} s")

    def _give_up(self, problem: str) -> None:
        then = f"exit {ExitCode.WORKER_STUCK.value}; the next epoch is not announced"
        self._log.error("worker_stuck", message=problem, then=then)
        self._leave(ExitCode.WORKER_STUCK)

    def _leave(self, code: int) -> None:
        """End the process, and every task that still waits for the worker."""
        for task in (self._patience, self._watch_over):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._exit.set_result(code)

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
            self._give_up(str(error))
            return
        gone_s = self._clock.monotonic_s()
        self._phases.worker_gone()
        self._take_own(WorkerGone())
        await asyncio.sleep(0)  # the announcement goes first
        self._log.info("worker_exited", exit_code=code, leftovers_s=round(gone_s - ended_s, 4))
