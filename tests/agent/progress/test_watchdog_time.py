"""The watchdog under virtual time: what counts as the worker's time, to the last look."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from inplace.agent.progress.watchdog import Watchdog, Watched
from inplace.common.kube.clock import LoopClock
from inplace.common.protocol.failure_report import WorkerStalled
from inplace.common.protocol.rank import RankLook, StallSettings
from inplace.common.protocol.stall import Look
from inplace.simulator.campaign.ranks import LateWork
from inplace.simulator.cluster.virtual_time import run
from tests.agent.progress.test_watchdog_files import LateWorker
from tests.agent.rig import NotedLog

START = StallSettings(None, 10.0)  # a look each half second


class LateFiles:
    """A rank that makes its first step at `first_s` of the loop's time; marking takes `begin_s`."""

    def __init__(self, first_s: float) -> None:
        self.first_s = first_s

    def begin(self, epoch: int | None, *, runs: bool = False) -> str:
        """Mark nothing."""
        assert epoch == 3
        return ""

    def look(self) -> Look:
        """Return the rank once it made its step."""
        has_begun = asyncio.get_running_loop().time() >= self.first_s
        return Look(3, (RankLook("rank-0", changed=True, step=1),) if has_begun else ())


async def watched(starts_s: float, first_s: float) -> list[WorkerStalled]:
    """Watch a worker that starts late and makes its first step later; return what was found within a minute."""
    loop, found = asyncio.get_running_loop(), list[WorkerStalled]()
    files = LateFiles(first_s)
    watchdog = Watchdog(START, lambda: files, clock=LoopClock(), log=NotedLog(), run=lambda work: LateWork(work, 0.0))
    watchdog.begin(3)
    try:
        async with asyncio.timeout(60):
            await watchdog.watch(LateWorker(lambda: loop.time() >= starts_s), found.append)
    except TimeoutError:
        pass
    return found


@pytest.mark.parametrize("starts_s", [0.0, 0.1, 0.4, 0.6, 0.9, 1.1, 7.3, 100.0])
def test_time_before_the_worker_runs_never_counts(starts_s: float) -> None:
    """Not even one look's: a first step just within its limit is no stall, whenever the worker started."""
    assert run(watched(starts_s, starts_s + 9.99)) == []


@pytest.mark.parametrize("starts_s", [0.0, 0.4, 7.3])
def test_a_worker_that_never_begins_is_found_within_two_looks(starts_s: float) -> None:
    """Counted from its own start."""
    (found,) = run(watched(starts_s, 1e9))
    assert found.epoch == 3
    assert 10 <= found.silent_s <= 11


class SlowFiles:
    """A rank whose every step takes `step_s` of the loop's time."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self._step = 0
        self._epoch = 0

    def begin(self, epoch: int | None, *, runs: bool = False) -> str:
        """Mark nothing."""
        self._epoch = epoch or 0
        return ""

    def look(self) -> Look:
        """Return the rank and its step."""
        step, before = int(asyncio.get_running_loop().time() / self.step_s), self._step
        self._step = step
        return Look(self._epoch, (RankLook("rank-0", changed=step != before, step=step),))


class SeenWorker(Watched):
    """A worker that counts how often it is looked at."""

    looks = 0

    def take_stacks(self, request: int) -> None:
        """Count it."""
        self.looks += 1


async def stacks_of(epochs_s: list[float]) -> list[int]:
    """Return how often each of several workers with slow steps was looked at, one after the other."""
    found, files, limits = list[int](), SlowFiles(9.0), StallSettings(10.0, 10.0)
    watchdog = Watchdog(limits, lambda: files, clock=LoopClock(), log=NotedLog(), run=lambda work: LateWork(work, 0.0))
    for epoch, lasts_s in enumerate(epochs_s, 3):
        worker = SeenWorker()
        watchdog.begin(epoch)
        with suppress(TimeoutError):
            async with asyncio.timeout(lasts_s):
                await watchdog.watch(worker, lambda _: None)
        found.append(worker.looks)
    return found


def test_each_worker_is_looked_at_once_a_minute() -> None:
    """One that is slow in each of its steps once a minute; the next one has a pace of its own."""
    assert run(stacks_of([50.0, 50.0, 90.0])) == [1, 1, 2]
