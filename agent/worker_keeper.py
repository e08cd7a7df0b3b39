"""
Start, watch and end this Pod's worker, run after run, and tell the Pod's machine how each run goes.

`common.protocol.pod` decides; this class performs what concerns the worker, whose parents are guards.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from inplace.agent.deps import AgentDeps
from inplace.agent.link.linked_worker import LinkedWorker, WorkerLostError, WorkerStuckError
from inplace.agent.progress.worker_progress import WorkerProgress
from inplace.agent.report.phases import RestartPhases
from inplace.agent.settings.epoch_file import Failures
from inplace.agent.settings.exit_code import ExitCode
from inplace.agent.worker.process_tree import STUCK_S
from inplace.common.bare.typed import Final
from inplace.common.protocol.agent import AgentPhase, Verdict
from inplace.common.protocol.failure_report import WorkerRaised
from inplace.common.protocol.link import Lifted
from inplace.common.protocol.pod import (
    Event,
    PodState,
    StopWorker,
    Terminate,
    WorkerExited,
    WorkerGone,
    WorkerLife,
    WorkerLost,
)
from inplace.common.wire.stop_signal import signal_name

if TYPE_CHECKING:
    from inplace.agent.progress.last_words import LastWords
    from inplace.agent.worker.save_requests import SaveRequests
    from inplace.common.protocol.stall import StallState

EXIT_S: Final = 5.0  # exit handlers of a rank that failed: to flush logs takes some seconds, to wait for peers for ever
_KILLED: Final = (128 + signal.SIGKILL, 128 + signal.SIGTERM)


class WorkerKeeper:
    """Keeps one Pod's worker.

    Args:
        worker: starts and ends the worker's processes.
        progress_dir: where its ranks say how far they are; "" for none.
        phases: told when the worker starts and ends.
        state: returns where the Pod's machine stands.
        take: advances the machine by an event.
        end: ends the agent with an exit code.
        on_look: told what is known of the worker's ranks after each look at them.
    """

    def __init__(
        self,
        deps: AgentDeps,
        worker: LinkedWorker,
        *,
        progress_dir: str,
        phases: RestartPhases,
        state: Callable[[], PodState],
        take: Callable[[Event], None],
        end: Callable[[int], None],
        on_look: Callable[[StallState], object],
    ) -> None:
        self._worker = worker
        self._clock = deps.clock
        self._log = deps.log
        self._memory = deps.memory
        self._stalls = deps.stalls
        self._saves = deps.saves
        self._tails = deps.tails
        self._progress_dir = progress_dir
        self._lifted = Lifted(0)  # of the newest worker
        self._phases = phases
        self._state = state
        self._take = take
        self._tasks = deps.tasks
        self._patches = deps.patches
        self._end = end
        self._on_look = on_look
        failures = self._recall_failures()
        self.failures = failures.count
        self.run_failed = True  # the newest run was not told to end, or it was before this process
        self._progress = WorkerProgress(failures.best_step)
        self._began_s = 0.0  # when the newest worker started
        self._is_counted = True  # how far that worker got was noted
        self._is_fit = False  # its check is over, and no worker ran since
        self._stop_signal = int(signal.SIGTERM)
        self._saving: asyncio.Task[None] | None = None  # while SIGTERM is held back
        self._patience: asyncio.Task[None] | None = None  # while the worker is being stopped
        self._seeing_off: asyncio.Task[None] | None = None  # the newest worker
        self._watching: asyncio.Task[None] | None = None  # for a stall of it
        self._listening: asyncio.Task[None] | None = None  # for an exception that ends a rank of it
        self._words: LastWords | None = None  # what that was

    async def until_fit(self) -> None:
        """Wait for this Pod's checks, once before each start."""
        if not self._is_fit:
            await self._worker.until_fit()
            self._is_fit = True

    def start(self, lifted: Lifted) -> None:
        """Start the worker BEFORE anything else is done, then watch over it."""
        epoch = lifted.epoch or None
        self._is_fit, self._words, self._lifted = False, None, lifted
        self._patches.forget_end()
        if self._stalls is not None:
            self._stalls.begin(epoch)
        began_s = self._began_s = self._clock.monotonic_s()
        self._worker.start(lifted)
        self._is_counted = False
        if self._state().restart_code is None:  # a guard in depth `containers` starts the worker later
            self._phases.worker_runs(self._clock.monotonic_s() - began_s)
        self._seeing_off = self._tasks.create_task(self._see_off())
        if self._stalls is not None and self._stalls.words_folder and epoch:
            self._listening = self._tasks.create_task(self._hear_end(self._stalls.words_folder, epoch))
        if self._stalls is not None:
            self._watching = self._tasks.create_task(self._stalls.watch(self._worker, self._take, self._on_look))

    def stop(self, action: StopWorker) -> None:
        """Tell the worker to end, and be patient for a while, or not."""
        self._phases.worker_down()
        self._stop_watching()
        if action.stalled:
            why = "it hangs" if action.verdict is None else f"it hangs, and its epoch is {action.verdict.value}"
            number = int(signal.SIGKILL)  # a stopped process takes no SIGTERM
        elif action.verdict is Verdict.FENCED:
            number, why = signal.SIGKILL, "its lease is over"
        elif action.at_once:
            number, why = signal.SIGKILL, "told twice to end"
        elif action.raised or (action.verdict is not None and self._has_failed()):
            number, why = signal.SIGCONT, "a rank of it has failed, and may run exit handlers"  # ends nobody
        elif action.verdict is None:
            number, why = self._stop_signal, "the Pod ends"
        else:
            number, why = signal.SIGTERM, action.verdict.value
        grace_s = 0.0 if number == signal.SIGKILL else self._worker.grace_s()
        if number == signal.SIGCONT:
            grace_s = EXIT_S
        self._worker.signal(number)  # guards learn from any that no worker starts in this epoch any more
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self._tasks.create_task(self._kill_after(grace_s))
        self._log.info("worker_stopping", why=why, signal=signal_name(number), grace_s=grace_s)

    def runs(self) -> bool:
        """Say whether a worker of this Pod was started, and has not begun to end."""
        return self._worker.runs()

    def terminate(self, number: int) -> None:
        """Take note that this process was told to end; the worker is told by the same signal, once it could save."""
        state = self._state()
        runs = state.life is WorkerLife.RUNNING and state.agent.phase is AgentPhase.LIFTED
        epoch = state.agent.epoch if runs and state.restart_code is None else 0
        if self._saves is not None and self._saves.hold(number, epoch, self._clock.monotonic_s()):
            self._stop_signal = number
            self._saving = self._tasks.create_task(self._end_saving(self._saves))
            return
        if self._saving is not None:
            self._saving.cancel()
        self._terminate(number)

    def leave(self) -> None:
        """End every task, as this process ends, and note for the next one how far the worker got."""
        for task in (self._patience, self._seeing_off, self._saving, self._watching, self._listening):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        if not self._is_counted:
            self._count_steps()
        if self._worker.completed():
            self._phases.worker_ended(0)

    async def _end_saving(self, saves: SaveRequests) -> None:
        """Let the worker save and end; cancelled when it has ended."""
        await self._clock.sleep(saves.within_s)
        if saves.let_go():
            self._terminate(saves.held)

    def _terminate(self, number: int) -> None:
        then = "the worker is ended first" if self._state().restart_code is None else f"exit {128 + number}"
        self._log.info("signalled", signal=signal_name(number), then=then)
        self._stop_signal = number
        self._take(Terminate(number))

    def _stop_watching(self) -> None:
        """Judge this worker no longer: it ends."""
        for task in (self._watching, self._listening):
            if task is not None and task is not asyncio.current_task():
                task.cancel()

    async def _hear_end(self, folder: str, epoch: int) -> None:
        """Tell at once that a rank's main thread has ended by an exception: its process may hang for ever."""
        from inplace.agent.progress.last_words import first_end
        from inplace.common.wire.last_line import clean_line

        while True:
            words = await first_end(folder, epoch, self._clock)
            if self._worker.runs() and words.code not in self._worker.final_codes:
                break  # else this Pod ends, or its own end is what the code is for
        assert words.code is not None
        self._words = words
        self._patches.note_end(epoch, words.at_s, words.line)
        self._log.warning("rank_failed", epoch=epoch, exit_code=words.code, message=clean_line(words.line))
        self._take(WorkerRaised(epoch, words.code))

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
        self._end(ExitCode.WORKER_STUCK)

    async def _see_off(self) -> None:
        """Report the worker's end, and then that nothing is left of it: only then may the next epoch be announced."""
        try:
            code: int | None = await self._worker.exited()
        except WorkerLostError:
            code = None
        self._stop_watching()
        self._phases.worker_down()
        stepped = self._count_steps()
        if self._saving is not None and self._saves is not None and self._saves.let_go():
            self._saving.cancel()
            self._terminate(self._saves.held)  # BEFORE its end, which is no completion then, and no failure
        elif code is not None:
            self._note_end(code)
        self.run_failed = self._patience is None or self._words is not None
        self._note_step(failed=bool(code) and self.run_failed)
        ended_s = self._clock.monotonic_s()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        progressed = self._progress.after_run(stepped, ended_s - self._began_s)
        self._take(WorkerLost() if code is None else WorkerExited(code, progressed))
        self._remember_failures(progressed=progressed)
        try:
            await self._worker.gone()
        except WorkerStuckError as error:
            self._give_up(str(error))
            return
        except WorkerLostError:
            if code is not None:
                self._take(WorkerLost())
            return
        gone_s = self._clock.monotonic_s()
        self._phases.worker_gone()
        self._take(WorkerGone())
        await asyncio.sleep(0)  # the announcement goes first
        self._log.info("worker_exited", exit_code=code, leftovers_s=round(gone_s - ended_s, 4))

    def _note_step(self, *, failed: bool) -> None:
        """Take note of how the run ended that went on from a step: one from which none gets further is unfit."""
        epoch, step = self._lifted.epoch, self._lifted.step
        if step is None or not self._progress_dir:
            return
        from inplace.agent.progress.saved_steps import note_run

        if note_run(self._progress_dir, self._memory, epoch, step, failed=failed):
            message = "two runs in a row went on from this step and failed before their first one"
            self._log.warning("step_unfit", step=step, message=message, then="the group goes on from another one")

    def _note_end(self, code: int) -> None:
        """Hand on how the worker ended by itself: also one that was told to end when a rank had failed already.

        The exception of a rank that uses `inplace` comes first, then the last line of the output. One that was killed
        had no time for last words.
        """
        now_s, epoch = self._clock.wall_s(), self._state().agent.epoch
        words = self._words if self._patience is not None or not code else self._last_words(epoch)
        if self._patience is not None:
            if words is None or words.code is None:
                return
            code = words.code
        self._phases.worker_ended(code)
        if not code or not epoch:
            return
        from inplace.common.wire.last_line import is_bare_exit

        line = words.line if words is not None else ""
        if is_bare_exit(line) and self._tails is not None and code not in _KILLED:
            line = self._tails.last_line(epoch) or line
        self._patches.note_end(epoch, min(words.at_s, now_s) if words is not None else now_s, line)

    def _has_failed(self) -> bool:
        """Say whether a rank had failed BEFORE the worker is told to end: that may end ranks by an exception, too."""
        words = self._last_words(self._state().agent.epoch)
        self._words = words if words is not None and words.code is not None else None
        return self._words is not None

    def _last_words(self, epoch: int) -> LastWords | None:
        """Return what ended the worker of an epoch; None where it left nothing, or its epoch is nobody's."""
        if self._words is not None or self._stalls is None or not self._stalls.words_folder or not epoch:
            return self._words
        from inplace.agent.progress.last_words import last_words

        return last_words(self._stalls.words_folder, epoch)

    def _count_steps(self) -> str:
        """Note how far the worker got, for the next announcement; return that text, "" where nobody watched it."""
        self._is_counted = True
        stepped = self._stalls.finish() if self._stalls is not None else ""
        if self._stalls is not None:
            self._phases.worker_stepped(stepped)
        return stepped

    def _recall_failures(self) -> Failures:
        """Return how the workers of this Pod failed before this process."""
        failures, problem = self._memory.recall_failures()
        if problem is not None:
            self._log.warning("failures_not_recalled", message=problem, then="the next failure counts as the first")
        return failures

    def _remember_failures(self, *, progressed: bool) -> None:
        """Keep for the next container how the worker failed, if that is new."""
        before, self.failures = self.failures, self._state().failures
        if not self.failures or not (progressed or self.failures != before):
            return
        problem = self._memory.remember_failures(Failures(self.failures, self._progress.best))
        if problem is not None:
            self._log.warning("failures_not_kept", message=problem, then="the next container does not know of them")
