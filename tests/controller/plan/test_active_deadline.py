"""spec.activeDeadlineSeconds and status.startTime (KEP-1186)."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.resources import JOBSETS
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import CreateJob, DeleteJob
from inplace.controller.plan.finish import DEADLINE_S_MAX, REQUEUE_S_MAX
from tests.controller.manifests import jobset, replicated_job
from tests.controller.plan.planner_world import NOW, PlannerWorld, settled_world
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

JOB = "train-workers-0"
LATER = "2026-01-01T00:01:00Z"
MESSAGE = "JobSet was active for longer than the specified deadline of 60 seconds"


def began(world: PlannerWorld) -> str | None:
    """Return status.startTime."""
    return world.status.get(wire.START_TIME)


def test_every_jobset_says_when_it_began() -> None:
    """Also one without a deadline; that is no reason for a write of its own."""
    world = settled_world()
    assert began(world) == NOW
    del world.status[wire.START_TIME]
    world.now = LATER
    assert world.plan().status == {}
    world.set_job(JOB, active=1)
    assert world.plan().status[wire.START_TIME] == LATER


def test_the_pass_comes_back_when_the_time_is_over() -> None:
    """Not a second before; a long wait is at most an hour, and the other reasons to look again stand."""
    world = settled_world(activeDeadlineSeconds=60)
    planned = world.plan()
    assert (planned.actions, planned.requeue_after_s) == ((), 60.0)
    world.now = "2026-01-01T00:00:59Z"
    assert (world.plan().actions, world.plan().requeue_after_s) == ((), 1.0)
    world.manifest["spec"]["activeDeadlineSeconds"] = 2 * int(REQUEUE_S_MAX)
    assert world.plan().requeue_after_s == REQUEUE_S_MAX


def test_the_time_is_over() -> None:
    """What runs is deleted first; Failed follows when all of it is being deleted, and no Job is made anew."""
    world = settled_world(jobs=[replicated_job(replicas=2)], activeDeadlineSeconds=60)
    world.now = LATER
    planned = world.plan()
    assert [action.why for action in planned.actions if isinstance(action, DeleteJob)] == [DeleteJob.DEADLINE] * 2
    assert len(planned.actions) == 2
    assert planned.status == {}
    world.carry_out(planned, instant_deletes=False)
    planned = world.plan()
    assert planned.actions == ()
    assert planned.deadline_exceeded
    world.carry_out(planned)
    failed = world.condition("Failed")
    assert (failed["status"], failed["reason"], failed["message"]) == ("True", "DeadlineExceeded", MESSAGE)
    assert world.status["terminalState"] == "Failed"
    world.jobs.clear()
    assert not [action for action in world.plan().actions if isinstance(action, CreateJob)]
    assert not world.plan().deadline_exceeded


def test_a_deletion_that_is_refused_is_asked_for_again() -> None:
    """Without the deletion there is no condition: the next pass deletes again."""
    world = settled_world(activeDeadlineSeconds=60)
    world.now = LATER
    world.status.update(world.plan().status)
    assert [type(action) for action in world.plan().actions] == [DeleteJob]
    assert world.find_condition("Failed") is None


def test_success_comes_before_the_deadline_and_the_deadline_before_a_failure() -> None:
    """At the deadline a success counts, a failed Job does not; before it a failure comes first, as ever."""
    for kind, end in (("Complete", "Completed"), ("Failed", "Failed")):
        world = settled_world(activeDeadlineSeconds=60)
        world.now = LATER
        world.settle_job(JOB, kind)
        assert (world.status["terminalState"], world.status["restarts"]) == (end, 0)
    assert world.condition("Failed")["reason"] == "DeadlineExceeded"
    early = settled_world(activeDeadlineSeconds=60)
    early.settle_job(JOB, "Failed")
    assert (early.status["restarts"], early.jobset.is_finished) == (1, False)


def test_a_deadline_on_a_jobset_older_than_the_field() -> None:
    """It counts from the first pass that sees both."""
    world = settled_world()
    del world.status[wire.START_TIME]
    world.now = LATER
    world.manifest["spec"]["activeDeadlineSeconds"] = 60
    world.settle()
    assert began(world) == LATER
    assert world.plan().requeue_after_s == 60.0


def test_the_longest_deadline_never_comes() -> None:
    """Where upstream's nanoseconds have no room, nothing happens, not even a look."""
    world = settled_world(activeDeadlineSeconds=DEADLINE_S_MAX + 1)
    world.now = "9999-12-31T23:59:59Z"
    assert (world.plan().actions, world.plan().requeue_after_s) == ((), None)
    world.manifest["spec"]["activeDeadlineSeconds"] = 2**63 - 1
    assert (world.plan().actions, world.plan().requeue_after_s) == ((), None)
    world.manifest["spec"]["activeDeadlineSeconds"] = DEADLINE_S_MAX
    world.now = LATER
    assert world.plan().requeue_after_s == REQUEUE_S_MAX


def test_a_time_that_nobody_can_read_ends_nothing() -> None:
    """An older CRD may have let it in; the JobSet runs on."""
    world = settled_world(activeDeadlineSeconds=60)
    world.status[wire.START_TIME] = "soon"
    world.now = LATER
    assert (world.plan().actions, world.plan().status) == ((), {})


def test_anothers_jobset() -> None:
    """A JobSet of another controller gets neither a time nor an end."""
    world = PlannerWorld(jobset(managedBy="example.com/other", activeDeadlineSeconds=1))
    world.manifest["status"] = {wire.START_TIME: NOW}
    world.now = LATER
    assert (world.plan().status, world.plan().actions) == ({}, ())


async def test_the_time_costs_no_write() -> None:
    """A JobSet with these fields is written as often as one without a deadline: they travel with other fields."""
    writes = []
    specs: tuple[dict[str, Any], ...] = ({}, {"activeDeadlineSeconds": 3600})
    for spec in specs:
        rig = Rig()
        async with rig.running():
            await rig.started(jobset(**spec))
            writes.append(rig.writes("/status"))
            stored = await rig.admin.get(JOBSETS, "default", "train")
            assert (stored["status"][wire.EXECUTION_ATTEMPTS], wire.START_TIME in stored["status"]) == (0, True)
    assert writes[0] == writes[1]
