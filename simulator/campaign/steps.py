"""
Modelled workers that make and save steps: each one in their Pod, each few on storage that all can read.

What they say are real lines in real files (`common.wire.saved`), which the agents' own code reads. A worker keeps its
newest copies, as with two buffers in turn; they outlive it, and go with the Pod. It goes on from the step that it is
told; else from the newest one on storage. If a worker of an epoch ends, the others make no step more.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from inplace.simulator.campaign.process import outside
from inplace.simulator.campaign.ranks import IN_MEMORY

KEPT: Final = 2
FIRST_S: Final = 1.0  # from the first worker's start to the first step
STEP_S: Final = (0.2, 1.5)
LATE_STEPS: Final = 1.5  # a rank saves up to so many steps after the first one
STEPS_MAX: Final = 40  # of one run: a worker that is left alone has then shown what it can show
FILE: Final = ".pod.saved"


class Copy(NamedTuple):
    """A Pod's own part of a step: a part of the whole that one run of so many ranks made."""

    made: int  # in this epoch
    rank: Hashable
    size: int | None  # None: the epoch had no list, and nobody compares sizes


@dataclass
class Run:
    """The workers of one epoch.

    Args:
        start: the step from which they go on.
        first_s: when they make the first one.
        step_s: how long each takes.
    """

    start: int
    first_s: float
    step_s: float
    joined: int = 0
    reached: Counter[int] = field(default_factory=Counter)  # by step, how many have saved it
    is_over: bool = False


class StepStore:
    """What the Pods of a world have saved.

    Args:
        share_every: so many steps lie between two on storage.
    """

    def __init__(self, share_every: int, rng: Random) -> None:
        self.shared: set[int] = set()  # that a worker told of
        self.copies: dict[str, dict[int, Copy]] = {}  # by Pod's uid
        self.share_every = share_every
        self.rng = rng
        self.runs: dict[tuple[str, int], Run] = {}
        self._root = Path(tempfile.mkdtemp(prefix="inplace-steps-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))

    def folder(self, uid: str) -> Path:
        """Return where the ranks of a Pod write."""
        folder = self._root / uid
        folder.mkdir(exist_ok=True)
        return folder

    def lose(self, uid: str) -> None:
        """Take what a Pod had, as its end does."""
        self.copies.pop(uid, None)
        shutil.rmtree(self._root / uid, ignore_errors=True)

    def close(self) -> None:
        """Remove the folders."""
        shutil.rmtree(self._root, ignore_errors=True)

    def start(self, jobset: str, uid: str, copy: Copy, step: int | None) -> SavingRank:
        """Start the rank of one Pod; `copy` is what each of its steps will be, `step` what it is told."""
        now_s = asyncio.get_running_loop().time()
        start = max(self.shared, default=0) if step is None else step
        key = (jobset, copy.made)
        if key not in self.runs:
            self.runs[key] = Run(start, now_s + FIRST_S, self.rng.uniform(*STEP_S))
        return SavingRank(self, self.runs[key], uid, copy, start, told=step)


class SavingRank:
    """The rank of one worker, from its start to its end."""

    def __init__(self, store: StepStore, run: Run, uid: str, copy: Copy, start: int, *, told: int | None) -> None:
        self._store, self._run, self._uid, self._copy = store, run, uid, copy
        self._copies = store.copies.setdefault(uid, {})  # the newest last
        self._at, self._local = start, [told] if told in self._copies else []
        self._shared: int | None = None
        run.joined += 1
        self._wait()

    def end(self) -> None:
        """End with the worker: a step needs all of them."""
        self._run.is_over = True

    def _wait(self) -> None:
        """Make the next step when its time has come."""
        run, loop = self._run, asyncio.get_running_loop()
        steps = self._at - run.start + self._store.rng.uniform(0.0, LATE_STEPS)
        if steps < STEPS_MAX:
            due_s = run.first_s + steps * run.step_s - loop.time()
            loop.call_later(max(0.0, due_s), self._save, context=outside())

    def _save(self) -> None:
        if self._run.is_over:
            return
        self._at += 1
        self._copies.pop(self._at, None)
        self._copies[self._at] = self._copy
        while len(self._copies) > KEPT:
            del self._copies[next(iter(self._copies))]
        self._local = [self._at, *(step for step in self._local if step < self._at)][:KEPT]
        self._run.reached[self._at] += 1
        whole = self._at - self._at % self._store.share_every
        if whole > self._run.start and self._run.reached[whole] == self._run.joined:
            self._shared = whole
            self._store.shared.add(whole)
        local = ".".join(map(str, self._local))
        line = f"v1 {self._copy.made} {local} {'-' if self._shared is None else self._shared}\n"
        (self._store.folder(self._uid) / FILE).write_text(line)
        self._wait()
