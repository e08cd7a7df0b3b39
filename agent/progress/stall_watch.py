"""
Watch the worker once its ranks report steps, or somebody sets a limit: the environment, or the JobSet's annotation.

The watchdog (`agent.progress.watchdog`) is loaded by then; an agent whose worker reports nothing needs none of it. The
annotation comes with the views that an agent gets anyway, so it costs no request. Every worker is told the folder for
its steps, so a limit holds at once, also for one that started without. docs/adr/0060
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from inplace.agent.progress.rank_files import forget_steps, has_steps, make_folder
from inplace.agent.report.log import Log
from inplace.agent.settings.config import AgentConfig
from inplace.common.bare.typed import Final
from inplace.common.kube.clock import Clock
from inplace.common.protocol.failure_report import WorkerStalled

if TYPE_CHECKING:
    from inplace.agent.progress.watchdog import Watchdog, Watched
    from inplace.agent.settings.watch_settings import WatchSettings
    from inplace.common.protocol.rank import StallSettings
    from inplace.common.protocol.stall import StallState

PREPARE_S_MAX: Final = 1.0  # the worker's start waits this long for its folder
FIRST_LOOK_S: Final = 5.0  # from one look for a first step to the next


class StallWatch:
    """One agent's watchdog, if there is something to watch.

    Args:
        config: has the environment's settings, which win over the annotation.
        make: makes the watchdog, once.
        problem: why no worker can be watched here; "" if one can.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        make: Callable[[WatchSettings, StallSettings, Clock, Log], Watchdog] | None = None,
        clock: Clock,
        log: Log,
        problem: str = "",
    ) -> None:
        self._config = config
        self._make = make
        self._clock = clock
        self._log = log
        self._problem = problem
        self._text: str | None = None
        self._watchdog: Watchdog | None = None
        self._epoch: int | None = None  # of the newest worker
        self._is_watched = False  # since it started
        self._is_needed = asyncio.Event()  # there is a watchdog
        self._preparing: threading.Thread | None = None  # there is only ever one: a file system may hang
        if config.watch is not None and (config.watch.limits.are_set or config.watch.pattern):
            self._make_watchdog(config.watch, config.watch.limits)

    @property
    def folder(self) -> str:
        """Return what the next worker is told as INPLACE_PROGRESS_DIR; "" where it cannot be watched."""
        return "" if self._problem else self._config.progress_dir

    @property
    def words_folder(self) -> str:
        """Return where this worker's ranks leave what ended them; "" where there is no such folder, or no real one."""
        return self.folder if self._make is None else ""

    def take_limits(self, text: str | None) -> None:
        """Take the JobSet's annotation as a view has it; a bad one is told, and changes nothing."""
        if text == self._text:
            return
        self._text = text
        from inplace.agent.settings.watch_settings import annotated_limits
        from inplace.common.protocol.rank import StallSettings

        own = self._own_settings()
        last = self._watchdog.limits if self._watchdog is not None else StallSettings()
        limits, problem = annotated_limits(own, last, text)
        if problem:
            self._log.warning("stall_limit_refused", message=problem, then="the limits stay as they were")
        if limits == last:
            return
        if problem := self._problem or _problem_of(own):
            self._log.warning("stall_limits_unused", message=problem, then="nobody watches the worker")
            return
        if self._watchdog is None:
            self._make_watchdog(own, limits)
        else:
            self._watchdog.change(limits)
        self._log.info(
            "stall_limits", stall_after_s=limits.stall_after_s, start_stall_after_s=limits.start_stall_after_s
        )

    def begin(self, epoch: int | None) -> None:
        """Forget the last worker's progress BEFORE the next one starts; None is a worker that nobody restarts."""
        self._epoch, self._is_watched = epoch, self._watchdog is not None
        if self._watchdog is not None:
            self._watchdog.begin(epoch)
        elif self.folder and (self._preparing is None or not self._preparing.is_alive()):
            self._preparing = threading.Thread(target=_prepare, args=(self.folder,), daemon=True)
            self._preparing.start()
            self._preparing.join(PREPARE_S_MAX)

    async def watch(
        self,
        worker: Watched,
        on_stall: Callable[[WorkerStalled], object],
        on_look: Callable[[StallState], object] = lambda _: None,
    ) -> None:
        """Look at the worker of `begin` until it stalls, once its ranks report steps or there is a limit."""
        if not self._is_watched:
            await self._until_needed()
            assert self._watchdog is not None
            self._watchdog.begin(self._epoch, runs=True)
        assert self._watchdog is not None
        await self._watchdog.watch(worker, on_stall, on_look)

    async def _until_needed(self) -> None:
        """Wait for a limit, or for a first step; then there is a watchdog."""
        while not self._is_needed.is_set():
            try:
                async with self._clock.timeout(FIRST_LOOK_S):
                    await self._is_needed.wait()
            except TimeoutError:
                if self._watchdog is None and await self._has_steps():
                    from inplace.common.protocol.rank import StallSettings

                    self._make_watchdog(self._own_settings(), StallSettings())

    async def _has_steps(self) -> bool:
        """Say whether a rank has reported a step; False while an earlier look hangs."""
        if not self.words_folder or (self._preparing is not None and self._preparing.is_alive()):
            return False
        loop = asyncio.get_running_loop()
        found: asyncio.Future[bool] = loop.create_future()

        def look() -> None:
            answer = has_steps(self.folder)
            with suppress(RuntimeError):  # the loop is closed: this process ends
                loop.call_soon_threadsafe(_answer, found, answer)

        self._preparing = threading.Thread(target=look, daemon=True)
        self._preparing.start()
        return await found

    def excuse(self, for_s: float) -> None:
        """Ignore the worker's silence for `for_s` seconds, because a rank of another Pod is busy."""
        if self._watchdog is not None:
            self._watchdog.excuse(for_s)

    def finish(self) -> str:
        """Look once more at the worker that ends; return how far it was, "" if nobody knows. See `Watchdog.finish`."""
        return self._watchdog.finish() if self._watchdog is not None else ""

    def _own_settings(self) -> WatchSettings:
        from inplace.agent.settings.watch_settings import WatchSettings

        return self._config.watch or WatchSettings(folder=self._config.progress_dir)

    def _make_watchdog(self, own: WatchSettings, limits: StallSettings) -> None:
        self._is_needed.set()
        if self._make is not None:
            self._watchdog = self._make(own, limits, self._clock, self._log)
            return
        from functools import partial

        from inplace.agent.progress.watchdog import Watchdog, open_files

        files = partial(open_files, own, are_pids_ours=not self._config.link_file)
        self._watchdog = Watchdog(limits, files, clock=self._clock, log=self._log)


def _answer(found: asyncio.Future[bool], answer: bool) -> None:
    if not found.done():  # the worker ended meanwhile
        found.set_result(answer)


def _prepare(folder: str) -> None:
    make_folder(folder)  # what is wrong with it is said once there is a limit
    forget_steps(folder)


def _problem_of(own: WatchSettings) -> str:
    """Return why there is nothing to look at; "" if there is."""
    if own.pattern or own.folder.startswith("/"):
        return ""
    return "expected EPOCH_FILE or LINK_FILE on the Pod's emptyDir, or PROGRESS_FILE, saw neither"
