"""
The watchdog: it looks at the worker's progress files, and reports a worker that hangs.

`common.protocol.stall` decides. This module looks each `period_s` from a thread, because a hung file system may block a
look for ever; then nothing is judged until the look returns. It is imported once a rank reports its steps, or a limit
is set.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from inplace.agent.progress.folder import ProgressFiles, ProgressFolder
from inplace.agent.report.log import Log
from inplace.agent.settings.watch_settings import WatchSettings
from inplace.agent.worker.stall_command import COMMAND_S_MAX
from inplace.common.kube.clock import Clock
from inplace.common.protocol.failure_report import WorkerStalled
from inplace.common.protocol.last_progress import last_progress
from inplace.common.protocol.rank import StallSettings
from inplace.common.protocol.stall import (
    LATE_PERIODS,
    Excused,
    LimitsChanged,
    LimitTooShort,
    Look,
    Looked,
    RunStallCommand,
    Silence,
    StallCommandEnded,
    StallState,
    WorkerEnded,
    WorkerStarted,
    nears_stall,
    step,
)
from inplace.common.wire.last_progress import last_progress_text
from inplace.common.wire.stacks import SILENCE

BEGIN_S_MAX: Final = 1.0  # the worker's start waits this long for the folder; then this worker is not watched
LOOK_S_MAX: Final = 10.0  # a look that takes longer is said once; the next one waits for its end
STACKS_S_MIN: Final = 60.0  # from one request for stacks to the next: a worker may have a slow step again and again
LAST_LOOK_S_MAX: Final = 0.05  # at the worker's end, on the way to its restart; one takes some 1 ms


class Work(Protocol):
    """Work in a thread of its own."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, for `timeout` seconds at most."""

    def is_alive(self) -> bool:
        """Say whether it goes on."""


class Watched(Protocol):
    """What a watchdog asks of a worker. One that says nothing else runs, and has no command that looks at it."""

    def runs(self) -> bool:
        """Say whether its silence means something."""
        return True

    def take_stacks(self, request: int) -> object:  # noqa: ARG002
        """Let where its ranks are be written to its log."""
        return None

    async def examine(self, silent: Silence, pid: int | None) -> str | None:  # noqa: ARG002
        """Let a command look at it; see `agent.link.linked_worker`."""
        return None


class Files(Protocol):
    """The worker's progress files; each call may take as long as a file system does."""

    def begin(self, epoch: int | None, *, runs: bool = False) -> str:
        """Take note of what is there, BEFORE the worker starts; return what is wrong, "" when nothing is.

        Args:
            epoch: of the worker; None where in-place restart is off.
            runs: it started earlier; the files are looked at from now on.
        """

    def look(self) -> Look:
        """Return every rank whose progress is this epoch's."""


