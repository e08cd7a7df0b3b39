"""Where whole Jobs are members, Jobs are counted, and a Job is where its worst Pod is."""

from __future__ import annotations

import pytest

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import GroupState, group_state
from inplace.cli.logs.container_log import ranks_of
from inplace.cli.status.document import status_data
from inplace.common.jobset.headline import GroupPhase
from inplace.common.protocol.members import Members
from tests.cli.facts import drawn, explanation_of, pod, spared, text_of

TAKEN = Members(7, 2, ((0, 2),), pods=2)  # of four Jobs with two Pods each two train; Job 2 plays rank 0
SHAPE = (4, 2)


def at(epoch: int, *slots: tuple[int, int]) -> list[PodFact]:
    """Return Pods, by their Job's index and their own, that announced an epoch."""
    return [pod(index, epoch, job_index=job) for job, index in slots]


RUNNING = at(7, (1, 0), (1, 1), (2, 0), (2, 1))


def group(*pods: PodFact, members: Members | None = TAKEN, epochs: tuple[int, int] = (7, 6)) -> GroupState:
    """Return a group of 4 Jobs of which 2 train."""
    return group_state(spared(SHAPE, "max=2,min=1", members=members, epochs=epochs), pods)


@pytest.mark.parametrize(
    ("spares", "line"),
    [
        (at(8, (0, 0), (0, 1), (3, 0), (3, 1)), "2 of 2 Jobs are at epoch 7; 2 spares"),
        (at(8, (0, 0), (3, 0), (3, 1)), "1 spare; Job big-job-0 is vacant: Pod 1: no Pod"),
        (at(8, (0, 1)), "no spare; 2 Jobs are vacant, the first is Job big-job-0: Pod 0: no Pod"),
    ],
)
def test_a_group_whose_jobs_train(spares: list[PodFact], line: str) -> None:
    """A spare Job that lacks a Pod is vacant, and keeps nobody waiting."""
    state = group(*RUNNING, *spares)
    assert line in state.headline().text
    assert (state.phase, state.expected, state.arrived, state.late) == (GroupPhase.RUNNING, 2, 2, 0)
    text = drawn(state)
    assert "epoch 7 · 2 of 2 Jobs · 4 working" in text
    assert "rank 0 is Job 2" in text
    assert "waiting for" not in text
    assert line in text_of(explanation_of(state))


def test_a_member_job_that_lost_a_pod_is_waited_for() -> None:
    """The line counts Jobs and names the Pod."""
    state = group(*RUNNING[:-1], *at(8, (0, 0), (0, 1)))
    assert state.phase is GroupPhase.DEGRADED
    assert "epoch 7 runs without 1 of its 2 Jobs: big-job-2-1 (no Pod)" in state.headline().text
    assert [one.slot for one in state.stragglers] == ["big-job-2-1"]


@pytest.mark.parametrize(
    ("pods", "arrived", "words"),
    [
        (at(8, (0, 0), (1, 0), (1, 1), (3, 0)), 1, "1 of 2 Jobs are at the barrier of epoch 8 (min 1); it waits for"),
        (at(8, (0, 0), (0, 1), (1, 0), (1, 1)), 2, "2 of 2 Jobs are at the barrier of epoch 8; the next step is the c"),
    ],
)
def test_jobs_gather(pods: list[PodFact], arrived: int, words: str) -> None:
    """A Job has arrived when all of its Pods have."""
    state = group(*pods, epochs=(7, 7))
    assert words in state.headline().text
    assert (state.expected, state.arrived) == (2, arrived)


def test_a_pod_has_the_rank_that_its_job_plays() -> None:
    """Logs and stacks name it by that; a spare Job's Pod has none. `-o json` says how many Pods a Job has."""
    rank, size = ranks_of(spared(SHAPE, "max=2", members=TAKEN, epochs=(7, 6)))
    found = [rank(pod(index, 7, job_index=job)) for job in range(4) for index in range(2)]
    assert found == [None, None, 2, 3, 0, 1, None, None]
    assert size == 8
    (scope,) = status_data(group(*RUNNING))["scopes"]
    assert scope["members"] is not None
    assert (scope["members"]["slotOfRank"], scope["members"]["podsPerJob"]) == ({"0": 2}, 2)
    (scope,) = status_data(group_state(spared(3, "max=2", members=Members(7, 2), epochs=(7, 6)), ()))["scopes"]
    assert scope["members"] is not None
    assert scope["members"]["podsPerJob"] is None
