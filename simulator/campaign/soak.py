"""Run many seeds, or many plans, in several processes; count what struck; stop for nothing but many failures."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from simulator.campaign.run import Outcome, run_seed

FAILURES_MAX = 10  # shown and shrunk; a bug that every second seed finds needs no thousand witnesses
RUNS_PER_TASK = 10
TASKS_PER_CHILD = 50  # a child that starts anew gives its memory back

T = TypeVar("T")


@dataclass
class Tally:
    """What many runs came to."""

    seeds: int = 0
    events: int = 0
    virtual_s: float = 0.0
    fired: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        self.seeds += 1
        self.events += outcome.events
        self.virtual_s += outcome.at_s
        self.fired += outcome.fired
        if outcome.violation is not None:
            self.failures.append(outcome)


def in_processes(run: Callable[[T], Outcome], work: Sequence[T], processes: int) -> Iterator[tuple[T, Outcome]]:
    """Yield each piece of work with its outcome, in the order of the work."""
    if processes == 1:
        yield from zip(work, map(run, work), strict=True)
        return
    # Spawned, not forked: a child shares nothing with this process but its task.
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=TASKS_PER_CHILD) as pool:
        yield from zip(work, pool.imap(run, work, chunksize=RUNS_PER_TASK), strict=True)


def soak(seeds: range, processes: int) -> Iterator[Tally]:
    """Run every seed and yield the tally after each; the last one is the result."""
    tally = Tally()
    for _, outcome in in_processes(run_seed, seeds, processes):
        tally.add(outcome)
        yield tally
        if len(tally.failures) >= FAILURES_MAX:
            return
