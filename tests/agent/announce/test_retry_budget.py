"""One agent's retries: bounds, one row of failures for all tasks, Retry-After, recovery; and 5,000 agents' rates."""

from __future__ import annotations

import heapq
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.agent.announce.jobset_requests import WATCH_TIMEOUT_S
from inplace.agent.announce.retry_budget import (
    DENIED_BASE_S,
    DENIED_CAP_S,
    FREE_ENDINGS_MAX,
    HEALTHY_S,
    RETRY_BASE_S,
    RETRY_CAP_S,
    RetryBudget,
)
from inplace.agent.settings.herd import Herd
from inplace.common.kube.errors import Forbidden, Throttled
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.watch import Broken, Busy, Closed, Denied, Gone, WatchEnding

BROKEN = Broken(TransportError("reset"))
DENIED = Denied(Forbidden(403, "Forbidden", "no"))


def busy(after_s: float = 0.0) -> Busy:
    """Return a 429 with a Retry-After."""
    return Busy(after_s, Throttled(429, "TooManyRequests", "busy"))


ENDINGS = st.one_of(st.just(BROKEN), st.just(Closed()), st.just(Gone()), st.floats(0, 32).map(busy))


@given(steps=st.lists(st.tuples(ENDINGS, st.floats(0, 100), st.booleans()), max_size=60), seed=st.integers())
def test_a_wait_is_bounded_and_respects_retry_after(steps: list[tuple[WatchEnding, float, bool]], seed: int) -> None:
    """After any number of failures of one task the wait is at least Retry-After, and at most that plus the cap."""
    budget, now_s = RetryBudget(Random(seed)), 0.0
    for ending, pause_s, succeeds in steps:
        wait_s = budget.wait_s(ending, now_s)
        after_s = ending.after_s if isinstance(ending, Busy) else 0.0
        assert after_s - 1e-9 <= wait_s <= after_s + RETRY_CAP_S + 1e-9
        now_s += wait_s
        if succeeds:
            budget.note_success(now_s)
        now_s += pause_s


@given(seed=st.integers(), failures=st.integers(1, 40))
def test_two_tasks_share_one_line(seed: int, failures: int) -> None:
    """Watch and patch that fail together retry as rarely as one task that failed twice as often."""
    one, both = RetryBudget(Random(seed)), RetryBudget(Random(seed))
    alone_s, together_s = 0.0, 0.0
    for _ in range(failures):
        for _ in ("watch", "patch"):
            alone_s += one.wait_s(BROKEN, alone_s)  # this task fails again right after its retry
        waits_s = [both.wait_s(BROKEN, together_s) for _ in ("watch", "patch")]
        assert waits_s == sorted(waits_s)
        together_s += waits_s[-1]
        assert together_s == pytest.approx(alone_s)


def test_what_cannot_be_cured_holds_nobody_up() -> None:
    """A forbidden patch waits by its own, slower row; the watch beside it is retried as soon as before."""
    budget = RetryBudget(Random(3))
    denied_s = [budget.wait_s(DENIED, 0.0) for _ in range(12)]
    assert denied_s[0] <= DENIED_BASE_S
    assert RETRY_CAP_S < max(denied_s) <= DENIED_CAP_S
    assert budget.wait_s(BROKEN, 0.0) <= RETRY_BASE_S


def test_clean_ends_are_free_at_first() -> None:
    """A watch that ends cleanly is opened again at once, a bounded number of times in a row."""
    budget = RetryBudget(Random(1))
    waits_s = [budget.wait_s(Closed(), 0.0) for _ in range(FREE_ENDINGS_MAX + 5)]
    assert [wait_s == 0.0 for wait_s in waits_s] == [True] * FREE_ENDINGS_MAX + [False] * 5


def test_a_large_group_reopens_its_watches_over_its_window() -> None:
    """When an API server is replaced, 5,000 agents reopen their watches at the rate of their starts."""
    rng, herd = Random(1), Herd(5000)
    for ending in (Closed(), BROKEN):
        waits_s = [RetryBudget(rng, herd.spread_s).wait_s(ending, 0.0) for _ in range(5000)]
        per_tenth = Counter(int(wait_s * 10) for wait_s in waits_s)
        assert max(waits_s) < herd.spread_s
        assert max(per_tenth.values()) < 1.3 * 5000 / herd.spread_s / 10


def test_a_watch_that_ends_alone_is_opened_again_at_once() -> None:
    """A watch that ended by its timeout is opened at once: no others end with it, and a restart may come any moment."""
    budget = RetryBudget(Random(1), spread_s=3.0)
    budget.note_success(0.0)
    assert budget.wait_s(Closed(), float(WATCH_TIMEOUT_S)) == 0.0
    budget.note_success(5000.0)
    assert budget.wait_s(Closed(), 6000.0) > 0.0


def exhausted(rng: Random) -> tuple[RetryBudget, float]:
    """Return a budget whose bound has grown to the cap, and the time."""
    budget, now_s = RetryBudget(rng), 0.0
    for _ in range(12):
        now_s += budget.wait_s(BROKEN, now_s)
    return budget, now_s


def test_what_worked_for_a_while_forgets_the_failures() -> None:
    """After HEALTHY_S of a working server the next wait is short, and clean ends cost no wait."""
    budget, now_s = exhausted(Random(1))
    budget.note_success(now_s)
    assert budget.wait_s(BROKEN, now_s + HEALTHY_S) <= RETRY_BASE_S
    budget.note_success(now_s + HEALTHY_S)
    assert budget.wait_s(Closed(), now_s + 2 * HEALTHY_S) == 0.0


@pytest.mark.parametrize("works_for_s", [None, 0.0, HEALTHY_S - 0.1])
def test_a_server_that_only_hangs_or_flaps_is_no_success(works_for_s: float | None) -> None:
    """A server that never answers does not end the row of failures; a server that answers briefly does not either."""
    waits_s = []
    for seed in range(50):
        budget, now_s = exhausted(Random(seed))
        if works_for_s is not None:
            budget.note_success(now_s)
        now_s += HEALTHY_S * 100 if works_for_s is None else works_for_s
        waits_s.append(budget.wait_s(BROKEN, now_s))
    assert max(waits_s) > 20 * RETRY_BASE_S


def test_five_thousand_agents_together_stay_within_the_stated_rates() -> None:
    """Both tasks of 5,000 agents without a server: first about twice the rate of starts, in the end 333/s."""
    rng, agents = Random(1), 5000
    herd = Herd(agents)
    budgets = [RetryBudget(rng, herd.spread_s) for _ in range(agents)]
    events = [(budgets[agent].wait_s(BROKEN, 0.0), agent) for agent in range(agents) for _ in ("watch", "patch")]
    heapq.heapify(events)
    per_second: Counter[int] = Counter()
    while events[0][0] < 300.0:
        now_s, agent = heapq.heappop(events)
        per_second[int(now_s)] += 1
        heapq.heappush(events, (now_s + budgets[agent].wait_s(BROKEN, now_s), agent))
    assert max(per_second.values()) < 2.5 * agents / herd.window_s
    steady = [per_second[second] for second in range(120, 300)]
    assert 0.8 * 333 < sum(steady) / len(steady) < 1.1 * 333
    assert max(steady) < 1.5 * 333
