"""
Run the worker as a child process, once per epoch, and leave no process of a run behind.

The worker has a session of its own. It inherits standard output and error, so that its output never passes through the
agent. When its main process ends, the agent kills the rest of its tree at once, as the kernel does with a container's
processes. `gone` returns when the kernel says that the agent has no child at all, but for a standby that waits
(`agent.worker.process_tree`).

SIGCHLD reports every end, the worker's and any orphan's; then the agent reaps all children that have ended. (A pidfd
would report the worker only.) Its handler is installed before the first worker starts, so no end is lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from inplace.agent.start.exit_code import StartError
from inplace.agent.worker.command import NOT_EXECUTABLE, NOT_FOUND, epoch_variables
from inplace.agent.worker.process_tree import STUCK_S, is_alone_with, kill_descendants
from inplace.agent.worker.spawn import spawn
from inplace.agent.worker.stall_command import (
    COMMAND_S_MAX,
    PID,
    RANK,
    SILENT_S,
    STEP,
    kill_tree,
    pid_to_examine,
    shell_words,
)
from inplace.common.kube.clock import Clock
from inplace.common.protocol.stall import Stalled

if TYPE_CHECKING:
    from inplace.agent.worker.checker import Checker
    from inplace.agent.worker.cleaning import Cleaner
    from inplace.agent.worker.standby import Standby

SWEEP_S_FIRST: Final = 0.001  # a tree is usually gone by then
SWEEP_S_MAX: Final = 0.02
_FINAL_SWEEPS_MAX: Final = 50


class WorkerStartError(StartError):
    """The worker's command cannot be executed.

    Attributes:
        code: the exit code that a shell would give.
    """

    event = "worker_not_started"

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class WorkerStuckError(Exception):
    """Processes of the worker survive SIGKILL."""


class WorkerLostError(Exception):
    """The worker's container is gone, so that only kubelet can start it again.

    Args:
        completed: a worker had ended by itself with exit code 0 before.
    """

    def __init__(self, *, completed: bool) -> None:
        super().__init__(completed)
        self.completed = completed


class Worker(Protocol):
    """The worker of this Pod, run after run."""

    async def prepare(self) -> None:
        """Get ready to see processes end; called once, BEFORE the first start."""

    async def until_fit(self, epoch: int) -> None:
        """Return when this Pod may announce an epoch: nothing of a worker is left, and its check is over.

        Raises:
            UnfitError: it may not.
            WorkerStuckError: something of the check survived SIGKILL for STUCK_S seconds.
        """

    async def keep_standby(self) -> None:
        """Start the next run's process early and hold it, if its command can be held; cancelled at the run's end."""

    def start(self, env: Mapping[str, str]) -> None:
        """Start a run, or release the process that is held for it; nothing of the last one may be left.

        `env` is added to the environment.

        Raises:
            WorkerStartError: the command cannot be executed.
        """

    async def exited(self) -> int:
        """Return the exit code of the main process once it is gone, 128 + n after signal n.

        Raises:
            WorkerLostError: it ran in another container, which is gone.
        """

    async def gone(self) -> None:
        """Return when no process of the run is left; kill what is.

        Raises:
            WorkerStuckError: something survived SIGKILL for STUCK_S seconds.
            WorkerLostError: it ran in another container, which is gone.
        """

    def signal(self, number: int) -> None:
        """Send a signal to the main process's group, if it runs."""

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:
        """Run the command of --on-stall, for a bounded time.

        Args:
            stalled: what was found.
            pid: of the silent rank as its file says; None if it says none.

        Returns:
            What went wrong, "" when nothing did; None: there is no command.
        """

    def runs(self) -> bool:
        """Say whether the worker's silence means something: it was started, and its Pod does not end."""

    def grace_s(self) -> float | None:
        """Return the seconds from SIGTERM to SIGKILL that another process gives it; None if this one is its parent."""

    async def close(self) -> None:
        """End all there is, without waiting for it; for the end of this process."""


