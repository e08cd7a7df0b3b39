"""
Ranks of modelled workers: they write real progress files, always within their limits, until they hang.

The files lie on the Pod's disk and outlive the worker, as on an emptyDir. Their times come from a node's wall clock,
which jumps. The agent's own watchdog looks at them; only its thread is a model, see `LateWork`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from inplace.agent.progress.folder import ProgressFolder
from inplace.agent.progress.stall_watch import StallWatch
from inplace.agent.progress.watchdog import Watchdog
from inplace.agent.report.log import Log
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.watch_settings import WatchSettings
from inplace.common.kube.clock import Clock
from inplace.common.protocol.rank import FIRST_STEPS, FIRST_STEPS_FACTOR, StallSettings
from inplace.common.protocol.stall import LATE_PERIODS
from inplace.common.wire.progress import LINE_BYTES_MAX
from inplace.simulator.campaign.process import outside
from inplace.simulator.cluster.cluster import VIRTUAL_EPOCH_S

ALMOST: Final = 0.999  # of a limit: within it, whatever floats do
BUSY_S_MAX: Final = 30
RANKS_MAX: Final = 3
STEADY_STEPS: Final = 2 * FIRST_STEPS  # after so many that looks tell apart, the limit is the one between steps
LOOK_S: Final = 0.5  # after so long a rank sees that nobody hangs any more
UNLIMITED_START: Final = 6  # of the limit between steps: as long as a start takes where nobody limits it
STEPS, COMPILATIONS, CHECKPOINTS, AT_LIMIT = "steps", "compilations", "checkpoints", "pauses up to their limit"
STALE, LATE, JUMPS, HANGS = "starts beside stale files", "late looks", "clock jumps", "hangs"
SAVES = "saves that all others wait for"
OURS, NUMBER, TOUCH = "ours", "number", "touch"  # inplace.progress; a step alone; a modification time alone


class LateWork:
    """Work of a thread: done after a while, or at once for whoever waits for it."""

    def __init__(self, work: Callable[[], object], after_s: float) -> None:
        self._work: Callable[[], object] | None = work
        if after_s > 0:
            asyncio.get_running_loop().call_later(after_s, self.join, context=outside())
        else:
            self.join()

    def join(self, timeout: float | None = None) -> None:  # noqa: ARG002
        """Do the work, unless it is done."""
        work, self._work = self._work, None
        if work is not None:
            work()

    def is_alive(self) -> bool:
        """Say whether the work is still to be done."""
        return self._work is not None


class Ranks:
    """The ranks of one worker, from its start to its end."""

    def __init__(self, watched: WatchedPods, folder: Path, epoch: int | None, rng: Random) -> None:
        self.is_hung = False
        self._watched = watched
        self._folder = folder
        self._head = b"v1 " + (b"-" if epoch is None else b"%d" % epoch)
        self._rng = rng
        self._stride = rng.choice((1, 1, 1, 512))  # some count samples
        self._has_ended = False
        self._counts = [0] * rng.randint(1, RANKS_MAX)
        self._wrote_s = [0.0] * len(self._counts)  # last
        self._shown = [0] * len(self._counts)  # steps that no look can take for one
        self._shown_s = [float("-inf")] * len(self._counts)  # the last of them
        self._steady_s = [0.0] * len(self._counts)  # from when on the rank's first steps are over
        self._fast = [False] * len(self._counts)  # a step was well below the limit, so nothing doubles it
        self._busy = [True] * len(self._counts)
        self._steps = [b""] * len(self._counts)  # that each rank wrote last
        self._held_until_s = [0.0] * len(self._counts)  # the rank waits for one that saves or hangs in another Pod
        self.excused_s = 0.0  # until then some rank was in a busy phase, for which others may have waited
        watched.count[STALE] += any(folder.glob("*"))
        for number in range(len(self._counts)):
            self._go_on(number, self._life(number))

    def hang(self) -> None:
        """Write nothing any more, in any rank: the others wait for the one that hangs."""
        self.is_hung = True
        self._watched.hung.add(self)

    def end(self) -> None:
        """End with the worker; the files stay."""
        self._has_ended = True
        self._watched.hung.discard(self)

    def hold(self, until_s: float, busy_s_max: int = 0) -> None:
        """Write a line in every rank that makes steps, then none for a while; the first one may say that it saves."""
        for number, is_busy in enumerate(self._busy):  # before its first step a rank is busy as well
            self._held_until_s[number] = until_s
            if not is_busy:
                state = b"save %d" % busy_s_max if busy_s_max and not number else b""
                self._write(number, self._steps[number], state)
                if state:
                    loop = asyncio.get_running_loop()
                    loop.call_later(until_s - loop.time(), self._leave, number, context=outside())

    def count_anew(self) -> None:
        """Be steady only after further steps: the agent may have missed those so far."""
        self._shown, self._fast = [0] * len(self._counts), [False] * len(self._counts)

    @property
    def silent_since_s(self) -> float:
        """Return when the rank wrote last that is silent for the longest time."""
        return min(self._wrote_s)

    @property
    def may_hang(self) -> bool:
        """Say whether a hang can be found now: nobody waits for a first step without a limit for it."""
        return any(self._counts) or self._watched.limits.start_stall_after_s is not None

    @property
    def have_begun(self) -> bool:
        """Say whether every rank has made a step."""
        return all(self._counts)

    @property
    def is_busy(self) -> bool:
        """Say whether some rank is in a busy phase."""
        return any(self._busy)

    @property
    def is_steady(self) -> bool:
        """Say whether every rank's limit is now the one between steps."""
        now_s = asyncio.get_running_loop().time()
        steady = (
            shown >= STEADY_STEPS and over_s < now_s and fast and not busy
            for shown, over_s, fast, busy in zip(self._shown, self._steady_s, self._fast, self._busy, strict=True)
        )
        return all(steady)

    def _go_on(self, number: int, life: Iterator[float]) -> None:
        """Live until the next write, unless the worker hangs or ended.

        A rank waits for one of another Pod that saves or hangs, once it is not busy itself.
        """
        if not (self.is_hung or self._has_ended):
            held_s = self._held_until_s[number] - asyncio.get_running_loop().time()
            if self._watched.hung and self._watched.kind == OURS:
                held_s = max(held_s, LOOK_S)
            wait_s = held_s if held_s > 0.0 and not self._busy[number] else next(life)
            asyncio.get_running_loop().call_later(wait_s, self._go_on, number, life, context=outside())

    def _life(self, number: int) -> Iterator[float]:
        """Write one rank's file again and again; yield the seconds until the next write."""
        rng, kind = self._rng, self._watched.kind
        stall_s, start_s = self._watched.limits.stall_after_s, self._watched.limits.start_stall_after_s
        assert stall_s is not None
        if kind == OURS and rng.random() < 0.5:
            yield self._within(start_s or UNLIMITED_START * stall_s)
            yield from self._phase(number, b"-", b"compile", COMPILATIONS)
        yield self._within(start_s or UNLIMITED_START * stall_s)
        first_s = max(start_s, stall_s) if start_s is not None else FIRST_STEPS_FACTOR * stall_s
        step = rng.choice((0, 0, 1_000))
        self._steady_s[number] = asyncio.get_running_loop().time() + first_s + (FIRST_STEPS + 1) * stall_s
        while True:
            goes_back = rng.random() >= 0.98 and step > 0  # to a checkpoint
            step += -min(step, 50) if goes_back else self._stride
            self._write(number, b"%d" % step)
            self._counts[number] += 1
            self._busy[number] = False
            if self._wrote_s[number] - self._shown_s[number] > LATE_PERIODS * self._watched.limits.period_s:
                self._shown[number] += 1
                self._shown_s[number] = self._wrote_s[number]
            self._watched.count[STEPS] += 1
            if kind == OURS and rng.random() < 0.1:
                yield self._within(stall_s)
                yield from self._phase(number, b"%d" % step, b"checkpoint", CHECKPOINTS)
            # A file without numbers shows one step a look: it has the limit of first steps for longer.
            limit_s = first_s if self._counts[number] <= FIRST_STEPS and kind != TOUCH else stall_s
            wait_s = self._within(limit_s)
            yield wait_s
            self._fast[number] = self._fast[number] or 0.1 * stall_s < wait_s < 0.8 * stall_s

    def _phase(self, number: int, step: bytes, name: bytes, kind: str) -> Iterator[float]:
        """Be busy for less than the phase's own limit."""
        limit_s = self._rng.randint(1, BUSY_S_MAX)
        self._watched.count[kind] += 1
        self._busy[number] = True
        self._write(number, step, b"%s %d" % (name, limit_s))
        yield self._within(limit_s)
        self._write(number, step)
        self._busy[number] = False
        self.excused_s = self._wrote_s[number]

    def _leave(self, number: int) -> None:
        """End a save, unless the worker has ended or the rank is busy with something else."""
        if not (self.is_hung or self._has_ended or self._busy[number]):
            self._write(number, self._steps[number])

    def _within(self, limit_s: float) -> float:
        """Draw a time below a limit: often much shorter, sometimes only just below."""
        share = self._rng.choice((self._rng.uniform(0.01, ALMOST), self._rng.uniform(0.01, 0.3), ALMOST))
        self._watched.count[AT_LIMIT] += share == ALMOST
        return limit_s * share

    def _write(self, number: int, step: bytes, state: bytes = b"") -> None:
        """Overwrite the rank's file, and give it the time of the node's clock."""
        self._steps[number] = step
        now_s = self._wrote_s[number] = asyncio.get_running_loop().time()
        kind = self._watched.kind
        name = f"rank-{number}" if kind == OURS else str(number)
        line = {OURS: b" ".join((self._head, step, b"77", state)).ljust(LINE_BYTES_MAX - 1) + b"\n", NUMBER: step}
        try:
            file = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | (0 if kind == OURS else os.O_TRUNC))
        except FileNotFoundError:  # nobody made the folder: nobody watches
            return
        try:
            os.pwrite(file, line.get(kind, b"alive"), 0)
            modified_ns = round((VIRTUAL_EPOCH_S + now_s + self._watched.skew_s) * 1e9)
            os.utime(file, ns=(modified_ns, modified_ns))
        finally:
            os.close(file)


