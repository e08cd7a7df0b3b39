"""Which restarts blame the node of the Pod that failed first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.steps import plan
from inplace.controller.spec.causes import Cause, Failure, Trigger
from tests.controller.manifests import changed, jobset
from tests.controller.plan.planner_world import NOW, settled


@pytest.mark.parametrize("trigger", Trigger)
def test_a_worker_that_failed_or_hangs_blames_its_node(trigger: Trigger) -> None:
    """Nothing else does, whichever Pod is named: one that was evicted says nothing of its node."""
    world = settled(changed(jobset(restarts_max=9), "metadata.annotations", {wire.BAD_NODES: "1/3600"}))
    world.decision = Decision(1, 0)
    world.settle()
    world.decision = Decision(1, 1)
    cause = Cause(trigger, NOW, failure=Failure("p", "n1"))
    planned = plan(replace(world.observed(), causes={"": cause}))
    assert planned.status[wire.DEPRECATED_EPOCH] == 1
    blamed = [entry["node"] for entry in planned.status.get(wire.NODE_FAILURES) or ()]
    assert blamed == (["n1"] if trigger in (Trigger.WORKER_EXIT, Trigger.STALLED) else [])
