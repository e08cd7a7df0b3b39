"""What a Pod's ranks give reason to tell of, and that equal ranks give none in 10,000 seeds."""

from __future__ import annotations

from random import Random

import pytest

from inplace.agent.progress.rank_notices import LOSS_STEPS, SLOW_FACTOR, notices_of, slowdown, work_s_of
from inplace.common.bare.record import replace
from inplace.common.protocol.learned_limit import STEPS_MIN, LearnedLimits
from inplace.common.protocol.rank import RankLook, RankNumbers, RankState, StallSettings
from inplace.common.protocol.stall import Silence, StallPhase, StallState
from inplace.common.wire.notice import BUSY, LOSS, PAUSE, SLOW, STALL, STEPS, Notice
from inplace.common.wire.rank_numbers import parse_rank_numbers
from inplace.rank_numbers import BEFORE_MIN, BLOCK, NEWEST
from inplace.rank_numbers import RankNumbers as Counting

SEEDS_QUICK, SEEDS = 1_000, 10_000
RUN = 1 + BLOCK * (1 + BEFORE_MIN + NEWEST)  # steps: the first block is left out
WALL_S = 1.79e9


def rank(name: str = "rank-0", step: int = 100, changed_s: float = 50.0, steps: int = 0, **fields: object) -> RankState:
    """Return a rank as its last change showed it."""
    return RankState(RankLook(name, changed=True, step=step, **fields), changed_s, steps)  # type: ignore[arg-type]


def state(*ranks: RankState, watched_s: float = 50.0, stall_after_s: float | None = 60.0) -> StallState:
    """Return what the watchdog of epoch 3 knows."""
    return StallState(
        StallSettings(stall_after_s), StallPhase.WATCHING, epoch=3, watched_s=watched_s, was_heard=True, ranks=ranks
    )


def told(*ranks: RankState, **fields: float) -> list[Notice]:
    """Return the notices of these ranks."""
    return list(notices_of(state(*ranks, **fields), WALL_S))


def test_a_bad_loss_names_the_rank_that_had_it_first() -> None:
    """The others have it from the next step on, by the sum of the gradients."""
    later, first = (
        rank(name, 131, numbers=RankNumbers(bad=LOSS_STEPS + more, bad_since=110 - more))
        for name, more in (("rank-0", 0), ("rank-1", 1))
    )
    assert told(later, first) == [Notice(3, LOSS, LOSS_STEPS + 1, "rank-1", 109, WALL_S)]
    assert told(rank(numbers=RankNumbers(bad=LOSS_STEPS - 1, bad_since=100))) == []


def test_a_slow_rank_is_named_only_by_its_own_work() -> None:
    """Steps alone say that something is slow, and not who."""
    slow = RankNumbers(recent_s=3.1, before_s=1.0, waits=True)
    steps = RankNumbers(recent_s=3.1, before_s=1.0)
    well = RankNumbers(recent_s=1.9, before_s=1.0, waits=True)
    assert told(rank("rank-0", numbers=well), rank("rank-1", numbers=slow)) == [
        Notice(3, SLOW, 310, "rank-1", 100, WALL_S)
    ]
    assert told(rank(numbers=steps)) == [Notice(3, STEPS, 310, "rank-0", 100, WALL_S)]
    assert told(rank(numbers=well)) == []
    assert told(rank(numbers=RankNumbers(recent_s=9.0, waits=True))) == []
    assert work_s_of(state(rank("rank-0", numbers=well), rank("rank-1", numbers=steps))) == {"rank-0": 1.9}


def test_a_busy_rank_is_told_of_at_half_of_the_limit() -> None:
    """For as long as the limit, and no longer than its own phase may take."""
    busy = rank("rank-0", changed_s=50.0, busy="checkpoint", busy_s_max=600)
    assert told(busy, watched_s=79.0) == []
    assert told(busy, watched_s=80.0) == [Notice(3, BUSY, 60, "rank-0", 100, WALL_S)]
    assert told(busy, watched_s=640.0) == [Notice(3, BUSY, 10, "rank-0", 100, WALL_S)]
    assert told(busy, watched_s=651.0) == []
    assert told(busy, watched_s=80.0, stall_after_s=None) == []  # type: ignore[arg-type]
    assert told(rank("rank-0", changed_s=50.0, busy="checkpoint", busy_s_max=600, ended=True), watched_s=80.0) == []


