"""The comparison of a JobSet without a setting with the best policy: how its numbers are made."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.defaults import DEFAULT, HOUR_S, MIXES, POLICIES, gaps, healthy, mix
from benchmarks.policies import train
from benchmarks.policy_scenarios import NEVER_S, hang_limit_s
from inplace.common.wire import names as wire
from inplace.simulator.cluster import virtual_time


def test_a_mix_has_the_rate_of_its_report() -> None:
    """The kinds together come as often as the report says."""
    found = mix(3.0, died=0.5, turned=0.25, hung=0.25)
    assert (found.die_s, found.turn_s, found.hang_s, found.drain_s) == (6 * HOUR_S, 12 * HOUR_S, 12 * HOUR_S, NEVER_S)
    for scenario in MIXES.values():
        rates = [1 / each_s for each_s in (scenario.die_s, scenario.turn_s, scenario.drain_s, scenario.hang_s)]
        assert 0.9 < 1 / sum(rates) / HOUR_S < 15


def test_the_gap_is_to_the_best_policy_without_spares() -> None:
    """A spare costs a node, so it is no fair comparison."""
    best = {name: 90.0 + number for number, name in enumerate(POLICIES)}
    rows: list[dict[str, Any]] = [
        {"mix": "a", "policy": name, "effective_percent": percent} for name, percent in best.items()
    ]
    assert gaps(rows) == {"a": max(best.values()) - best[DEFAULT]}
    assert gaps([row for row in rows if row["policy"] in list(POLICIES)[:2]]) == {"a": 0.0}


@pytest.mark.parametrize(
    ("annotations", "limit_s"),
    [({}, None), ({wire.STALL: "120"}, 120.0), ({wire.RESTART_ON: "stall"}, 300.0), ({wire.RESTART_ON: "loss"}, None)],
)
def test_who_ends_a_hang_follows_from_the_annotations(annotations: dict[str, str], limit_s: float | None) -> None:
    """None: a person."""
    assert hang_limit_s(annotations) == limit_s


def test_healthy_pods_are_told_of_at_most_once_for_each_kind_of_pause() -> None:
    """And the numbers are those of the learned limit: a Pod without pauses is never told of."""
    found = healthy(300)
    assert (found["seeds"], found["hours"], found["told_more_than_once_a_kind"]) == (300, 1800, 0)
    assert 0 < found["told"] < 300


@pytest.mark.slow  # some twenty restarts of a simulated cluster
def test_a_hang_that_a_limit_ends_costs_less_than_one_that_a_person_ends() -> None:
    """And each is one restart."""
    scenario = mix(2.0, hung=1.0)
    slow, quick = (virtual_time.run(train(scenario, said, 0)) for said in ({}, {wire.STALL: "120"}))
    assert slow.is_done is quick.is_done is True
    assert slow.finished_s - quick.finished_s > 0.5 * HOUR_S
