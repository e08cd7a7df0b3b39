"""A rank that is slow is named, and of ranks that differ by chance none ever is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp
from random import Random
from statistics import NormalDist

import pytest

from inplace.common.jobset.slow_ranks import NAMED_MAX, PodWork, SlowRank, SlowRanks, slow_ranks, slow_ranks_of_entry

MEDIANS = 40_000
TAIL = 0.95  # quantile from which draws are of a Pareto distribution


def works(seconds: Sequence[float], job: str = "w") -> list[PodWork]:
    """Return what the Pods of one replicatedJob tell."""
    return [PodWork(f"p{rank}", f"node-{rank}", job, rank, one) for rank, one in enumerate(seconds)]


def medians(rng: Random) -> tuple[list[float], list[float]]:
    """Return medians of 16 draws, by sigma 1: of a normal distribution, and of one with a heavy tail.

    The 8th of 16 numbers that are uniform from 0 to 1 is of the distribution Beta(8, 9).
    """
    quantiles = [rng.betavariate(8, 9) for _ in range(MEDIANS)]
    normal = [NormalDist().inv_cdf(one) for one in quantiles]
    heavy = [z if q < TAIL else z + 10 * ((1 - TAIL) / (1 - q)) for z, q in zip(normal, quantiles, strict=True)]
    return normal, heavy


def groups(count: int, sigmas: tuple[float, float], sizes: tuple[int, int] = (4, 64)) -> Iterator[list[float]]:
    """Yield what equal ranks tell; the seed is fixed."""
    rng = Random(sum(sizes))
    normal, heavy = medians(rng)
    for _ in range(count):
        sigma, size = rng.uniform(*sigmas), rng.randint(*sizes)
        yield [exp(sigma * z) for z in rng.choices(heavy if rng.random() < 0.3 else normal, k=size)]


def test_ranks_that_are_equal_are_never_named() -> None:
    """10,000 groups of 4 to 64 Pods, each the median of 16 draws, log-normal with a sigma of 0.1 to 0.5."""
    named = [group for group in groups(10_000, (0.1, 0.5)) if slow_ranks(works(group)) is not None]
    assert named == []


@pytest.mark.parametrize(
    ("sigma", "slower", "share"), [(0.1, 2.0, 0.99), (0.2, 2.0, 0.95), (0.3, 3.0, 0.99), (0.5, 3.0, 0.7)]
)
def test_a_rank_that_is_slow_is_named(sigma: float, slower: float, share: float) -> None:
    """Twice as slow where steps are as even as in training; where they are not, three times."""
    found = 0
    for group in groups(500, (sigma, sigma)):
        slow = slow_ranks(works([group[0] * slower, *group[1:]]))
        found += slow is not None and [rank.rank for rank in slow.ranks] == [0]
    assert found >= share * 500


def test_the_slowest_are_named_first_and_in_words() -> None:
    """With the Pods' nodes, in milliseconds, and what half of the Pods stay below."""
    slow = slow_ranks([*works([1.0] * 10 + [3.1, 2.6] + [0.9] * 10), PodWork("q", "n", "w", None, 4.0)])
    assert slow == SlowRanks(
        (SlowRank("q", "n", None, 4000), SlowRank("p10", "node-10", 10, 3100), SlowRank("p11", "node-11", 11, 2600)),
        1000,
    )
    assert str(slow) == (
        "pod q works 4.0 s, rank 10 (p10) works 3.1 s, rank 11 (p11) works 2.6 s on a step, half of the pods less than "
        "1.0 s"
    )
    assert slow_ranks_of_entry(slow.fields()) == slow
    assert "half of the pods less than 10 ms" in str(slow_ranks(works([0.01] * 9 + [0.0312])))


@pytest.mark.parametrize(
    "seconds",
    [
        [],
        [1.0, 1.0, 9.0],  # too few
        [1.0, 1.0, 1.0, 1.0],
        [1.0] * 9 + [1.49],  # not worth a look
        [1.0] * 5 + [5.0] * 3,  # what is normal?
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 12.0],  # they differ by nature
        [0.0001] * 8,
    ],
)
def test_nobody_is_named_where_nothing_says_what_is_normal(seconds: list[float]) -> None:
    """Too few Pods, too many slow ones, or too great a spread."""
    assert slow_ranks(works(seconds)) is None


def test_only_pods_that_do_the_same_are_compared() -> None:
    """Of two replicatedJobs with slow ranks, the one is told whose rank is the slower for its kind."""
    slow = slow_ranks([*works([1.0] * 8), *works([9.0] * 8, "evaluators"), *works([5.0] * 8 + [20.0], "servers")])
    assert slow is not None
    assert (slow.typical_ms, [rank.pod for rank in slow.ranks]) == (5000, ["p8"])
    assert slow_ranks([*works([1.0] * 8), *works([9.0] * 8, "evaluators")]) is None


def test_what_is_told_of_thousands_is_bounded() -> None:
    """A quarter of 5,000 may be slow; five are named."""
    slow = slow_ranks(works([1.0] * 4_000 + [9.0] * 1_000))
    assert slow is not None
    assert len(slow.ranks) == NAMED_MAX


@pytest.mark.parametrize(
    "entry", [{}, {"slowRanks": "x", "typicalWorkMilliseconds": 1}, {"slowRanks": [{}]}, {"slowRanks": []}]
)
def test_a_status_that_another_program_wrote_names_nobody(entry: dict[str, object]) -> None:
    """What cannot be read is passed over."""
    assert slow_ranks_of_entry(entry) is None