class WorkerProcess:
    """The worker as a process tree, see `Worker`.

    Args:
        command: argv; the program is looked for in PATH.
        env: the environment of every run.
        on_stall: a shell's command that looks at a worker that hangs; "" for none.
        standby: holds the next run's process; None for none.
        checker: runs the check before each announcement; None for none.
        cleaning: cleans after each run, BEFORE the next announcement; None for nothing.
        say: told what came of that.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        clock: Clock,
        on_stall: str = "",
        standby: Standby | None = None,
        checker: Checker | None = None,
        cleaning: Cleaner | None = None,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._command = list(command)
        self._on_stall = on_stall
        self._env = dict(env)
        self._clock = clock
        self._main = 0  # the main process's id until it is reaped
        self._aside: dict[int, asyncio.Future[int]] = {}  # commands beside the worker, until they are reaped
        self._standby = standby
        self._checker = checker
        self._cleaning = cleaning
        self._say = say
        self._exit: asyncio.Future[int]
        self._childless: asyncio.Event

    async def prepare(self) -> None:
        """Take SIGCHLD, which a careless parent may have left blocked."""
        self._childless = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def start(self, env: Mapping[str, str]) -> None:
        """Execute the command in a session of its own."""
        assert not self._main, f"expected no worker, saw process {self._main}"
        self._exit = asyncio.get_running_loop().create_future()
        self._reap()  # a standby that just ended
        self._childless.clear()
        if self._cleaning is not None:
            self._cleaning.begin()
        self._main = self._spawn(env) if self._standby is None else self._standby.start(self._spawn, env)

    async def until_fit(self, epoch: int) -> None:
        """Clean after the last run, then run the check, if there is one; nothing of it is left."""
        if self._cleaning is not None:
            clean = self._cleaning.clean
            for words in clean() if self._cleaning.is_quick else await asyncio.to_thread(clean):
                self._say(words)
        if self._checker is not None:
            await self._checker.check(self._run_aside, epoch_variables(epoch))
            await self.gone()

    async def keep_standby(self) -> None:
        """Hold the next run's process, if that was asked for."""
        if self._standby is not None:
            await keep(self._standby, self._spawn, self._clock)

    def _spawn(self, env: Mapping[str, str]) -> int:
        """Execute the command; return its process id."""
        try:
            return spawn(self._command, self._env | dict(env))
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            raise WorkerStartError(f"cannot execute {self._command[0]!r}: {error.strerror}", code) from error

    async def exited(self) -> int:
        """Return the exit code."""
        return await asyncio.shield(self._exit)

    async def gone(self) -> None:
        """Kill and reap until there is no child; orphans of orphans come to us only after their parents died."""
        began_s, pause_s = self._clock.monotonic_s(), SWEEP_S_FIRST
        self._reap()
        spared = self._spared()
        while not self._is_gone(spared):
            if self._clock.monotonic_s() - began_s > STUCK_S:
                raise WorkerStuckError(f"processes of the worker survive SIGKILL for more than {STUCK_S:g} s")
            kill_descendants(spared)
            with suppress(TimeoutError):
                async with self._clock.timeout(pause_s):
                    await self._childless.wait()
            self._reap()
            spared = self._spared()
            pause_s = min(2 * pause_s, SWEEP_S_MAX)

    def _spared(self) -> int:
        """Return the standby if it waits, 0 for none."""
        return self._standby.left_alone() if self._standby is not None else 0

    def _is_gone(self, spared: int) -> bool:
        """Say whether nothing of the run is left."""
        return self._childless.is_set() or (spared > 0 and is_alone_with(spared))

    def signal(self, number: int) -> None:
        """Send a signal; until the main process is reaped, the group's number is nobody else's.

        A stopped process takes SIGTERM only when it goes on: it would use up its grace.
        """
        if self._main:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._main, number)
                if number == signal.SIGTERM:
                    os.killpg(self._main, signal.SIGCONT)

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:
        """Run the command in a session of its own; whatever comes between, none of its processes is left."""
        if not self._on_stall:
            return None
        if not self._main:
            return "the worker ended before"
        chosen, problem = pid_to_examine(pid, self._main)
        own = {RANK: stalled.rank, STEP: "" if stalled.step is None else str(stalled.step)}
        own |= {PID: str(chosen), SILENT_S: f"{stalled.silent_s:.0f}"}
        try:
            command_pid, ended = self._run_aside(shell_words(self._on_stall), own)
        except OSError as error:
            return f"cannot execute /bin/sh: {error.strerror}"
        try:
            async with self._clock.timeout(COMMAND_S_MAX):
                code = await asyncio.shield(ended)
        except TimeoutError:
            return f"it did not end within {COMMAND_S_MAX:g} s, and was killed"
        finally:
            if not ended.done():
                kill_tree(command_pid)
        return problem if not code else f"it ended with exit code {code}; {problem}".rstrip("; ")

    def _run_aside(
        self, command: list[str], env: Mapping[str, str], output: int = -1
    ) -> tuple[int, asyncio.Future[int]]:
        """Execute a command beside the worker; return its process id, and its exit code to come."""
        pid = spawn(command, self._env | dict(env), output)
        ended = self._aside[pid] = asyncio.get_running_loop().create_future()
        return pid, ended

    def runs(self) -> bool:
        """Say that it runs: it is only asked between start and end."""
        return True

    def grace_s(self) -> float | None:
        """Return None: the agent's own options say it."""
        return None

    async def close(self) -> None:
        """Kill what is there and what that leaves behind, as far as a few looks can see."""
        for _ in range(_FINAL_SWEEPS_MAX):
            if not kill_descendants():
                return
            self._reap()

    def _reap(self) -> None:
        """Take note of every child that ended; orphans that were adopted among them."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self._childless.set()
                return
            if ended is None:
                self._childless.clear()
                return
            if ended.si_pid == self._main:
                self.signal(signal.SIGKILL)  # BEFORE the reaping: until then the group's number is ours
                self._main = 0
                self._exit.set_result(_exit_code(ended))
            if aside := self._aside.pop(ended.si_pid, None):
                aside.set_result(_exit_code(ended))
            if self._standby is not None:
                self._standby.ended(ended.si_pid, _exit_code(ended))
            os.waitpid(ended.si_pid, 0)


async def keep(standby: Standby, spawn: Callable[[Mapping[str, str]], int], clock: Clock) -> None:
    """Go on with a standby until nothing more is to be done in this run."""
    news = asyncio.Event()
    standby.on_news = news.set
    while True:
        wait_s = standby.go_on(spawn, clock.monotonic_s())
        if standby.is_settled:
            return
        with suppress(TimeoutError):
            async with clock.timeout(wait_s):
                await news.wait()
        news.clear()


def _exit_code(ended: os.waitid_result) -> int:
    return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status
