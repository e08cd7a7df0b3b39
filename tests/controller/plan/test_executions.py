"""status.executionAttempts and the annotation execution-attempt (KEP-1282): what begins an execution, counted once."""

from __future__ import annotations

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import CreateJob, ResumeJob
from tests.controller.manifests import jobset, replicated_job
from tests.controller.plan.planner_world import NOW, PlannerWorld, settled_world

JOB = "train-workers-0"
AT_REST = {"conditions": [{"type": "Suspended", "status": "True", "lastTransitionTime": NOW}]}


def counted(world: PlannerWorld) -> int | None:
    """Return status.executionAttempts."""
    return world.status.get(wire.EXECUTION_ATTEMPTS)


def annotated(job: KubeObject) -> set[str | None]:
    """Return what a Job and its pod template say."""
    parts = (job["metadata"], job["spec"]["template"]["metadata"])
    return {part["annotations"].get(wire.EXECUTION_ATTEMPT) for part in parts}


def told(world: PlannerWorld) -> dict[str, set[str | None]]:
    """Return what every Job says."""
    return {name: annotated(job) for name, job in world.jobs.items()}


def suspend(world: PlannerWorld, *, settle: bool = True) -> None:
    """Suspend the JobSet, and let the Job controller stop its Jobs."""
    world.manifest["spec"]["suspend"] = True
    if settle:
        world.settle()
    for job in world.jobs.values():
        job["status"] = dict(AT_REST)


def resume(world: PlannerWorld) -> None:
    """Resume the JobSet."""
    world.manifest["spec"]["suspend"] = False
    world.settle()


def forget(world: PlannerWorld) -> None:
    """Let the world look as a controller left it that does not know executions."""
    world.status.pop(wire.EXECUTION_ATTEMPTS, None)
    for job in world.jobs.values():
        for part in (job["metadata"], job["spec"]["template"]["metadata"]):
            part["annotations"].pop(wire.EXECUTION_ATTEMPT, None)


def test_the_first_run_is_execution_0() -> None:
    """The Jobs of the first pass carry it already, as annotation and never as label."""
    world = PlannerWorld(jobset(strategy="Recreate"))
    created = [action.manifest for action in world.plan().actions if isinstance(action, CreateJob)]
    assert [annotated(manifest) for manifest in created] == [{"0"}]
    for part in (created[0]["metadata"], created[0]["spec"]["template"]["metadata"]):
        assert wire.EXECUTION_ATTEMPT not in part["labels"]
    world.settle()
    assert counted(world) == 0


def test_the_first_run_is_no_reason_for_a_write() -> None:
    """It is written with the first counters, in one write that may wait, and a running JobSet gets no write for it."""
    planned = PlannerWorld(jobset(strategy="Recreate")).plan()
    assert planned.status[wire.EXECUTION_ATTEMPTS] == 0
    assert not planned.is_urgent
    world = settled_world()
    forget(world)
    assert world.plan().status == {}
    world.set_job(JOB, active=1)
    assert world.plan().status[wire.EXECUTION_ATTEMPTS] == 0


def test_created_suspended_and_restarted() -> None:
    """Where a Job failed meanwhile, the restart was counted, and the first resume is the next execution."""
    world = settled_world(suspend=True)
    world.settle_job(JOB, "Failed")
    assert (world.status["restarts"], counted(world)) == (1, 1)
    resume(world)
    assert (counted(world), told(world)) == (2, {JOB: {"2"}})
    adopted = settled_world(suspend=True)
    adopted.status["restarts"] = 2
    adopted.jobs.clear()
    adopted.settle()
    resume(adopted)
    assert counted(adopted) == 3


def test_two_suspensions_are_two_executions_more() -> None:
    """Each resume counts once, in the write that turns Suspended False, BEFORE a Job is touched."""
    world = settled_world()
    for number in (1, 2):
        suspend(world)
        assert counted(world) == number - 1
        world.manifest["spec"]["suspend"] = False
        planned = world.plan()
        assert planned.status[wire.EXECUTION_ATTEMPTS] == number
        assert "conditions" in planned.status
        assert planned.is_urgent
        world.status.update(planned.status)  # the controller dies BEFORE it touches a Job
        world.settle()
        assert (counted(world), told(world)) == (number, {JOB: {str(number)}})


def test_a_job_that_was_deleted_while_suspended() -> None:
    """It comes back, and says the new number after the resume, like the others."""
    world = settled_world(jobs=[replicated_job(replicas=2)])
    suspend(world)
    del world.jobs[JOB]
    world.settle()
    suspend(world)
    resume(world)
    assert told(world) == {JOB: {"1"}, "train-workers-1": {"1"}}


def test_a_resume_before_the_jobs_were_suspended() -> None:
    """While a Job still runs it is the same execution."""
    world = settled_world()
    world.manifest["spec"]["suspend"] = True
    world.status.update(world.plan().status)  # and SuspendJob was not carried out
    resume(world)
    assert (counted(world), world.condition("Suspended")["status"]) == (0, "False")


@pytest.mark.parametrize("numbered", [True, False])
def test_a_resume_in_order_whose_jobs_could_not_be_touched(numbered: bool) -> None:
    """A pass that counted and then failed is not counted again, also where the Jobs are older than the field."""
    jobs = [replicated_job("a", pods=1), replicated_job("b", pods=1)]
    world = settled_world(jobs=jobs, startupPolicy={"startupPolicyOrder": "InOrder"})
    suspend(world)
    if not numbered:
        forget(world)
    world.manifest["spec"]["suspend"] = False
    for _ in range(2):
        planned = world.plan()
        assert planned.is_urgent is (_ == 0)
        world.status.update(planned.status)
    assert counted(world) == (1 if numbered else 0)


def test_a_restart_that_nobody_counted_before() -> None:
    """After an upgrade the number follows status.restarts."""
    world = settled_world()
    forget(world)
    world.status["restarts"] = 2
    for job in world.jobs.values():
        for part in ("labels", "annotations"):
            job["metadata"][part][wire.RESTART_ATTEMPT] = "2"
    world.settle_job(JOB, "Failed")
    assert (world.status["restarts"], counted(world), told(world)) == (3, 3, {JOB: {"3"}})


def test_jobs_older_than_the_field_stay_as_they_are() -> None:
    """After an upgrade no Job is created, deleted or changed; a resume gives them the number."""
    world = settled_world()
    forget(world)
    before = told(world)
    assert world.plan().actions == ()
    assert told(world) == before
    suspend(world)
    assert counted(world) == 0
    resume(world)
    assert (counted(world), told(world)) == (1, {JOB: {"1"}})


def test_a_users_annotation_of_that_name_is_not_the_users() -> None:
    """Ours wins, as for every key of the controller."""
    mine = {"annotations": {wire.EXECUTION_ATTEMPT: "9"}}
    job = replicated_job()
    job["template"] |= {"metadata": mine}
    job["template"]["spec"]["template"] |= {"metadata": mine}
    assert told(settled_world(jobs=[job])) == {JOB: {"0"}}


def test_a_resume_names_the_job() -> None:
    """The action builds the Job with the new number, for the Job itself and for its pod template."""
    world = settled_world()
    suspend(world)
    world.manifest["spec"]["suspend"] = False
    (action,) = [action for action in world.plan().actions if isinstance(action, ResumeJob)]
    assert annotated(action.place.manifest) == {"1"}
