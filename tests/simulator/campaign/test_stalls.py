"""The watchdog over real files: no healthy worker is called hung, and every hang is found."""

from __future__ import annotations

from collections import Counter

import pytest

from inplace.simulator.campaign.ranks import AT_LIMIT, CHECKPOINTS, COMPILATIONS, HANGS, JUMPS, LATE, STALE
from inplace.simulator.campaign.stalls import PAUSES, run_stalls

FEW = 40
PER_TEST = 50


def watched(seeds: range) -> Counter[str]:
    """Run seeds; return what happened in them."""
    count = Counter[str]()
    for seed in seeds:
        outcome = run_stalls(seed)
        assert outcome.violation == "", f"seed {seed}: {outcome.violation}"
        assert outcome.late_s > 0
        count += outcome.count
    return count


def test_a_few_seeds_break_nothing() -> None:
    """And they hold every kind of what could be taken for a hang."""
    count = watched(range(FEW))
    assert count[HANGS] == FEW
    assert min(count[kind] for kind in (AT_LIMIT, CHECKPOINTS, COMPILATIONS, JUMPS, LATE, STALE, PAUSES)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, 10 * PER_TEST, PER_TEST))
def test_many_seeds_break_nothing(first: int) -> None:
    """`python -m simulator.campaign stalls --seeds 10000` runs more."""
    assert watched(range(first, first + PER_TEST))[HANGS] == PER_TEST


def test_a_seed_is_a_run() -> None:
    """The same seed gives the same."""
    assert run_stalls(7) == run_stalls(7)
