"""Planned stops of groups that train: no step is lost, and who does not save holds nobody up."""

from __future__ import annotations

import re

import pytest

from inplace.simulator.campaign.__main__ import main
from inplace.simulator.campaign.saving import DRAIN, KINDS, REQUEST, STUCK, run_saving

TOGETHER = 25


@pytest.mark.parametrize("kind", KINDS)
def test_a_planned_stop(kind: str) -> None:
    """No step is lost, unless a worker never saves; then the restart comes when its time is over."""
    outcome = run_saving(kind, 1)
    assert outcome.violation == ""
    assert (outcome.lost > 0) is (kind == STUCK)


def test_without_saving_the_same_stop_loses_steps() -> None:
    """So the measure can fail; the same seed gives the same."""
    outcome = run_saving(REQUEST, 1, saves=False)
    assert outcome.lost > 0
    assert run_saving(REQUEST, 1, saves=False) == outcome


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, TOGETHER))
def test_a_hundred_runs_of_each_kind(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m simulator.campaign saving`: 16 Pods, stopped at random moments; in parts, for several processes."""
    assert main(["saving", "--processes", "1", "--first", str(first), "--seeds", str(TOGETHER)]) == 0
    printed = capsys.readouterr().out
    for kind in (REQUEST, DRAIN, "takeover"):
        assert re.search(rf"^{kind} +{TOGETHER} runs, 0 steps lost", printed, re.MULTILINE)
