"""Which restarts blame the node of the Pod that failed first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inplace.common.jobset.causes import Cause, Failure, Trigger
from inplace.common.jobset.escalation import LEAVES, Use
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.marked_nodes import MarkedPod
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire import names as wire
from inplace.controller.plan.steps import plan
from tests.controller.manifests import changed, jobset
from tests.controller.objects import lone_pod
from tests.controller.plan.planner_world import NOW, settled


@pytest.mark.parametrize("trigger", Trigger)
def test_a_worker_that_ended_blames_its_node(trigger: Trigger) -> None:
    """Nothing else does, whichever Pod is named: evicted says nothing of the node, and any Pod may tell of a hang."""
    world = settled(changed(jobset(restarts_max=9), "metadata.annotations", {wire.NODES: "1"}))
    world.decision = Decision(1, 0)
    world.settle()
    world.decision = Decision(1, 1)
    cause = Cause(trigger, NOW, failure=Failure("p", "n1"))
    planned = plan(replace(world.observed(), causes={"": cause}))
    assert planned.status[wire.DEPRECATED_EPOCH] == 1
    blamed = [entry["node"] for entry in planned.status.get(wire.NODE_FAILURES) or ()]
    assert blamed == (["n1"] if trigger is Trigger.WORKER_EXIT else [])


HUNG = FurthestBehind(("q",), 1, LastProgress(29, 6.0), "n2")
TIED = FurthestBehind(("q", "p"), 2, LastProgress(30, 6.0), "n2")


@pytest.mark.parametrize(
    ("trigger", "silent", "blamed"),
    [
        (Trigger.STALLED, HUNG, ["n2"]),
        (Trigger.STALLED, TIED, []),
        (Trigger.STALLED, None, []),
        (Trigger.WORKER_EXIT, HUNG, []),
    ],
)
def test_a_hang_blames_the_node_of_the_pod_that_was_silent_first(
    trigger: Trigger, silent: FurthestBehind | None, blamed: list[str]
) -> None:
    """It is known when the restart ends; the Pod that told of the hang may be any of those that wait."""
    world = settled(changed(jobset(restarts_max=9), "metadata.annotations", {wire.NODES: "1"}))
    for world.decision in (Decision(1, 0), Decision(1, 1)):
        world.settle()
    world.decision = Decision(2, 1)
    cause = Cause(trigger, NOW, failure=Failure("p", "n1"))
    told = {"": silent} if silent is not None else {}
    planned = plan(replace(world.observed(), causes={"": cause}, silent=told))
    assert planned.status[wire.SYNCED_EPOCH] == 2
    records = planned.status.get(wire.NODE_FAILURES) or ()
    assert [record["node"] for record in records] == blamed
    assert all("silent first, at step 29" in record["why"] for record in records)


@pytest.mark.parametrize("step", ["ReplacePod", "LeaveNode"])
def test_a_pod_that_is_replaced_already_is_not_written_again(step: str) -> None:
    """Its node's mark was read when it had ended: each pass wrote another use, hundreds a second for ever."""
    world = settled(changed(jobset(restarts_max=9), "metadata.annotations", {wire.ESCALATION: "ReplacePod=2"}))
    for world.decision in (Decision(1, 0), Decision(1, 1)):
        world.settle()
    ended = lone_pod(metadata={"uid": "u"}, status={"phase": "Failed"})
    use = Use(step, NOW, 2, pod="p", pod_uid="u")
    world.status[wire.ESCALATION_USES] = [use.fields()]
    marked = {"": (MarkedPod(ended, leaves=True, why="node n1: cordoned"),)}
    found = plan(replace(world.observed(), marked=marked))
    assert wire.ESCALATION_USES not in found.status
    assert not [note for note in found.notes if note.reason == LEAVES]