class WatchedPods:
    """The folders of a run's Pods, and what happened to those who write there.

    Args:
        limits: `stall_after_s` at least.
        root: below it each Pod has a folder.
    """

    def __init__(self, limits: StallSettings, rng: Random) -> None:
        assert limits.stall_after_s is not None
        self.limits = limits
        self.count: Counter[str] = Counter()
        self.skew_s = 0.0  # of the nodes' wall clocks
        self.late_s_max = 0.0  # a look takes up to so long
        self.hung: set[Ranks] = set()  # of workers that have not ended
        self.kind = rng.choice((OURS, OURS, NUMBER, TOUCH))
        self._rng = rng
        self._root = Path(tempfile.mkdtemp(prefix="inplace-ranks-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))

    def folder(self, uid: str) -> Path:
        """Return where the ranks of a Pod write."""
        return self._root / uid

    def start(self, uid: str, epoch: int | None) -> Ranks:
        """Start the ranks of a worker."""
        return Ranks(self, self.folder(uid), epoch, Random(self._rng.random()))

    def stalls(self, config: AgentConfig, clock: Clock, log: Log) -> StallWatch:
        """Return the agent's own watch over them."""
        return StallWatch(config, make=self._make, clock=clock, log=log)

    def close(self) -> None:
        """Remove the folders."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _make(self, own: WatchSettings, limits: StallSettings, clock: Clock, log: Log) -> Watchdog:
        return Watchdog(limits, lambda: ProgressFolder(own.folder), clock=clock, log=log, run=self._run)

    def _run(self, work: Callable[[], object]) -> LateWork:
        is_late = self.late_s_max > 0 and self._rng.random() < 0.1
        self.count[LATE] += is_late
        return LateWork(work, self._rng.uniform(0.0, self.late_s_max) if is_late else 0.0)


IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a private folder below it; a disk would take most of a run's time
