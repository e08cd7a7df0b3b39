"""The watchdog over real files: no healthy worker is called hung, and every hang is found."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from itertools import pairwise
from operator import sub
from random import Random

import pytest

from inplace.common.protocol.rank import StallSettings
from inplace.simulator.campaign.ranks import (
    AT_LIMIT,
    CHECKPOINTS,
    COMPILATIONS,
    HANGS,
    JUMPS,
    LATE,
    STALE,
    Ranks,
    WatchedPods,
)
from inplace.simulator.campaign.stalls import PAUSES, run_stalls

FEW = 15
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
@pytest.mark.parametrize("first", range(FEW, FEW + 4 * PER_TEST, PER_TEST))
def test_many_seeds_break_nothing(first: int) -> None:
    """`python -m simulator.campaign stalls --seeds 10000` runs more."""
    assert watched(range(first, first + PER_TEST))[HANGS] == PER_TEST


@pytest.mark.virtual_time
async def test_a_steady_rank_has_made_a_fast_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has, its agent doubles the limit: soak seed 140000627 called that a hang that nobody found."""
    wrote_s = defaultdict[tuple[Ranks, int], list[float]](list)
    write = Ranks._write

    def noted(self: Ranks, number: int, step: bytes, state: bytes = b"") -> None:
        wrote_s[self, number].append(asyncio.get_running_loop().time())
        write(self, number, step, state)

    monkeypatch.setattr(Ranks, "_write", noted)
    watched_pods = WatchedPods(StallSettings(4.0), Random(1))
    steady = [watched_pods.start(str(seed), 1) for seed in range(60)]
    while steady:
        await asyncio.sleep(0.05)
        for ranks in [one for one in steady if one.is_steady]:
            steady.remove(ranks)
            ranks.end()
            fastest_s = [min(map(sub, times[1:], times)) for (owner, _), times in wrote_s.items() if owner is ranks]
            assert max(fastest_s) < 0.8 * 4.0


@pytest.mark.virtual_time
async def test_a_rank_writes_another_number_with_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent takes the same number for no step: soak seed 340007983 called that a hang that nobody found."""
    wrote = defaultdict[tuple[Ranks, int], list[tuple[bytes, bytes]]](list)
    monkeypatch.setattr(
        Ranks, "_write", lambda self, number, step, state=b"": wrote[self, number].append((step, state))
    )
    watched_pods = WatchedPods(StallSettings(4.0), Random(1))
    ranks = [watched_pods.start(str(seed), 1) for seed in range(200)]
    await asyncio.sleep(400.0)
    pairs = [pair for lines in wrote.values() for pair in pairwise(lines)]
    steps = [(last, step) for (last, was), (step, busy) in pairs if not (was or busy)]
    assert [step for last, step in steps if step == last] == []
    assert len(steps) > 20_000
    assert len([step for _, step in steps if step == b"0"]) > 100
    for one in ranks:
        one.end()


def test_a_seed_is_a_run() -> None:
    """The same seed gives the same."""
    assert run_stalls(7) == run_stalls(7)
