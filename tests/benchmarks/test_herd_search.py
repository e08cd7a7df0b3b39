from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from benchmarks.herd_search import GRID, REJECTED_MAX, SCENARIOS, Judgement, Scenario, judge, search
from benchmarks.model_group import Slots
from inplace.agent.herd import LEAST_SHARE, PATCHES_PER_START, RATE_PER_S, WINDOW_S
from inplace.agent.retry_budget import RETRY_BASE_S

BEST = Slots(200, 2, 3, 1)


def bowl(slots: Slots) -> Judgement:
    """Return a cost that is least at BEST, and forbids windows below it."""
    away = sum(
        abs(value - best) / best
        for value, best in (
            (slots.rate_per_s, BEST.rate_per_s),
            (slots.window_s_max, BEST.window_s_max),
            (slots.patches_per_start, BEST.patches_per_start),
            (slots.retry_base_s, BEST.retry_base_s),
        )
    )
    return Judgement(slots, 0.0 if slots.window_s_max >= BEST.window_s_max else 1.0, away)


def test_the_search_finds_the_best_of_its_values() -> None:
    """From a corner the search finds the best values, one constant at a time; every step is better than the last."""
    way = search(Slots(1_000, 0, 1, 4), bowl)
    assert way[-1].slots == BEST
    assert all(later.order < earlier.order for earlier, later in pairwise(way))


def test_rejections_come_before_time() -> None:
    """A faster choice with too many 429s loses; within the bound on 429s only time counts."""
    slow, fast = Judgement(BEST, REJECTED_MAX, 2.0), Judgement(BEST, REJECTED_MAX + 0.01, 1.0)
    assert slow.order < fast.order
    assert Judgement(BEST, 0.0, 2.0).order > Judgement(BEST, REJECTED_MAX, 1.9).order


def test_the_agents_constants_are_among_the_values() -> None:
    """The agents' constants are among the compared values, on at least five clusters."""
    ours = Slots(RATE_PER_S, WINDOW_S, PATCHES_PER_START, RETRY_BASE_S, LEAST_SHARE)
    assert all(getattr(ours, name) in values for name, values in GRID.items())
    assert len({each.profile for each in SCENARIOS}) >= 5


def test_the_agents_constants_keep_the_promise_where_it_is_tightest() -> None:
    """1,000 agents that begin together on two cores are rejected 0.2 times each at most; without slots, many more."""
    tightest = [Scenario("lab-herd", 1_000, "sidecar")]
    assert judge(Slots(), tightest, seeds=2).rejected <= REJECTED_MAX
    assert judge(replace(Slots(), window_s_max=0.0), tightest, seeds=2).rejected > 2 * REJECTED_MAX
