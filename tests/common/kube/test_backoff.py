"""Full jitter: bounds, growth, the floor and the reset."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from inplace.common.kube.backoff import Backoff


@given(failures=st.integers(0, 200), floor_s=st.floats(0, 60), seed=st.integers())
def test_a_wait_lies_between_the_floor_and_the_doubled_base(failures: int, floor_s: float, seed: int) -> None:
    """After n failures the wait is the floor plus at most base * 2^n or the floor again, never more than the cap."""
    backoff = Backoff(0.5, 30.0, Random(seed), failures)
    ceiling_s = min(30.0, max(floor_s, 0.5 * 2**failures))
    assert floor_s <= backoff.next_s(floor_s) <= floor_s + ceiling_s
    assert backoff.failures == failures + 1


def test_waits_are_spread_over_the_whole_range() -> None:
    """Ten thousand agents that fail together return evenly: each tenth of the range gets about a tenth of them."""
    rng = Random(1)
    waits_s = [Backoff(10.0, 10.0, rng).next_s() for _ in range(10_000)]
    tenths = [sum(1 for wait_s in waits_s if int(wait_s) == tenth) for tenth in range(10)]
    assert all(900 < count < 1100 for count in tenths)


def test_clients_with_one_retry_after_do_not_return_together() -> None:
    """Ten thousand clients told "4 s" at their first failure come back evenly over the 4 s after that."""
    rng = Random(1)
    waits_s = [Backoff(0.5, 30.0, rng).next_s(4.0) for _ in range(10_000)]
    quarters = [sum(1 for wait_s in waits_s if int(wait_s - 4.0) == quarter) for quarter in range(4)]
    assert sum(quarters) == 10_000
    assert all(2300 < count < 2700 for count in quarters)


def test_a_success_forgets_the_failures() -> None:
    """After `reset` the next wait is bounded by the base again."""
    backoff = Backoff(0.5, 30.0, Random(1), failures=20)
    backoff.reset()
    assert backoff.next_s() <= 0.5
