"""
The worker host: the parent of one worker's process tree, and of what runs beside the worker.

A guard is such a parent. The host starts a worker, signals it, and reaps every child. When the worker's main process
has ended, it kills the rest of the tree at once, as the kernel does with a container's processes, and says when the
kernel knows no child any more but a standby that waits, and an agent (`agent.worker.process_tree`). Beside the worker
it runs the check of `--before-announce`, the command of `--on-stall`, and the standby.

It waits for nothing, and knows neither poll nor asyncio. Its owner calls `reap` after SIGCHLD (its handler is there
BEFORE the first worker, so no end is lost; a pidfd would report the worker only), `go_on` at `due_s()`, and what it
gave to `Readers` when a descriptor can be read.

On the guard's start path: what a plain worker does not need is loaded where it is used.
"""

from __future__ import annotations

import os
import time
from _signal import SIGCONT, SIGKILL, SIGTERM  # type: ignore[import-not-found]

from inplace.agent.report.line_writer import STDERR
from inplace.agent.settings.arguments import STANDBY_ALWAYS
from inplace.agent.settings.command import ELASTIC_ERROR_FILE, EPOCH, NOT_EXECUTABLE, NOT_FOUND, PROGRESS_DIR
from inplace.common.bare.typed import TYPE_CHECKING, Callable, Final, Mapping

if TYPE_CHECKING:
    from typing import Protocol

    from inplace.agent.report.log import Log
    from inplace.agent.settings.arguments import WorkerOptions
    from inplace.agent.worker.check import Check
    from inplace.agent.worker.run_output import RunOutput
    from inplace.agent.worker.stacks_command import StacksCommand
    from inplace.agent.worker.stall_command import StallCommand
    from inplace.agent.worker.standby import Readers, Standby

    class Owner(Protocol):
        """The guard: the host calls these when something has ended."""

        def worker_exited(self, code: int) -> None:
            """The main process ended, with 128 + n after signal n; what is left of its tree is being ended."""

        def worker_gone(self, *, entirely: bool) -> None:
            """No process of the worker is left; or, not entirely, one survives SIGKILL."""

        def pod_checked(self, unfit: str) -> None:
            """Nothing of the check is left; `unfit` is why this Pod may not join its group, "" if it may."""

        def worker_examined(self, problem: str) -> None:
            """The command of --on-stall ended; `problem` is what went wrong, "" if nothing did."""

        def agent_ended(self, code: int) -> None:
            """The agent below this process ended, with 128 + n after signal n."""


SWEEP_S_FIRST: Final = 0.001  # to the second look at a tree; it is usually gone by then
SWEEP_S_MAX: Final = 0.02
_FINAL_SWEEPS_MAX: Final = 50
MARK_S_MAX: Final = 0.02  # the longest that a worker waits for a log that is not read
STARTING: Final = "worker_starting"  # `inplace logs` cuts a container's log into epochs here


