"""The random search: fresh seeds every time, a failing seed does not end it, and each kind of failure is shrunk."""

from __future__ import annotations

from functools import cache

import pytest

from inplace.simulator.campaign.__main__ import main
from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.judge import S2, ViolationError
from inplace.simulator.campaign.manners import L5
from inplace.simulator.campaign.report import tell_kinds
from inplace.simulator.campaign.run import Outcome, ScheduledFault, run_seed
from inplace.simulator.campaign.soak import SEEDS_SHOWN_MAX, SEEDS_TOGETHER_MAX, Tally, fresh_first

FAULT = CATALOGUE["worker-exit"]


@cache
def undisturbed() -> Outcome:
    """Return a run without a fault."""
    return run_seed(0, only=[])


def failed(seed: int, rule: str, strikes: int) -> Outcome:
    """Return a run with a violation."""
    schedule = tuple(ScheduledFault(number, float(number), FAULT) for number in range(strikes))
    kept = undisturbed()
    return Outcome(
        seed, kept.scenario, schedule, kept.hash, 1.0, 1, kept.fired, ViolationError(rule, f"seen in {seed}")
    )


@pytest.mark.slow
def test_every_violation_is_counted_and_each_kind_is_shrunk_once() -> None:
    """A common violation neither ends the soak nor hides others; the witness is the run with the fewest faults."""
    tally, shrunk = Tally(), []

    def shrink(outcome: Outcome) -> tuple[list[int], Outcome]:
        shrunk.append(outcome.seed)
        return [0], outcome

    for seed in range(100):
        tally.add(failed(seed, S2, strikes=5 if seed != 60 else 3))
    tally.add(failed(100, L5, strikes=4))
    told = "\n".join(tell_kinds(tally, shrink))
    assert tally.seeds == 101
    assert tally.violations == {S2: 100, L5: 1}
    assert shrunk == [60, 100]
    assert f"100 of 101 seeds: {S2}" in told
    assert f"seeds 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and {100 - SEEDS_SHOWN_MAX} more" in told
    assert "replay: python -m simulator.campaign run --seed 60 --only 0 --trace" in told


def test_fresh_seeds_are_never_those_of_another_minute() -> None:
    """Two soaks that begin in different minutes share no seed, and neither uses one that `make test` runs."""
    now_s = 1_764_000_000.0
    first, later = fresh_first(now_s), fresh_first(now_s + 60.0)
    assert later - first >= SEEDS_TOGETHER_MAX
    assert first > SEEDS_TOGETHER_MAX
    assert fresh_first(now_s) == first


def test_more_seeds_than_a_minute_has_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """More seeds than a minute has are refused: the seeds of two soaks would overlap."""
    with pytest.raises(SystemExit):
        main(["soak", "--seeds", str(SEEDS_TOGETHER_MAX + 1)])
    assert f"expected at most {SEEDS_TOGETHER_MAX}" in capsys.readouterr().err
