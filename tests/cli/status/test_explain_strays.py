"""`inplace explain` with Pods that have no slot, or that announce an epoch beyond the group's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inplace.cli.group.pod_facts import Annotations, PodFact
from inplace.cli.group.state import GroupPhase, group_state
from inplace.cli.status.explain import explanation_lines
from inplace.cli.status.explanation import Facts, explain
from inplace.cli.terminal.moments import parse_time
from inplace.common.wire import names as wire
from tests.cli.status.test_status import jobset


def pod(
    index: int, epoch: int, name: str = "", created: str = "2026-01-01T00:00:00Z", phase: str = "Running"
) -> PodFact:
    """Return a Pod of the JobSet."""
    labels = {
        wire.JOBSET_UID: "u",
        wire.REPLICATED_JOB_NAME: "big-job",
        wire.JOB_INDEX: "0",
        wire.JOB_COMPLETION_INDEX: str(index),
    }
    metadata: dict[str, Any] = {
        "name": name or f"train-big-job-0-{index}",
        "labels": labels,
        "creationTimestamp": created,
    }
    metadata |= {"annotations": wire.epoch_annotations(epoch), "uid": name or str(index), "resourceVersion": "1"}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": {"phase": phase}}, PodFact)


def test_an_epoch_far_ahead_is_not_the_groups() -> None:
    """When one Pod of a group at epoch 1 announces 4, the group is shown at epoch 1 and the Pod is named."""
    pods = [pod(0, 1), pod(1, 4)]
    state = group_state(jobset(2, wire.status_of_epochs(1, 0)), pods)
    found = explain(Facts(state, pods), now_s=0.0)

    assert (state.phase, state.used) == (GroupPhase.DEGRADED, 0)
    assert found.headline == "it runs epoch 1 without 1 of its 2 Pods"
    (cause,) = found.causes
    assert cause.kind == "Ahead"
    assert cause.pods == ("train-big-job-0-1",)
    assert "kubectl delete pod train-big-job-0-1" in cause.advice


def test_pods_in_no_slot_are_named() -> None:
    """A Pod in no slot that holds the barrier up is named, with the command that deletes it."""
    pods = [pod(0, 2), pod(1, 2), pod(7, 1, "leftover"), pod(8, 1, "ended", phase="Failed")]
    state = group_state(jobset(2, wire.status_of_epochs(1, 1)), pods)
    found = explain(Facts(state, pods), now_s=0.0)

    (cause,) = found.causes
    assert (cause.kind, cause.pods) == ("InNoSlot", ("leftover",))
    assert "kubectl delete pod leftover" in cause.advice
    assert any("leftover" in line for line, _ in explanation_lines(found))


def test_the_elder_of_two_pods_in_one_slot_is_named() -> None:
    """Of two Pods in one slot the older one is named: a barrier counts a slot only with one Pod."""
    pods = [pod(0, 2), pod(1, 2, "new", "2026-01-02T00:00:00Z"), pod(1, 1, "old")]
    state = group_state(jobset(2, wire.status_of_epochs(1, 1)), pods)

    assert state.strays == ["old"]


@pytest.mark.parametrize(
    ("promise", "now", "kind"),
    [("70", 40, "Fenced"), ("70", 75, "Fenced"), ("70", 85, "InNoSlot"), ("x", 40, "InNoSlot")],
)
def test_a_pod_whose_lease_ends_its_worker_is_waited_for(promise: str, now: int, kind: str) -> None:
    """With the seconds that are left; one without a promise, or whose time is over, is as any other."""
    status = wire.status_of_epochs(1, 1) | {wire.LAST_GROUP_RESTART: {"epoch": 2, "startedAt": "2026-01-03T00:00:00Z"}}
    ghost = leaving(pod(1, 1, "ghost"), promise)
    pods = [pod(0, 2), pod(1, 2, "new", "2026-01-02T00:00:00Z"), ghost]
    now_s = parse_time("2026-01-03T00:00:00Z") or 0.0
    (cause,) = explain(Facts(group_state(jobset(2, status), pods), pods), now_s=now_s + now).causes
    assert (cause.kind, cause.pods) == (kind, ("ghost",))
    assert ("wait about" in cause.advice) == (kind == "Fenced")
    assert ("30 s" in cause.advice) == (now == 40 and kind == "Fenced")


def leaving(found: PodFact, promise: str) -> PodFact:
    """Return a Pod that is being deleted, with its agent's promise."""
    annotations = msgspec.structs.replace(found.metadata.annotations or Annotations(), fenced_within=promise)
    metadata = msgspec.structs.replace(
        found.metadata, annotations=annotations, deletion_timestamp="2026-01-03T00:00:00Z"
    )
    return msgspec.structs.replace(found, metadata=metadata)
