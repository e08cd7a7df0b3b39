"""
Run the worker as a child process of a supervisor, once per epoch, and leave no process of a run behind.

The worker has a session of its own. `agent.worker.host` is its parent; this module drives it by the event loop:
SIGCHLD, descriptors and timers.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from inplace.agent.settings.command import EPOCH, epoch_variables
from inplace.agent.settings.exit_code import UnfitError
from inplace.agent.worker.host import WorkerHost
from inplace.agent.worker.stall_command import RANK, STEP
from inplace.agent.worker.worker import STUCK_S, Worker, WorkerStuckError
from inplace.common.protocol.stall import Stalled

if TYPE_CHECKING:
    from inplace.agent.report.log import Log
    from inplace.agent.settings.arguments import WorkerOptions
    from inplace.agent.worker.cleaning import Cleaning
    from inplace.agent.worker.standby import Memory


class WorkerProcess(Worker):
    """The worker as a process tree.

    Args:
        options: how it is run.
        env: the environment of every run.
        cleaning: cleans after each run, BEFORE the next announcement.
        memory: told what the standby holds.
        tail_folder: where the tail of each run's output is kept; "" keeps none.
    """

    def __init__(
        self,
        options: WorkerOptions,
        env: Mapping[str, str],
        *,
        cleaning: Cleaning,
        log: Log,
        memory: Memory,
        tail_folder: str = "",
    ) -> None:
        self._options = options
        self._cleaning = cleaning
        self._log = log
        self._host = WorkerHost(options, env, owner=self, readers=self, log=log, memory=memory, tail_folder=tail_folder)
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._exit: asyncio.Future[int]
        self._gone: asyncio.Future[bool]
        self._checked: asyncio.Future[str]
        self._examined: asyncio.Future[str]

    async def prepare(self) -> None:
        """Take SIGCHLD, which a careless parent may have left blocked."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGCHLD, self._drive, self._host.reap)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    async def until_fit(self, epoch: int) -> None:
        """Clean after the last run, then run the check, if there is one; nothing of it is left."""
        clean = self._cleaning.clean
        for words in clean() if self._cleaning.is_quick else await asyncio.to_thread(clean):
            self._log.info("cleaned", message=words)
        if self._options.before_announce:
            self._checked = self._loop.create_future()
            self._drive(self._host.check, epoch_variables(epoch))
            try:
                unfit = await self._checked
            finally:
                self._drive(self._host.cut, "the agent ends")
            if unfit:
                raise UnfitError(unfit)

    def start(self, env: Mapping[str, str]) -> None:
        """Execute the command in a session of its own."""
        self._exit, self._gone = self._loop.create_future(), self._loop.create_future()
        self._cleaning.begin()
        holds_next = self._options.standby and bool(env[EPOCH]) and not self._options.once
        self._host.start(env, holds_next=holds_next)
        self._set_timer()

    async def exited(self) -> int:
        """Return the exit code."""
        return await asyncio.shield(self._exit)

    async def gone(self) -> None:
        """Return when the host has killed and reaped all of the run."""
        if not await asyncio.shield(self._gone):
            raise WorkerStuckError(f"processes of the worker survive SIGKILL for more than {STUCK_S:g} s")

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._host.signal(number)

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:
        """Run the command in a session of its own; whatever comes between, none of its processes is left."""
        if not self._options.on_stall:
            return None
        step = "" if stalled.step is None else str(stalled.step)
        self._examined = self._loop.create_future()
        self._drive(self._host.examine, pid, stalled.silent_s, {RANK: stalled.rank, STEP: step})
        try:
            return await self._examined
        finally:
            self._drive(self._host.cut, "the worker is to end")

    def take_stacks(self, request: int) -> None:
        """Let the host look at the run's processes."""
        self._drive(self._host.take_stacks, request)

    async def close(self) -> None:
        """Kill what is there and what that leaves behind, as far as a few looks can see."""
        self._host.end()
        if self._timer is not None:
            self._timer.cancel()

    def worker_exited(self, code: int) -> None:
        """Hear of the main process's end from the host."""
        self._exit.set_result(code)

    def worker_gone(self, *, entirely: bool) -> None:
        """Hear from the host that nothing is left."""
        self._gone.set_result(entirely)

    def pod_checked(self, unfit: str) -> None:
        """Hear of the check's end from the host."""
        if not self._checked.done():
            self._checked.set_result(unfit)

    def worker_examined(self, problem: str) -> None:
        """Hear of the end of the command of --on-stall from the host."""
        if not self._examined.done():
            self._examined.set_result(problem)

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back whenever `fd` can be read; for the host."""
        self._loop.add_reader(fd, self._drive, callback)

    def remove_reader(self, fd: int) -> None:
        """Do so no more."""
        self._loop.remove_reader(fd)

    def _drive(self, part: Callable[..., None], *arguments: object) -> None:
        """Call a part of the host, and be back when it has something to do."""
        part(*arguments)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_s = self._host.due_s()
        self._timer = self._loop.call_at(due_s, self._drive, self._host.go_on) if due_s is not None else None
