"""
Modelled workers that train together: a step needs all of them, and after a save that was asked for they end.

A run begins when all workers of an epoch are there, at the newest checkpoint. If one of them ends, the others wait for
it until they are stopped. Whether a worker was asked travels with the step, as in examples/train.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Final

from inplace.agent.report.log import Log
from inplace.agent.worker.save_requests import SaveRequests
from inplace.simulator.campaign.process import outside
from inplace.simulator.cluster.model_container import WorkerRun

SAVED: Final = 75  # as examples/train.py
CHECKPOINT_EVERY: Final = 50
STEP_S: Final = (0.2, 4.0)
SAVE_S: Final = (0.1, 8.0)
END_S_MAX: Final = 0.1  # from the end of the barrier after the save to a process's end


class MarkedRequests(SaveRequests):
    """One Pod's requests, which its worker sees in `marks`; they outlive it as a file does."""

    def __init__(self, marks: dict[str, int], uid: str, within_s: float, log: Log) -> None:
        super().__init__("/run/inplace/save", within_s, log)
        self._marks, self._uid = marks, uid

    def write(self, epoch: int) -> str:
        """Keep the epoch."""
        self._marks[self._uid] = epoch
        return ""


@dataclass(slots=True)
class TrainedRun:
    """What the workers of one epoch did: its first step, and its last."""

    first: int
    last: int


@dataclass
class Lockstep:
    """The training of one group.

    Args:
        world: how many workers it has.
        stuck: Pods, by uid, whose worker saves for ever.
    """

    world: int
    rng: Random
    stuck: set[str] = field(default_factory=set)
    checkpoint: int = 0
    runs: dict[int, TrainedRun] = field(default_factory=dict)  # by epoch
    _marks: dict[str, int] = field(default_factory=dict)  # by Pod's uid, the epoch that is asked to save
    _workers: dict[int, dict[str, WorkerRun]] = field(default_factory=dict)  # by epoch, and Pod's uid

    @property
    def lost(self) -> int:
        """Return the steps that were made and are no part of the run after it."""
        runs = [self.runs[epoch] for epoch in sorted(self.runs)]
        return sum(run.last - after.first for run, after in pairwise(runs))

    def requests(self, uid: str, within_s: float, log: Log) -> SaveRequests:
        """Return what a Pod's agent, or its guard, asks the worker with."""
        return MarkedRequests(self._marks, uid, within_s, log)

    def joined(self, uid: str, worker: WorkerRun, epoch: int) -> None:
        """Take in a worker that starts; the last one begins the run."""
        workers = self._workers.setdefault(epoch, {})
        workers[uid] = worker
        if len(workers) == self.world and self._are_alive(epoch):
            self.runs[epoch] = TrainedRun(self.checkpoint, self.checkpoint)
            self._later(self.rng.uniform(*STEP_S), epoch)

    def _step(self, epoch: int) -> None:
        """End a step, if all its workers are there."""
        if not self._are_alive(epoch):
            return
        run, workers = self.runs[epoch], self._workers[epoch]
        run.last += 1
        if any(self._marks.get(uid) == epoch for uid in workers):
            if not self.stuck & workers.keys():
                saved_s = max(self.rng.uniform(*SAVE_S) for _ in workers)
                self._loop.call_later(saved_s, self._end, epoch, context=outside())
            return
        if run.last % CHECKPOINT_EVERY == 0:
            self.checkpoint = run.last
        self._later(self.rng.uniform(*STEP_S), epoch)

    def _end(self, epoch: int) -> None:
        """End the workers that have all saved."""
        if not self._are_alive(epoch):
            return
        self.checkpoint = self.runs[epoch].last
        for worker in self._workers[epoch].values():
            self._loop.call_later(self.rng.uniform(0.0, END_S_MAX), worker.end, SAVED, context=outside())

    def _are_alive(self, epoch: int) -> bool:
        return not any(worker.ended.done() for worker in self._workers[epoch].values())

    def _later(self, wait_s: float, epoch: int) -> None:
        self._loop.call_later(wait_s, self._step, epoch, context=outside())

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()
