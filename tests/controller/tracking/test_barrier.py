"""Why a slot of a group has no Pod that counts; tests/stories/barrier.txt has what follows from that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inplace.common.jobset.kinds import Job
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.tracking.missing_slots import shortened, why_absent
from tests.controller.objects import lone_pod

NOWHERE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/8 nodes are available: 8 Insufficient google.com/tpu. preemption: 0/8 nodes are available.",
}


def waiting(reason: str, name: str = "worker") -> KubeObject:
    """Return the status of a container that waits."""
    return {"name": name, "state": {"waiting": {"reason": reason}}}


JOB = msgspec.convert({"metadata": {"name": "j", "uid": "j", "resourceVersion": "1"}}, Job)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"spec": {"schedulingGates": [{"name": "kueue"}]}}, "Pending: scheduling gate kueue"),
        ({"status": {"conditions": [NOWHERE]}}, "Pending: 8 Insufficient google.com/tpu"),
        ({}, "Pending: not scheduled yet"),
        (
            {"spec": {"nodeName": "n"}, "status": {"containerStatuses": [waiting("ImagePullBackOff")]}},
            "Pending: ImagePullBackOff of container worker on n",
        ),
        (
            {
                "spec": {"nodeName": "n"},
                "status": {
                    "initContainerStatuses": [waiting("PodInitializing", "first"), waiting("ErrImagePull", "agent")],
                    "containerStatuses": [waiting("PodInitializing")],
                },
            },
            "Pending: ErrImagePull of container agent on n",
        ),
        ({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}, "Running on n: has announced nothing"),
        (
            {"metadata": {"annotations": {wire.EPOCH: "6"}}, "status": {"phase": "Running"}},
            "Running: announced epoch 6",
        ),
        ({"metadata": {"annotations": {wire.EPOCH: "x"}}, "status": {"phase": "Running"}}, "cannot be read"),
        ({"metadata": {"deletionTimestamp": "now"}, "spec": {"nodeName": "n"}}, "Terminating on n"),
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, "Failed: Evicted"),
    ],
)
def test_why_a_slot_is_not_there(parts: dict[str, Any], words: str) -> None:
    """The reason for a missing slot is a short text from its Pod's status."""
    assert words in why_absent(JOB, [lone_pod(**parts)], {})


def test_why_a_slot_without_a_pod_is_not_there() -> None:
    """The reason for a slot without a Pod comes from its Job, or is the missing Job."""
    leaving = msgspec.convert(
        {"metadata": {"name": "j", "uid": "j", "resourceVersion": "1", "deletionTimestamp": "now"}}, Job
    )
    assert why_absent(None, [], {}) == "its job does not exist"
    assert why_absent(JOB, [], {}) == "no pod"
    assert why_absent(leaving, [], {}) == "no pod: its job is being deleted"
    assert why_absent(JOB, [lone_pod(), lone_pod()], {}) == "2 pods, of which one must go first"


def test_a_message_of_another_scheduler_is_kept() -> None:
    """Another scheduler's message is shown up to the end of its first sentence."""
    assert shortened("no quota for you. Ask later.") == "no quota for you"


def test_a_pod_that_runs_keeps_no_conditions() -> None:
    """The conditions of running Pods are not kept in memory."""
    fine = {"type": "PodScheduled", "status": "True"}
    ready = {"name": "agent", "state": {"running": {}}}
    status = lone_pod(status={"conditions": [fine], "initContainerStatuses": [ready]}).status
    assert (status.conditions, status.init_container_statuses) == (None, None)