def test_a_silence_is_told_until_it_is_over() -> None:
    """By the rank that is furthest behind, as long as it lasts; then by how long it lasted, until the next one."""
    learned = LearnedLimits(step_s=10.0, steps=STEPS_MIN)
    silent = replace(state(rank("rank-1", 99, steps=3), rank("rank-0", steps=3), watched_s=361.0), learned=learned)
    assert list(notices_of(silent, WALL_S)) == [Notice(3, STALL, 311, "rank-1", 99, WALL_S)]
    over = replace(silent, watched_s=52.0, pause=Silence("rank-1", 99, 320.0, 300.0))
    assert list(notices_of(over, WALL_S)) == [Notice(3, PAUSE, 320, "rank-1", 99, WALL_S)]
    again = replace(over, watched_s=361.0)
    assert [notice.kind for notice in notices_of(again, WALL_S)] == [STALL]


def test_without_a_limit_a_rank_is_busy_for_its_peers_by_what_was_learned() -> None:
    """Half of it: their silence would be told of."""
    busy = rank("rank-0", changed_s=50.0, busy="checkpoint", busy_s_max=600, steps=3)
    learned = LearnedLimits(step_s=10.0, steps=STEPS_MIN)
    waits = replace(state(busy, watched_s=201.0, stall_after_s=None), learned=learned)
    assert list(notices_of(waits, WALL_S)) == [Notice(3, BUSY, 300, "rank-0", 100, WALL_S)]


def test_where_nothing_restarts_in_place_nothing_is_told() -> None:
    """There is no epoch that a notice could be of."""
    bad = rank(numbers=RankNumbers(bad=LOSS_STEPS, bad_since=1))
    assert list(notices_of(StallState(StallSettings(1.0), ranks=(bad,)), WALL_S)) == []


def slowest(rng: Random, factor: float = 1.0, steps: int = RUN) -> float:
    """Return the largest slowdown that any line of a run showed; its last quarter takes `factor` times as long.

    Its steps are as unequal as those of real ones: noise, pauses, phases of heavier data, and a slow drift.
    """
    counting, now_s, worst = Counting(), 0.0, 0.0
    sigma, pauses, drift = rng.uniform(0.05, 0.5), rng.choice((0.0, 0.05, 0.2)), rng.uniform(-0.3, 0.3)
    heavy_from, waits = rng.randrange(steps), rng.random() < 0.5
    for number in range(steps):
        work_s = rng.lognormvariate(0.0, sigma) * (1.0 + drift * number / steps)
        if heavy_from <= number < heavy_from + 2 * BLOCK:
            work_s *= 3.0
        if rng.random() < pauses:
            work_s *= 20.0
        if number >= steps * 3 // 4:
            work_s *= factor
        wait_s = rng.uniform(0.0, 2.0)
        now_s += work_s + wait_s * waits
        line = counting.step(b"%d" % number, now_s, wait_s if waits else None, 0.5)
        if line is not None:
            seen = parse_rank_numbers(b"v1 3 " + line, 3)
            assert seen is not None
            worst = max(worst, slowdown(seen))
    return worst


@pytest.mark.parametrize(
    "seeds", [range(SEEDS_QUICK), pytest.param(range(SEEDS_QUICK, SEEDS), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_equal_ranks_are_never_called_slow(seeds: range) -> None:
    """10,000 short runs of healthy ranks, and some long ones, and no notice."""
    called = [seed for seed in seeds if slowest(Random(seed)) >= SLOW_FACTOR]
    called += [seed for seed in seeds[::250] if slowest(Random(seed), steps=5_000) >= SLOW_FACTOR]
    assert called == []


def test_a_rank_that_takes_three_times_as_long_is_called_slow() -> None:
    """In nearly every run, however noisy: the test above could not fail otherwise."""
    called = sum(slowest(Random(seed), 3.0, 6 * RUN) >= SLOW_FACTOR for seed in range(300))
    assert called >= 290
