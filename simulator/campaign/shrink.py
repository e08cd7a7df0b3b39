"""
Shorten a failing run: leave out faults as long as the same property still breaks.

Every strike has its own randomness, so the rest of the schedule stays the same. The shorter run may still differ; a
candidate that no longer fails is dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from inplace.simulator.campaign.run import Outcome, run_seed

RUNS_MAX = 60  # at a fraction of a second each


def shrink(outcome: Outcome, run: Callable[[int, list[int]], Outcome] | None = None) -> tuple[list[int], Outcome]:
    """Return the strikes that the violation needs, and the run of those strikes alone.

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
