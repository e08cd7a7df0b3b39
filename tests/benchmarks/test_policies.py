"""The comparison of policies: how work is counted, what is promised, and that a policy changes a training's course."""

import re
from typing import Any

import pytest

from benchmarks.chart import draw_bars
from benchmarks.policies import CHECKPOINT_S, END_FACTOR, TO_END, Training, judged, train
from benchmarks.policy_scenarios import ADVISED, FULL, NONE, PLACES, PODS, POLICIES, Scenario
from inplace.common.wire import names as wire
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.events import ClusterEvent, Kind


def test_a_death_takes_the_work_back_to_the_last_checkpoint() -> None:
    """Work counts from the last worker's first step to the first worker's end."""
    now_s = [0.0]
    training = Training(lambda: now_s[0])
    for pod in range(PODS):
        now_s[0] = 10.0 + pod
        training.observe(ClusterEvent(now_s[0], Kind.FIRST_STEP, "default", f"pod-{pod}", f"uid-{pod}"))
    now_s[0] += 2.5 * CHECKPOINT_S
    assert training.done_s == pytest.approx(2.5 * CHECKPOINT_S)
    for kind in (Kind.FAULT, Kind.CONTAINER_EXITED):
        training.observe(ClusterEvent(now_s[0], kind, "default", "pod-1", "uid-1"))
        assert training.done_s == 2 * CHECKPOINT_S
    assert training.since_s is None


@pytest.mark.parametrize(
    ("advised", "kept"),
    [
        ({"lost_node_hours": 20.3, "done": 3}, True),
        ({"lost_node_hours": 21.0, "done": 3}, False),
        ({"lost_node_hours": 1.0, "done": 2}, False),
    ],
)
def test_the_advised_policy_may_not_be_worse_than_none(advised: dict[str, Any], kept: bool) -> None:
    """Neither in what is lost nor in what is done."""
    names: dict[str, Any] = {"scenario": "a rack that fails"}
    rows: list[dict[str, Any]] = [
        names | {"policy": NONE, "lost_node_hours": 20.0, "done": 3},
        names | {"policy": ADVISED} | advised,
    ]
    ((words, is_kept),) = judged(rows)
    assert is_kept is kept
    assert words.startswith("a rack that fails: ")


def test_the_picture_has_a_bar_for_each_number() -> None:
    """Also for 0, and it is well-formed whatever the names are."""
    picture = draw_bars("lost & found", {"a<b": {"x": 0.0, "y": 2.0}, "c": {"x": 1.0, "y": 3.0}})
    bars = [float(width) for width in re.findall(r'<rect x="170" y="[0-9]+" width="([0-9.]+)"', picture)]
    assert len(bars) == 4
    assert bars[0] < bars[2] < bars[1] < bars[3]
    assert "lost &amp; found" in picture
    assert ">a&lt;b<" in picture


def test_a_training_that_is_to_end_may_end() -> None:
    """Where one rank fails for ever, the advised policy has to lose less than none, not to finish."""
    rows: list[dict[str, Any]] = [
        {"scenario": TO_END[0], "policy": policy, "lost_node_hours": lost, "done": done}
        for policy, lost, done in ((NONE, 29.1, 3), (ADVISED, 8.2, 0))
    ]
    assert [is_kept for _, is_kept in judged(rows)] == [True]


@pytest.mark.slow  # some twenty restarts of a simulated cluster
def test_bad_nodes_finish_a_training_that_a_flaky_node_holds_up() -> None:
    """The same seed, with and without; and a bug, for which no node is to blame, ends early where progress counts."""
    flaky, bug = Scenario(flaky=1, work_s=3600.0), Scenario(crash_at_s=700.0, work_s=3600.0)
    without = virtual_time.run(train(flaky, POLICIES[NONE], 0))
    advised = virtual_time.run(train(flaky, POLICIES[ADVISED], 0))
    assert advised.is_done
    assert advised.lost_node_hours < 0.5 * without.lost_node_hours
    assert advised.epochs < without.epochs
    ended = virtual_time.run(train(bug, POLICIES["no progress"], 0))
    assert not ended.is_done
    assert ended.finished_s < 0.5 * END_FACTOR * bug.work_s


@pytest.mark.slow
def test_a_spare_keeps_a_group_in_a_full_cluster_at_work() -> None:
    """Where a node is away often and no other is free, it trains faster with a spare, which costs its own node."""
    scenario = FULL["a node is away often"]
    without, spared = (
        virtual_time.run(train(scenario, {wire.MEMBERS: members} if members else {}, 0, spares))
        for spares, members in (PLACES["no spare"], PLACES["2 spares"])
    )
    assert spared.finished_s < without.finished_s
    assert spared.lost_node_hours < without.lost_node_hours
    assert spared.spares == 2
