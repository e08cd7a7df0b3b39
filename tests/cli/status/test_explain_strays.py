"""`inplace explain` with Pods that have no slot, or that announce an epoch beyond the group's."""

from __future__ import annotations

import pytest

from inplace.cli.group.state import group_state
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.headline import GroupPhase
from inplace.common.wire import names as wire
from tests.cli.facts import NOW, explanation_of, jobset, pod, text_of

LATER, DELETED = "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"


def test_an_epoch_far_ahead_is_not_the_groups() -> None:
    """When one Pod of a group at epoch 1 announces 4, the group is shown at epoch 1 and the Pod is named."""
    pods = [pod(0, 1), pod(1, 4)]
    state = group_state(jobset(2, status=wire.status_of_epochs(1, 0)), pods)
    found = explanation_of(state, pods)

    assert (state.phase, state.used) == (GroupPhase.DEGRADED, 0)
    assert found.headline == (
        "it waits: epoch 1 runs without 1 of its 2 Pods: "
        "train-big-job-0-1 (announced an epoch that the group has not reached: epoch 4)"
    )
    (cause,) = found.causes
    assert cause.kind == "Ahead"
    assert cause.pods == ("train-big-job-0-1",)
    assert "kubectl delete pod train-big-job-0-1" in cause.advice


def test_pods_in_no_slot_are_named() -> None:
    """A Pod in no slot that holds the barrier up is named, with the command that deletes it."""
    pods = [pod(0, 2), pod(1, 2), pod(7, 1, name="leftover"), pod(8, 1, name="ended", status={"phase": "Failed"})]
    state = group_state(jobset(2, status=wire.status_of_epochs(1, 1)), pods)
    found = explanation_of(state, pods)

    (cause,) = found.causes
    assert (cause.kind, cause.pods) == ("InNoSlot", ("leftover",))
    assert "kubectl delete pod leftover" in cause.advice
    assert "leftover" in text_of(found)


def test_the_elder_of_two_pods_in_one_slot_is_named() -> None:
    """Of two Pods in one slot the older one is named: a barrier counts a slot only with one Pod."""
    pods = [pod(0, 2), pod(1, 2, name="new", creationTimestamp=LATER), pod(1, 1, name="old", creationTimestamp=NOW)]
    state = group_state(jobset(2, status=wire.status_of_epochs(1, 1)), pods)

    assert state.strays == ["old"]


@pytest.mark.parametrize(
    ("promise", "now", "kind"),
    [("70", 40, "Fenced"), ("70", 75, "Fenced"), ("70", 85, "InNoSlot"), ("x", 40, "InNoSlot")],
)
def test_a_pod_whose_lease_ends_its_worker_is_waited_for(promise: str, now: int, kind: str) -> None:
    """With the seconds that are left; one without a promise, or whose time is over, is as any other."""
    status = wire.status_of_epochs(1, 1) | {wire.LAST_GROUP_RESTART: {"epoch": 2, "startedAt": DELETED}}
    annotations = wire.epoch_annotations(1) | {wire.FENCED_WITHIN: promise}
    ghost = pod(
        1, name="ghost", annotations=annotations, creationTimestamp=NOW, deletionTimestamp="2026-01-03T00:00:00Z"
    )
    pods = [pod(0, 2), pod(1, 2, name="new", creationTimestamp=LATER), ghost]
    now_s = unix_time(DELETED) or 0.0
    (cause,) = explanation_of(group_state(jobset(2, status=status), pods), pods, now_s=now_s + now).causes
    assert (cause.kind, cause.pods) == (kind, ("ghost",))
    assert ("wait about" in cause.advice) == (kind == "Fenced")
    assert ("30 s" in cause.advice) == (now == 40 and kind == "Fenced")