def in_thread(work: Callable[[], object]) -> Work:
    """Begin work that may hang."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def open_files(settings: WatchSettings, *, are_pids_ours: bool) -> Files:
    """Return what the settings name.

    Args:
        settings: checked.
        are_pids_ours: the worker runs in this process's PID namespace, so a rank whose process is gone has ended.
    """
    if settings.pattern:
        return ProgressFiles(settings.pattern)
    return ProgressFolder(settings.folder, _is_alive) if are_pids_ours else ProgressFolder(settings.folder)


class Watchdog:
    """Watches one worker after the other.

    Args:
        limits: without any, no worker is ended.
        open_files: gives the worker's files, anew for each worker.
        run: begins a look, which may hang, beside the event loop.
    """

    def __init__(
        self,
        limits: StallSettings,
        open_files: Callable[[], Files],
        *,
        clock: Clock,
        log: Log,
        run: Callable[[Callable[[], object]], Work] = in_thread,
    ) -> None:
        self.limits = limits
        self._open_files = open_files
        self._clock = clock
        self._log = log
        self._begin_work = run
        self._files: Files
        self._epoch: int | None = None
        self._state = StallState(limits)
        self._thread: Work | None = None  # there is only ever one: a file system that hangs costs no more
        self._is_on = False
        self._has_begun = False  # the files of the newest worker are marked, and it has not ended
        self._problem = ""
        self._is_seen = False  # the stacks of the present silence are taken
        self._see_s = 0.0  # before, no more are

    def change(self, limits: StallSettings) -> None:
        """Let other limits hold from now on."""
        self.limits = limits
        self._state, _ = step(self._state, LimitsChanged(limits))

    def excuse(self, for_s: float) -> None:
        """Ignore the worker's silence for `for_s` seconds, because a rank of another Pod is busy."""
        self._state, _ = step(self._state, Excused(self._clock.monotonic_s(), for_s))

    def begin(self, epoch: int | None, *, runs: bool = False) -> None:
        """Forget the last worker's progress BEFORE the next one starts; None is a worker that nobody restarts in place.

        It blocks for BEGIN_S_MAX at most, behind a look that hangs for twice that: a worker that starts before its
        files are marked could be judged by old ones.

        Args:
            epoch: of the worker; None where in-place restart is off.
            runs: the worker started before anybody watched it.
        """
        self._is_on = self._has_begun = self._is_seen = False
        self._see_s = 0.0  # the pace is that of one worker: restarts are bounded
        if epoch is None:
            return
        self._epoch, found = epoch, list[str]()
        files = self._files = self._open_files()  # a look that still hangs keeps its own
        if self._thread is not None:
            self._thread.join(BEGIN_S_MAX)
        if self._thread is None or not self._thread.is_alive():
            self._run(lambda: found.append(files.begin(epoch, runs=runs))).join(BEGIN_S_MAX)
        late = f"progress: expected the folder to answer within {BEGIN_S_MAX:g} s, saw nothing; nobody watches it"
        self._note(found[0] if found else late)
        self._is_on = self._has_begun = bool(found)
        fresh = StallState(self.limits, learned=self._state.learned)
        self._state, _ = step(fresh, WorkerStarted(epoch, self._clock.monotonic_s(), runs))

    async def watch(
        self,
        worker: Watched,
        on_stall: Callable[[WorkerStalled], object],
        on_look: Callable[[StallState], object] = lambda _: None,
    ) -> None:
        """Look at the worker that `begin` was called for until it stalls; cancelled when the worker ends.

        Args:
            worker: says whether it runs now. While it does not, time does not count: its image may be on its way. In
                each long silence it writes once to the log where its ranks are; BEFORE its stall is told, it runs the
                command of --on-stall.
            on_stall: told once.
            on_look: told what is known after each look.
        """
        ran = worker.runs()
        while self._is_on:
            await self._clock.sleep(self.limits.period_s)
            ran, ran_before = worker.runs(), ran
            if not (ran and ran_before):
                self._state, _ = step(self._state, Looked(self._clock.monotonic_s(), Look(self._epoch, problem="-")))
                continue
            look = await self._look()
            self._note(look.problem)
            heard = self._state.was_heard
            self._state, actions = step(self._state, Looked(self._clock.monotonic_s(), look))
            if self._state.was_heard and not heard:
                self._log.info("steps_begun", epoch=self._epoch)  # `inplace status` looks for it
            self._see(worker)
            on_look(self._state)
            for action in actions:
                if isinstance(action, LimitTooShort):
                    self._advise(action)
                elif isinstance(action, RunStallCommand):
                    await self._examine(action, worker)
                    self._state, found = step(self._state, StallCommandEnded())
                    self._is_on = False
                    for silent in found:
                        assert isinstance(silent, Silence)
                        on_stall(WorkerStalled(look.epoch or 0, max(1, round(silent.silent_s)), silent.step))

    def finish(self) -> str:
        """Look once more at the worker that ends; return how far it was, as the announcement carries it.

        "" when nothing is known. It blocks for LAST_LOOK_S_MAX at most, and not at all behind a look that hangs.
        """
        found = list[Look]()
        if self._thread is not None and self._has_begun:
            self._thread.join(LAST_LOOK_S_MAX)
            if not self._thread.is_alive():
                files = self._files
                self._run(lambda: found.append(files.look())).join(LAST_LOOK_S_MAX)
        if found:
            self._state, _ = step(self._state, Looked(self._clock.monotonic_s(), found[0]))
        progress = last_progress(self._state, self._clock.wall_s()) if self._has_begun else None
        self._state, _ = step(self._state, WorkerEnded(self._clock.monotonic_s()))
        self._is_on = self._has_begun = False
        return "" if progress is None else last_progress_text(progress)

    def _see(self, worker: Watched) -> None:
        """Take the stacks while a rank is silent, BEFORE its stall is told; the restart does not wait for them."""
        now_s = self._clock.monotonic_s()
        if not nears_stall(self._state):
            self._is_seen = False
        elif not self._is_seen and now_s >= self._see_s:
            self._is_seen, self._see_s = True, now_s + STACKS_S_MIN
            worker.take_stacks(SILENCE)

    def _run(self, work: Callable[[], object]) -> Work:
        self._thread = self._begin_work(work)
        return self._thread

    async def _look(self) -> Look:
        """Look from a thread, which may hang."""
        loop, files = asyncio.get_running_loop(), self._files
        looked: asyncio.Future[Look] = loop.create_future()

        def look() -> None:
            found = files.look()
            with suppress(RuntimeError):  # the loop is closed: this process ends
                loop.call_soon_threadsafe(_answer, looked, found)

        self._run(look)
        try:
            async with self._clock.timeout(LOOK_S_MAX):
                return await asyncio.shield(looked)
        except TimeoutError:
            self._note(f"progress: expected the files to answer within {LOOK_S_MAX:g} s, saw nothing")
        return await looked

    def _note(self, problem: str) -> None:
        """Say what is wrong with the files, once each time that it changes."""
        if problem and problem != self._problem:
            self._log.warning(
                "progress_unreadable", message=problem, then="silence is not counted until it is readable"
            )
        self._problem = problem

    def _advise(self, action: LimitTooShort) -> None:
        self._log.warning(
            "stall_limit_too_short",
            rank=action.rank,
            step_s=round(action.step_s, 1),
            message=f"expected steps below the limit of {self.limits.stall_after_s:g} s",
            then=f"the limit is {action.limit_s:.1f} s until the worker starts again; set a longer one",
        )

    async def _examine(self, action: RunStallCommand, worker: Watched) -> None:
        """Say what was found, and let a command look at it BEFORE anybody ends the worker.

        In a hung collective every Pod finds the stall, up to two looks one after the other. A Pod with a command tells
        after so long and one look more, so that the commands of all of them have begun by then.
        """
        silent, began_s = self._state.found, self._clock.monotonic_s()
        assert silent is not None
        self._report(silent)
        problem = await worker.examine(silent, action.pid)
        if problem is not None:
            took_s = round(self._clock.monotonic_s() - began_s, 3)
            self._log.warning("stall_examined", took_s=took_s, message=problem or None)
            hold_s = min((LATE_PERIODS + 1) * self.limits.period_s, COMMAND_S_MAX)
            await self._clock.sleep(max(0.0, began_s + hold_s - self._clock.monotonic_s()))

    def _report(self, silent: Silence) -> None:
        self._log.warning(
            "worker_stalled",
            epoch=self._epoch,
            rank=silent.rank or None,
            step=silent.step,
            silent_s=round(silent.silent_s, 1),
            limit_s=round(silent.limit_s, 1),
            busy=silent.busy or None,
        )


def _answer(looked: asyncio.Future[Look], found: Look) -> None:
    if not looked.done():
        looked.set_result(found)


def _is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")  # noqa: PTH110 - a string is all it needs
