"""
A supervisor's agent: it is the worker's parent, or the agent of a guard that is (depth `process`).

It differs from a sidecar in one thing: a group restart ends and starts a process instead of the agent itself. The watch
and the connection for announcements stay open. `common.protocol.supervisor` decides; this class starts and stops the
worker and reports its end.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from inplace.agent.agent import Agent
from inplace.agent.deps import AgentDeps
from inplace.agent.link.address import PROGRESS_DIR, SAVE_FILE
from inplace.agent.progress.worker_progress import WorkerProgress
from inplace.agent.start.arguments import RunOptions
from inplace.agent.start.config import AgentConfig
from inplace.agent.start.epoch_file import Failures
from inplace.agent.start.exit_code import ExitCode, UnfitError
from inplace.agent.worker.command import epoch_variables
from inplace.agent.worker.outside_signals import HARMLESS
from inplace.agent.worker.process import Worker, WorkerLostError, WorkerStartError, WorkerStuckError
from inplace.agent.worker.process_tree import STUCK_S
from inplace.agent.worker.stop_signal import signal_name
from inplace.common.protocol.agent import AgentPhase, AgentState, Announce, Verdict, View
from inplace.common.protocol.supervisor import (
    Event,
    Leave,
    StartWorker,
    StopWorker,
    SupervisorState,
    Terminate,
    WorkerExited,
    WorkerGone,
    WorkerLife,
    WorkerLost,
    WorkerNotStarted,
    step,
)
from inplace.common.wire.names import DEPTH_PROCESS

if TYPE_CHECKING:
    from inplace.agent.worker.outside_signals import OutsideSignals
    from inplace.agent.worker.save_requests import SaveRequests


class SupervisorAgent(Agent):
    """One Pod's agent, which is its worker's parent.

    Args:
        config: settings, already checked.
        worker: starts and ends the worker's processes.
        options: how the worker is run.
        outside: the signals for a worker that is this process's child; None where a guard gets them.
    """

    def __init__(
        self,
        config: AgentConfig,
        deps: AgentDeps,
        *,
        worker: Worker,
        options: RunOptions,
        outside: OutsideSignals | None = None,
    ) -> None:
        super().__init__(config, deps)
        self._worker = worker
        self._options = options
        self._outside = outside
        failures = self._recall_failures()
        self._progress = WorkerProgress(failures.best_step)
        self._began_s = 0.0  # when the newest worker started
        is_guarded = config.restart_depth == DEPTH_PROCESS
        self._machine = SupervisorState(
            AgentState(previous=config.previous_epoch, reached=config.reached_epoch, leased=config.fence_after_s == 0),
            final_codes=options.final_codes,
            restart_code=config.restart_exit_code if options.once else None,
            clean_code=config.restart_exit_code if is_guarded else config.container_restart_exit_code,
            is_guarded=is_guarded,
            clean_after=config.clean_after,
            failures=failures.count,
        )
        if config.fence_after_s:
            from inplace.agent.announce.lease_keeper import LeaseKeeper

            self.lease_keeper = LeaseKeeper(config, deps, self, worker.grace_s)
        self._saving: asyncio.Task[None] | None = None  # while SIGTERM is held back
        self._stop_signal = int(signal.SIGTERM)
        self._patience: asyncio.Task[None] | None = None  # while the worker is being stopped
        self._watch_over: asyncio.Task[None] | None = None  # of the newest worker
        self._is_fit = False  # its check is over, and no worker ran since
        self._ordered_s: float | None = None  # when a view made the whole group announce again

    @property
    def state(self) -> AgentState:
        """Return where the agent's own machine stands."""
        return self._machine.agent

    async def run(self) -> int:
        """Run until the Pod ends; return the exit code. Whatever happens, no process of the worker is left."""
        await self._worker.prepare()
        try:
            return await super().run()
        finally:
            await self._worker.close()

    def terminate(self, number: int) -> None:
        """Take note that this process was told to end; the worker is told by the same signal, once it could save."""
        runs = self._machine.life is WorkerLife.RUNNING and self.state.phase is AgentPhase.LIFTED
        epoch = self.state.epoch if runs else 0
        if self._saves is not None and self._saves.hold(number, epoch, self._clock.monotonic_s()):
            self._stop_signal = number
            self._saving = self.start_task(self._end_saving(self._saves))
            return
        if self._saving is not None:
            self._saving.cancel()
        self._terminate(number)

    async def _end_saving(self, saves: SaveRequests) -> None:
        """Let the worker save and end; cancelled when it has ended."""
        await self._clock.sleep(saves.within_s)
        if saves.let_go():
            self._terminate(saves.held)

    def _terminate(self, number: int) -> None:
        self._log.info("signalled", signal=signal_name(number), then="the worker is ended first")
        self._stop_signal = number
        self.take(Terminate(number))

    def take_signals(self) -> None:
        """Pass signals on to the worker, and end with it by one that ends the Pod."""
        for number, ends in self._outside.read() if self._outside is not None else ():
            if ends:
                self.terminate(number)
            elif self._machine.life is WorkerLife.ABSENT and number not in HARMLESS:
                self._terminate(number)  # as a guard: there is no worker that it could be for
            else:
                self._worker.signal(number)

    def runs(self) -> bool:
        """Say whether the worker runs."""
        return self._worker.runs()

    def step(self, event: Event) -> tuple[object, ...]:
        """Advance the machine."""
        announced_before = self.state.epoch > 0
        self._machine, actions = step(self._machine, event)
        if (
            announced_before
            and isinstance(event, View)
            and isinstance(next(iter(actions), None), StopWorker | Announce)
        ):
            self._ordered_s = self._clock.monotonic_s()
        return actions

    def perform(self, action: object) -> None:
        """Start or stop the worker, or end this process."""
        match action:
            case StartWorker(epoch):
                self._start(epoch)
            case StopWorker():
                self._stop(action)
            case Leave(code):
                if code == self._machine.clean_code:
                    self._explain(code)
                self._leave(code)

    async def before_announcement(self) -> None:
        """Check this Pod, and spread what every supervisor of a large group sends on the same view.

        Who found out by itself goes first.
        """
        if not self._is_fit:
            try:
                await self._worker.until_fit(self.state.epoch)
            except UnfitError as error:
                self._log.error("check_failed", message=str(error), then=f"exit {ExitCode.UNFIT.value}")
                self._leave(ExitCode.UNFIT)
                return
            except WorkerStuckError as error:
                self._give_up(str(error))
                return
            self._is_fit = True
        if self._ordered_s is not None:
            due_s, self._ordered_s = self._ordered_s + self._config.restart_slot_s, None
            await self._clock.sleep(max(0.0, due_s - self._clock.monotonic_s()))

    def _start(self, epoch: int | None) -> None:
        """Start the worker BEFORE anything else is done; then watch over it."""
        env = epoch_variables(epoch)
        self._is_fit = False
        self.remember_run(epoch)
        if self._stalls is not None:
            self._stalls.begin(epoch)
            if self._stalls.folder:
                env[PROGRESS_DIR] = self._stalls.folder
        if self._saves is not None:
            env[SAVE_FILE] = self._saves.path
        began_s = self._began_s = self._clock.monotonic_s()
        try:
            self._worker.start(env)
        except WorkerStartError as error:
            self._log.error("worker_not_started", message=str(error), then=f"exit {error.code}")
            asyncio.get_running_loop().call_soon(self.take, WorkerNotStarted(error.code))
            return
        self.phases.worker_runs(self._clock.monotonic_s() - began_s)
        self._watch_over = self.start_task(self._see_off())
        if self._stalls is not None:
            watching = self._stalls.watch(self.take, self._worker.runs, self._worker.examine)
            self._watching = self.start_task(watching)
        self.lift(epoch)

    def _stop(self, action: StopWorker) -> None:
        """Tell the worker to end, and be patient for a while, or not."""
        self.phases.worker_down()
        self._stop_watching()
        if action.stalled:
            why = "it hangs" if action.verdict is None else f"it hangs, and its epoch is {action.verdict.value}"
            grace_s, number = 0.0, int(signal.SIGKILL)  # a stopped process takes no SIGTERM
        elif action.verdict is Verdict.FENCED:
            grace_s, number, why = 0.0, signal.SIGKILL, "its lease is over"
        elif action.at_once:
            grace_s, number, why = 0.0, signal.SIGKILL, "told twice to end"
        elif action.verdict is None:
            grace_s, number, why = self._options.termination_grace_s, self._stop_signal, "the Pod ends"
        else:
            grace_s, number, why = self._options.grace_s, signal.SIGTERM, action.verdict.value
        parents_s = self._worker.grace_s()
        if parents_s is not None and number != signal.SIGKILL:
            grace_s = parents_s
        self._worker.signal(number)
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.start_task(self._kill_after(grace_s))
        self._log.info("worker_stopping", why=why, signal=signal_name(number), grace_s=grace_s)

    def _stop_watching(self) -> None:
        """Judge this worker no longer: it ends."""
        self._reporter.keep_silent()
        if self._watching is not None and self._watching is not asyncio.current_task():
            self._watching.cancel()

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

    def _explain(self, code: int) -> None:
        """Log why kubelet is to start every container of this Pod anew."""
        count, why = self._machine.failures, "a container of a worker is gone"
        if 0 < self._config.clean_after <= count:
            why = f"the worker failed {count} times in a row without progress"
        self._log.warning("clean_containers_wanted", epoch=self.state.epoch, why=why, exit_code=code)

    def _recall_failures(self) -> Failures:
        """Return how the workers of this Pod failed before this process."""
        failures, problem = self._memory.recall_failures()
        if problem is not None:
            self._log.warning("failures_not_recalled", message=problem, then="the next failure counts as the first")
        return failures

    def _remember_failures(self) -> None:
        """Keep for the next container how the worker failed."""
        problem = self._memory.remember_failures(Failures(self._machine.failures, self._progress.best))
        if problem is not None:
            self._log.warning("failures_not_kept", message=problem, then="the next container does not know of them")

    def _leave(self, code: int) -> None:
        """End the process, and every task that still waits for the worker."""
        for task in (self._patience, self._watch_over, self._saving):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self.end(code)

    async def _see_off(self) -> None:
        """Report the worker's end, and then that nothing is left of it: only then may the next epoch be announced."""
        try:
            code: int | None = await self._worker.exited()
        except WorkerLostError as lost:
            code = None
            if lost.completed:
                self.phases.worker_completed()
        self._stop_watching()
        self.phases.worker_down()
        stepped = self._stalls.finish() if self._stalls is not None else ""
        if self._stalls is not None:
            self.phases.worker_stepped(stepped)
        self.begin_run()
        if self._saving is not None and self._saves is not None and self._saves.let_go():
            self._saving.cancel()
            self._terminate(self._saves.held)  # BEFORE its end, which is no completion then, and no failure
        elif self._outside is not None and (number := self._outside.ended_worker()):
            self._terminate(number)  # likewise
        ended_s = self._clock.monotonic_s()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        progressed = self._progress.after_run(stepped, ended_s - self._began_s)
        before = self._machine.failures
        self.take(WorkerLost() if code is None else WorkerExited(code, progressed))
        if self._machine.failures and (progressed or self._machine.failures != before):
            self._remember_failures()
        self.lower()
        try:
            await self._worker.gone()
        except WorkerStuckError as error:
            self._give_up(str(error))
            return
        except WorkerLostError:
            if code is not None:
                self.take(WorkerLost())
            return
        gone_s = self._clock.monotonic_s()
        self.phases.worker_gone()
        self.take(WorkerGone())
        await asyncio.sleep(0)  # the announcement goes first
        self._log.info("worker_exited", exit_code=code, leftovers_s=round(gone_s - ended_s, 4))