class WorkerHost:
    """The parent of one worker, run after run.

    Args:
        options: the worker's command, and what runs beside it.
        env: the environment of every run.
        readers: calls back when there is something to read.
        tail_folder: where the tail of each run's output is kept; "" keeps none.
        agent: the process id of an agent that is a child of this process; 0: there is none.

    Attributes:
        main: the process id of the worker's main process until it is reaped, 0 if there is none.
    """

    def __init__(
        self,
        options: WorkerOptions,
        env: Mapping[str, str],
        *,
        owner: Owner,
        readers: Readers,
        log: Log,
        tail_folder: str = "",
        agent: int = 0,
    ) -> None:
        self._options = options
        self._env = env
        self._command = options.command  # of the present run
        self._own: Mapping[str, str] = {}  # what the present run's environment has beside it
        self._owner = owner
        self._readers = readers
        self._log = log
        self._tail_folder = tail_folder
        self._agent = agent
        self._output: RunOutput | None = None  # from the first run on
        self._unstarted: int | None = None  # the exit code of a run whose command cannot be executed, until it is told
        self.main = 0
        self._sweeps = True
        self._is_childless = True
        self._check: Check | None = None  # until nothing of it is left
        self._stall_command: StallCommand | None = None  # until it is reaped
        self._stacks: StacksCommand | None = None  # from the first request on
        self._standby: Standby | None = None
        self._hold_s: float | None = None  # when the standby has something to do
        self._swept: Callable[[bool], None] | None = None  # called when nothing is left, or something survives
        self._look_s: float | None = None  # the next look at a tree that is being ended
        self._pause_s = SWEEP_S_FIRST
        self._give_up_s = 0.0

    @property
    def is_checking(self) -> bool:
        """Say whether the check runs, or something of it."""
        return self._check is not None

    def start(
        self,
        env: Mapping[str, str],
        *,
        outlives: bool = True,
        holds_next: bool = False,
        command: tuple[str, ...] | None = None,
    ) -> None:
        """Start a worker, or release the process that is held for it, in a session of its own.

        Args:
            env: added to the environment.
            outlives: this process goes on when the worker has ended. If it does not, and is process 1, the kernel ends
                the worker's tree with it.
            holds_next: the next run's process is started early, if its command can be held.
            command: of this run, if it is not the one of the command line.

        A run whose command cannot be executed ends at once, with the exit code of a shell.
        """
        assert not self.main, f"expected no worker, saw process {self.main}"
        self.cut("the barrier is lifted")
        if self._standby is not None and self._standby.is_coming:
            self._sweep(lambda _: None)
        while self._swept is not None:  # nothing of a check, or of a standby that does not wait, runs beside a worker
            time.sleep(SWEEP_S_FIRST)
            self.reap()
        self.reap()  # a standby that just ended
        if ELASTIC_ERROR_FILE in self._env:  # the user's own
            env = {name: value for name, value in env.items() if name != ELASTIC_ERROR_FILE}
        self._own, self._sweeps = env, outlives or os.getpid() != 1
        epoch = int(env.get(EPOCH) or 0)
        if self._tail_folder:
            self._keep_output(epoch)
        self._log.info(STARTING, epoch=epoch or None)
        STDERR.settle(time.monotonic() + MARK_S_MAX)  # BEFORE the worker's first line
        before, self._command = self._command, command or self._options.command
        if self._standby is not None and self._command != before:
            self._standby.end()  # its command names another rank
        if holds_next:
            self._need_standby()
        try:
            if self._standby is None:
                self.main = self._spawn(env)
            else:
                self.main = self._standby.start(self._spawn, env)
                self._hold_s = time.monotonic() if holds_next else None
        except OSError as error:
            self._unstarted = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            self._tell_unstarted(error)

    def signal(self, number: int) -> None:
        """Send a signal to the worker's process group, if it runs. Until the reaping the group's number is ours.

        A stopped process takes SIGTERM only when it goes on: it would use up its grace.
        """
        if self.main:
            try:
                os.killpg(self.main, number)
                if number == SIGTERM:
                    os.killpg(self.main, SIGCONT)
            except (ProcessLookupError, PermissionError):
                pass

    def check(self) -> None:
        """Run `--before-announce`; the owner hears of its end."""
        from inplace.agent.worker.check import Check

        self._check = Check(self._options, self._readers, self._log)
        if not self._check.begin(self._spawn_command):
            self._end_check(NOT_EXECUTABLE)

    def await_lift(self) -> None:
        """Hold a process ready although no worker runs, if the user promised that it waits."""
        promised = self._options.standby == STANDBY_ALWAYS and not self.is_checking
        if promised and (standby := self._need_standby()) is not None:
            if self._output is None and self._tail_folder:
                self._keep_output(0)  # its output goes the way of a worker's
            self._hold_s = time.monotonic()
            standby.await_lift(self._hold_s)

    def examine(self, said: int | None, silent_s: float) -> None:
        """Run `--on-stall` for a worker that hangs; the owner hears of its end.

        Args:
            said: the silent rank's process id as its progress file has it, None if it has none.
            silent_s: how long it has been silent.
        """
        if not self.main or self._stall_command is not None:
            self._owner.worker_examined("it runs already" if self.main else "the worker ended before")
            return
        from inplace.agent.worker.stall_command import StallCommand

        command = StallCommand(self._options.on_stall, said, self.main, silent_s, self._log)
        problem = command.begin(self._spawn_command, self._own)
        if problem:
            self._owner.worker_examined(problem)
        else:
            self._stall_command = command

    def take_stacks(self, request: int) -> None:
        """Write where the worker's ranks are to the log, soon; see `agent.worker.stacks_command`."""
        if self._stacks is None:
            from inplace.agent.worker.stacks_command import StacksCommand

            self._stacks = StacksCommand(self._env, self._log)
        self._stacks.ask(request, self.main, self._own)

    def cut(self, why: str) -> None:
        """Kill the commands beside the worker, if they run. The owner does not hear of a check that was killed."""
        if self._check is not None:
            self._log.info("check_killed", why=why)
            self._check.kill()
            self._check = None
            self._sweep(lambda _: None)  # the owner is not to hear of this end
        if self._stacks is not None:
            self._stacks.kill()
        if self._stall_command is not None:
            self._log.info("stall_command_killed", why=why)
            self._stall_command.kill()

    def reap(self) -> None:
        """Take in every child that ended, orphans that were adopted among them; then look at what is left."""
        while (ended := self._next_ended()) is not None:
            pid, code = ended.si_pid, ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status
            if pid == self.main:
                self.signal(SIGKILL)  # BEFORE the reaping: until then the group's number is ours
            if self._standby is not None:
                self._standby.ended(pid, code)
            os.waitpid(pid, 0)
            self._reaped(pid, code)
        if self._swept is not None:
            self._look(self._swept)

    def due_s(self) -> float | None:
        """Return when `go_on` has something to do, of the monotonic clock; None: not before a child ends."""
        beside = [one.due_s for one in (self._check, self._stall_command, self._stacks) if one is not None]
        now_s = 0.0 if self._unstarted is not None else None
        return min((s for s in (now_s, self._look_s, self._hold_s, *beside) if s is not None), default=None)

    def go_on(self) -> None:
        """Do what is due: look at a tree that is being ended, kill what used up its time, bring the standby up."""
        now_s = time.monotonic()
        if self._unstarted is not None:
            code, self._unstarted = self._unstarted, None
            self._owner.worker_exited(code)
            self._tell_gone(True)
        if self._look_s is not None and now_s >= self._look_s:
            self.reap()
        if self._check is not None and self._check.is_late(now_s):
            self._end_check(None)
        if self._stall_command is not None:
            self._stall_command.go_on(now_s)
        if self._stacks is not None:
            self._stacks.go_on(now_s, self.main, self._own)
        if self._standby is not None and self._hold_s is not None and now_s >= self._hold_s:
            wait_s = self._standby.go_on(self._spawn, now_s)
            self._hold_s = None if wait_s is None else now_s + wait_s

    def end(self) -> None:
        """Kill all there is, as far as a few looks can see; for the end of this process."""
        if not (self.main or self._swept or self._check or self._standby or self._agent):
            return
        from inplace.agent.worker.process_tree import kill_descendants

        if self._standby is not None:
            self._standby.end()
        self.cut("this process ends")
        for _ in range(_FINAL_SWEEPS_MAX):
            if not kill_descendants():
                return
            self.reap()

    def _tell_unstarted(self, error: OSError) -> None:
        """Say why the command cannot be executed, in the log and for the failure's report."""
        from inplace.agent.worker.program_problem import leave_words, program_problem

        problem = program_problem(self._options.command[0], {**self._env, **self._own}, error)
        then = f"the run ends with exit code {self._unstarted}"
        self._log.error("worker_not_started", message=problem, then=then)
        leave_words(self._own, problem)

    def _keep_output(self, epoch: int) -> None:
        """Keep the tail of what the run of this epoch writes."""
        if self._output is None:
            from inplace.agent.worker.run_output import RunOutput

            self._output = RunOutput(self._tail_folder, self._log, self._options.step_pattern)
        self._output.begin(epoch, self._own.get(PROGRESS_DIR, ""))

    def _need_standby(self) -> Standby | None:
        """Return what holds the next run's process; None: this kernel allows none."""
        if self._standby is None:
            from inplace.agent.worker.standby import standby_here

            self._standby = standby_here(self._readers, self._log, self._hear_standby)
        return self._standby

    def _hear_standby(self) -> None:
        if self._standby is not None and not self._standby.is_settled:
            self._hold_s = time.monotonic()

    def _spawn(self, env: Mapping[str, str]) -> int:
        """Execute the worker's command; return its process id."""
        from inplace.agent.worker.spawn import spawn

        return spawn(list(self._command), {**self._env, **env})

    def _spawn_command(self, command: str, env: Mapping[str, str], output: int = -1) -> int:
        """Execute a shell's command beside the worker; return its process id."""
        from inplace.agent.worker.spawn import spawn

        return spawn(["/bin/sh", "-c", command], {**self._env, **env}, output)

    def _next_ended(self) -> os.waitid_result | None:
        """Return a child that ended and is to be reaped, None if there is none; and note whether there is any child."""
        self._is_childless = False
        try:
            return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            self._is_childless = True
            return None

    def _reaped(self, pid: int, code: int) -> None:
        """Take in the end of a child; orphans end unnoticed."""
        if pid == self.main:
            self.main = 0
            if self._output is not None:
                self._output.settle()  # BEFORE anybody looks at the tail
            self._owner.worker_exited(code)
            if self._sweeps:
                self._sweep(self._tell_gone)
            else:
                self._tell_gone(True)
        elif self._stall_command is not None and pid == self._stall_command.pid:
            command, self._stall_command = self._stall_command, None
            self._owner.worker_examined(command.problem_of(code))
        elif self._check is not None and pid == self._check.pid:
            self._end_check(code)
        elif self._stacks is not None and pid == self._stacks.pid:
            self._stacks.ended(code)
        elif pid == self._agent:
            self._agent = 0
            self._owner.agent_ended(code)

    def _tell_gone(self, entirely: bool) -> None:
        if self._output is not None:
            self._output.end()
        self._owner.worker_gone(entirely=entirely)

    def _end_check(self, code: int | None) -> None:
        """Leave nothing of a check, whose time may be over (None); only then does the owner hear of it."""
        assert self._check is not None
        self._check.end(code)
        self._sweep(self._tell_checked)

    def _tell_checked(self, entirely: bool) -> None:
        assert self._check is not None
        check, self._check = self._check, None
        self._owner.pod_checked(check.unfit(entirely=entirely))

    def _sweep(self, swept: Callable[[bool], None]) -> None:
        """Kill all below this process but agent and standby; `swept` is told when that is done."""
        from inplace.agent.worker.process_tree import STUCK_S

        now_s = time.monotonic()
        self._swept, self._look_s = swept, now_s
        self._pause_s, self._give_up_s = SWEEP_S_FIRST, now_s + STUCK_S

    def _look(self, swept: Callable[[bool], None]) -> None:
        """Kill and reap until there is no child; orphans of orphans come to us only after their parents died."""
        from inplace.agent.worker.process_tree import is_alone_with, kill_descendants

        standby = self._standby.left_alone() if self._standby is not None else 0
        spared = [pid for pid in (self._agent, standby) if pid]
        now_s = time.monotonic()
        is_gone = self._is_childless or (bool(spared) and is_alone_with(spared))
        if is_gone or now_s >= self._give_up_s:
            self._swept = self._look_s = None
            swept(is_gone)
        else:
            kill_descendants(spared)
            self._look_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, SWEEP_S_MAX)
