"""The watchdog on files that do not answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from inplace.agent.progress.watchdog import BEGIN_S_MAX, Watchdog, Watched
from inplace.common.kube.clock import LoopClock
from inplace.common.protocol.failure_report import WorkerStalled
from inplace.common.protocol.rank import RankLook, StallSettings
from inplace.common.protocol.stall import Look
from tests.agent.rig import NotedLog, Running

pytestmark = pytest.mark.asyncio

LIMITS = StallSettings(0.5)


class LateWorker(Watched):
    """A worker whose own start may be late."""

    def __init__(self, has_started: Callable[[], bool]) -> None:
        self._has_started = has_started

    def runs(self) -> bool:
        """Say whether it started."""
        return self._has_started()


class SlowFiles:
    """One rank that never changes; the file system answers when `answers` is set, and at once otherwise."""

    def __init__(self, *, begins: bool = True, looks: bool = True) -> None:
        self.begins, self.looks = begins, looks
        self.answers = threading.Event()
        self.epoch: int | None = None
        self.seen = 0

    def begin(self, epoch: int | None, *, runs: bool = False) -> str:
        """Take note of the epoch."""
        if not self.begins:
            self.answers.wait(20)
        self.epoch = epoch
        return ""

    def look(self) -> Look:
        """Return a rank that made many steps at each of the first four looks, and none after."""
        self.seen += 1
        if not self.looks:
            self.answers.wait(20)
        steps = min(self.seen, 4) * 10
        return Look(self.epoch, (RankLook("rank-0", changed=self.seen <= 4, step=steps),))


async def stall_of(watchdog: Watchdog, within_s: float) -> WorkerStalled | None:
    """Return what the watchdog finds within a time."""
    found: list[WorkerStalled] = []
    try:
        async with asyncio.timeout(within_s):
            await watchdog.watch(Running(), found.append)
    except TimeoutError:
        pass
    return found[0] if found else None


async def test_a_rank_that_stops_is_reported_once() -> None:
    """With the epoch and its last step; then the watch is over."""
    log = NotedLog()
    watchdog = Watchdog(LIMITS, SlowFiles, clock=LoopClock(), log=log)
    watchdog.begin(3)
    assert await stall_of(watchdog, 10) == WorkerStalled(3, 1, 40)
    assert log.of("worker_stalled")[0]["rank"] == "rank-0"


async def test_a_worker_is_not_held_back_by_its_files() -> None:
    """A folder that does not answer costs a second; that worker is not watched, and the next one is."""
    log, hung = NotedLog(), SlowFiles(begins=False)
    files = [hung, SlowFiles()]
    watchdog = Watchdog(LIMITS, lambda: files.pop(0), clock=LoopClock(), log=log)
    began_s = time.monotonic()
    watchdog.begin(1)
    assert time.monotonic() - began_s < BEGIN_S_MAX + 1.0
    assert await stall_of(watchdog, 1.0) is None
    (line,) = log.of("progress_unreadable")
    assert "expected the folder to answer within 1 s" in str(line["message"])
    hung.answers.set()
    watchdog.begin(2)
    assert await stall_of(watchdog, 10) == WorkerStalled(2, 1, 40)


async def test_a_look_that_hangs_judges_nobody() -> None:
    """No thread more is started for it, not even for the next worker, until it answers."""
    log, hung = NotedLog(), SlowFiles(looks=False)
    watchdog = Watchdog(LIMITS, lambda: hung, clock=LoopClock(), log=log)
    watchdog.begin(1)
    threads = threading.active_count()
    assert await stall_of(watchdog, 2.0) is None
    assert hung.seen == 1
    watchdog.begin(2)
    assert threading.active_count() <= threads + 1
    assert hung.epoch == 1
    assert await stall_of(watchdog, 0.5) is None
    hung.answers.set()


async def test_a_worker_that_does_not_run_yet_is_not_judged() -> None:
    """Its image may be on its way; its time begins with its own start."""
    files, found = SlowFiles(), list[WorkerStalled]()
    watchdog = Watchdog(LIMITS, lambda: files, clock=LoopClock(), log=NotedLog())
    watchdog.begin(3)
    has_started = asyncio.Event()
    watching = asyncio.create_task(watchdog.watch(LateWorker(has_started.is_set), found.append))
    await asyncio.sleep(1.5)  # three limits
    assert (found, files.seen) == ([], 0)
    has_started.set()
    async with asyncio.timeout(10):
        await watching
    assert found == [WorkerStalled(3, 1, 40)]


async def test_a_worker_that_nobody_restarts_in_place_is_not_watched() -> None:
    """Its end is the Job's affair, and so is its silence."""
    files = SlowFiles()
    watchdog = Watchdog(LIMITS, lambda: files, clock=LoopClock(), log=NotedLog())
    watchdog.begin(None)
    assert await stall_of(watchdog, 1.0) is None
    assert files.seen == 0
