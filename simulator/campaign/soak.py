"""Run many seeds in several processes, count what struck, and stop for nothing but the number of failures."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from simulator.campaign.run import Outcome, run_seed

FAILURES_MAX = 10  # shown and shrunk; a bug that every second seed finds needs no thousand witnesses
SEEDS_PER_TASK = 10


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


def outcomes(seeds: range, processes: int) -> Iterator[Outcome]:
    """Yield the outcome of each seed, in any order."""
    if processes == 1:
        yield from map(run_seed, seeds)
        return
    # Spawned, not forked: a child shares nothing with this process but the seed.
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=100) as pool:
        yield from pool.imap_unordered(run_seed, seeds, chunksize=SEEDS_PER_TASK)


def soak(seeds: range, processes: int) -> Iterator[Tally]:
    """Run every seed and yield the tally after each; the last one is the result."""
    tally = Tally()
    for outcome in outcomes(seeds, processes):
        tally.add(outcome)
        yield tally
        if len(tally.failures) >= FAILURES_MAX:
            return
