"""Which failures taint a node: the Pod must be pinned by a queue, the node bad, and the controller allowed to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inplace.common.jobset.causes import Cause, Failure, Trigger
from inplace.common.jobset.kinds import Pod
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import Plan, TaintNode
from inplace.controller.plan.steps import plan
from tests.controller.manifests import changed, jobset
from tests.controller.objects import lone_pod
from tests.controller.plan.planner_world import NOW, settled

TOPOLOGY = {"kueue.x-k8s.io/podset-preferred-topology": "rack"}
PINNED = {"nodeName": "n1", "nodeSelector": {"kubernetes.io/hostname": "n1"}}
LABELS = {wire.REPLICATED_JOB_NAME: "workers"}


def pod(**spec: Any) -> Pod:
    """Return the Pod that failed first."""
    return lone_pod(metadata={"labels": LABELS}, spec=PINNED | spec, status={"phase": "Running"})


def planned(failed: Pod | None, *, bad: str = "1", topology: Any = TOPOLOGY, may: bool = True, synced: int = 1) -> Plan:
    """Return the plan of the pass that sees the failure; `synced` is 2 where all announced already."""
    wanted = changed(jobset(restarts_max=9), "metadata.annotations", {wire.NODES: bad})
    wanted = changed(wanted, "spec.replicatedJobs.0.template.spec.template.metadata", {"annotations": topology})
    world = settled(wanted)
    world.decision = Decision(1, 0)
    world.settle()
    world.decision = Decision(synced, 1)
    cause = Cause(Trigger.WORKER_EXIT, NOW, failure=Failure("p", "n1"))
    failed_pods = {"": failed} if failed is not None else {}
    return plan(replace(world.observed(), causes={"": cause}, failed_pods=failed_pods, taints_nodes=may))


@pytest.mark.parametrize("synced", [1, 2])
def test_the_node_is_tainted_first_and_the_next_epoch_waits(synced: int) -> None:
    """D goes out at once; who leaves is decided once the taint is there, and S does not overtake it."""
    found = planned(pod(), synced=synced)
    assert found.taints == (TaintNode(pod(), "", 1),)
    assert found.status[wire.DEPRECATED_EPOCH] == 1
    assert found.status.get(wire.SYNCED_EPOCH, 1) == 1
    assert wire.ESCALATION_USES not in found.status
    assert [entry["node"] for entry in found.status[wire.NODE_FAILURES]] == ["n1"]
    assert not [note for note in found.notes if note.reason in ("PodStaysOnNode", "PodLeavesNode")]


@pytest.mark.parametrize(
    ("why", "found"),
    [
        ("the option is off", planned(pod(), may=False)),
        ("no queue pinned it", planned(pod(), topology={})),
        ("the node is not bad yet", planned(pod(), bad="2")),
        ("the Pod is gone", planned(None)),
    ],
)
def test_otherwise_no_node_is_tainted(why: str, found: Plan) -> None:
    """The restart goes its way."""
    assert found.taints == (), why


def test_a_pod_that_is_not_pinned_leaves_without_a_taint() -> None:
    """The scheduler keeps its replacement away."""
    found = planned(pod(nodeSelector=None))
    assert found.taints == ()
    (use,) = found.status[wire.ESCALATION_USES]
    assert (use["escalationStep"], use["pod"]) == ("LeaveNode", "p")
