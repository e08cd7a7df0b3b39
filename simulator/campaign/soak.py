"""
Run many seeds, or many plans, in several processes, and count the violations.

Each soak takes new seeds, because seeds that were used for debugging find nothing new. No violation ends a soak. Of
each kind of violation the run with the fewest faults is kept, and shortened.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from inplace.simulator.campaign.run import Outcome, run_seed

RUNS_PER_TASK = 10
TASKS_PER_CHILD = 50  # a new child process gives the old one's memory back
SEEDS_TOGETHER_MAX = 1_000_000  # seeds of each minute; two cores need a day and a half for them
SEEDS_SHOWN_MAX = 10  # of one kind of violation: a common bug has thousands

RUNS_MAX = 60  # to shorten one; at a fraction of a second each

T = TypeVar("T")
R = TypeVar("R")


def fresh_first(now_s: float) -> int:
    """Return the first seed of a soak that begins now (Unix time): no other minute's soak uses the same."""
    return int(now_s // 60) * SEEDS_TOGETHER_MAX


@dataclass
class Tally:
    """The sum of many runs' outcomes.

    Args:
        violations: how many seeds broke each property.
        witnesses: of each property that broke, the run with the fewest faults.
        seeds_of: the first seeds that broke each.
    """

    seeds: int = 0
    events: int = 0
    virtual_s: float = 0.0
    fired: Counter[str] = field(default_factory=Counter)
    watched: Counter[str] = field(default_factory=Counter)
    groups_watched: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    witnesses: dict[str, Outcome] = field(default_factory=dict)
    seeds_of: dict[str, list[int]] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        self.seeds += 1
        self.events += outcome.events
        self.virtual_s += outcome.at_s
        self.fired += outcome.fired
        self.watched += outcome.watched
        self.groups_watched += outcome.scenario.limits is not None
        if outcome.violation is not None:
            self._add_violation(outcome, outcome.violation.rule)

    def _add_violation(self, outcome: Outcome, rule: str) -> None:
        self.violations[rule] += 1
        seeds = self.seeds_of.setdefault(rule, [])
        if len(seeds) < SEEDS_SHOWN_MAX:
            seeds.append(outcome.seed)
        best = self.witnesses.get(rule)
        if best is None or len(outcome.strikes) < len(best.strikes):
            self.witnesses[rule] = outcome


def in_processes(run: Callable[[T], R], work: Sequence[T], processes: int) -> Iterator[tuple[T, R]]:
    """Yield each piece of work with its outcome, in the order of the work."""
    if processes == 1:
        yield from zip(work, map(run, work), strict=True)
        return
    # Spawned, not forked: a child shares nothing with this process but its task.
    spawned = multiprocessing.get_context("spawn")
    with spawned.Pool(processes, initializer=_collect_rarely, maxtasksperchild=TASKS_PER_CHILD) as pool:
        yield from zip(work, pool.imap(run, work, chunksize=RUNS_PER_TASK), strict=True)


def _collect_rarely() -> None:
    """Look for circles of garbage rarely: that saves 8 % of a run's time, and costs 8 MB."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def shrink(outcome: Outcome, run: Callable[[int, list[int]], Outcome] | None = None) -> tuple[list[int], Outcome]:
    """Return the strikes that the violation needs, and the run of those strikes alone.

    Every strike has its own randomness, so the rest of the schedule stays the same when some are left out. The shorter
    run may still differ; a candidate that breaks the same property no more is dropped.

    Args:
        outcome: a run with a violation.
        run: runs a seed with some of its strikes.
    """
    assert outcome.violation is not None, "expected a run that failed"
    run = run or (lambda seed, only: run_seed(seed, only=only))
    rule, kept, best = outcome.violation.rule, [strike.number for strike in outcome.strikes], outcome
    runs, size = 0, max(1, len(kept) // 2)
    while kept and runs < RUNS_MAX:
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            runs += 1
            tried = run(outcome.seed, fewer)
            if tried.violation is not None and tried.violation.rule == rule:
                kept, best = fewer, tried
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return kept, best
