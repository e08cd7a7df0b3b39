"""The Workload and the PodGroups through a JobSet's life: creation, suspension, resume, restart, resize, drift, end."""

from typing import Any

import pytest

from inplace.common.jobset import conditions
from inplace.common.kube.resources import POD_GROUPS, SCHEDULING_WORKLOADS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import (
    CreateJob,
    CreateSchedulingObject,
    DeleteJob,
    DeleteSchedulingObject,
    ResizeSchedulingObject,
    ResumeJob,
)
from tests.controller.manifests import jobset, replicated_job
from tests.controller.plan.planner_world import NOW, PlannerWorld, settled

JOB = "train-workers-0"
GANG: dict[str, Any] = {"scheduling": {"schedulingPolicy": {"gang": {}}}}
PER_JOB = {"replicatedJobs": [{"targetReplicatedJobs": ["workers"], "job": {}}]}
SUSPENDED = {"type": "Suspended", "status": "True", "lastTransitionTime": NOW}


def world(**spec: Any) -> PlannerWorld:
    """Return the world of a new JobSet with a gang."""
    return PlannerWorld(jobset(**(GANG | spec)))


def kinds(planned: Any) -> list[type]:
    """Return the types of a plan's actions."""
    return [type(action) for action in planned.actions]


def mapping(world: PlannerWorld, name: str = JOB) -> tuple[Any, Any]:
    """Return the template that a Job names, and the PodGroup that its Pods name."""
    job = world.jobs[name]
    spec = job["spec"]["template"]["spec"]
    return job["metadata"]["annotations"].get(wire.GROUP_TEMPLATE), spec.get("schedulingGroup")


def test_objects_come_before_jobs_and_jobs_name_them() -> None:
    """The Workload and its PodGroup are created first; the Job then names the template, and its Pods the PodGroup."""
    found = world()
    first = found.plan()
    assert [type(action) for action in first.actions if not hasattr(action, "account")].count(CreateJob) == 0
    assert [action.resource for action in first.actions if isinstance(action, CreateSchedulingObject)] == [
        SCHEDULING_WORKLOADS,
        POD_GROUPS,
    ]
    found.settle()
    (_, name), (_, group) = found.groups
    assert mapping(found) == (name, {"podGroupName": group})
    (owner,) = found.groups[POD_GROUPS, group]["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("js-uid", True)
    assert found.groups[POD_GROUPS, group]["metadata"]["labels"] == {wire.JOBSET_NAME: "train"}


def test_without_the_field_nothing_is_made() -> None:
    """A JobSet without spec.scheduling waits for no answer about gangs, and its Job names none."""
    found = settled(jobset(), serves_groups=None)
    assert (found.groups, mapping(found)) == ({}, (None, None))


def test_jobs_wait_for_the_answer_whether_gangs_are_served() -> None:
    """Nothing is created of a gang, and no Job, before the server has said whether it serves gangs."""
    found = world()
    found.serves_groups = None
    found.settle()
    assert (found.groups, found.jobs) == ({}, {})


def test_a_server_without_gangs_is_told_of_once() -> None:
    """Where the API is not served, one Event says so with the first Jobs, no problem is set, and Pods name no group."""
    found = world()
    found.serves_groups = False
    told = [note for note in found.plan().warnings if note.reason == "GangUnavailable"]
    assert len(told) == 1
    assert "scheduled one by one" in told[0].message
    found.settle()
    assert mapping(found) == (None, None)
    assert not any(note.reason == "GangUnavailable" for note in found.plan().warnings)
    assert found.find_condition("SpecProblem") is None


def test_a_recreation_tells_it_no_second_time() -> None:
    """A restart that recreates all Jobs says nothing about the missing gang again."""
    found = settled(jobset(strategy="Recreate", **GANG), serves_groups=False)
    found.set_job(JOB, "Failed", failed=1)
    while (planned := found.plan()).actions or planned.status:
        assert not any(note.reason == "GangUnavailable" for note in planned.warnings)
        found.carry_out(planned)
    assert found.deleted == [JOB]


def test_a_group_that_runs_without_a_gang_stays_so() -> None:
    """A server that begins to serve gangs changes nothing for a group that runs, nor for a Job that is made anew."""
    found = settled(jobset(jobs=[replicated_job(replicas=2)], **GANG), serves_groups=False)
    found.serves_groups = True
    del found.jobs["train-workers-1"]
    found.settle()
    assert (found.groups, mapping(found, "train-workers-1")) == ({}, (None, None))


def test_suspension_deletes_the_objects_and_a_resume_makes_them_first() -> None:
    """While a JobSet is suspended it has no objects; a resume waits until they are there, and keeps the Job."""
    found = world()
    found.settle()
    found.manifest["spec"]["suspend"] = True
    found.settle()
    assert found.groups == {}
    found.jobs[JOB]["status"] = {"startTime": NOW, "conditions": [SUSPENDED]}
    found.manifest["spec"]["suspend"] = False
    assert ResumeJob not in kinds(found.plan())
    found.settle()
    assert (len(found.groups), found.jobs[JOB]["spec"]["suspend"], found.deleted) == (2, False, [])


def test_a_resume_waits_for_a_group_that_goes() -> None:
    """A PodGroup that is being deleted is waited for: Pods that named it would hold it for ever."""
    found = world()
    found.settle()
    found.manifest["spec"]["suspend"] = True
    found.carry_out(found.plan(), instant_deletes=False)
    found.settle()
    found.jobs[JOB]["status"] = {"startTime": NOW, "conditions": [SUSPENDED]}
    found.manifest["spec"]["suspend"] = False
    found.settle()
    assert found.jobs[JOB]["spec"]["suspend"] is True
    found.groups.clear()
    found.settle()
    assert found.jobs[JOB]["spec"]["suspend"] is False


@pytest.mark.parametrize("scheduling", [PER_JOB, None])
def test_a_suspended_job_of_another_group_is_made_anew_at_the_resume(scheduling: KubeObject | None) -> None:
    """What scheduling says may change while suspended: a Job of the old group is deleted at the resume, and created."""
    found = world()
    found.settle()
    old = mapping(found)
    found.manifest["spec"]["suspend"] = True
    found.settle()
    found.jobs[JOB]["status"] = {"startTime": NOW, "conditions": [SUSPENDED]}
    found.manifest["spec"] |= {"scheduling": scheduling, "suspend": False}
    found.settle()
    assert found.deleted == [JOB]
    assert mapping(found) != old
    assert (mapping(found)[0] is None) == (scheduling is None)
    assert found.jobs[JOB]["spec"]["suspend"] is False


def test_an_annotation_of_the_template_is_no_other_group() -> None:
    """A Job whose author named a template of a Workload of his own is resumed, not made anew."""
    job = replicated_job()
    job["template"]["metadata"] = {"annotations": {wire.GROUP_TEMPLATE: "own"}}
    found = settled(jobset(jobs=[job], suspend=True))
    found.manifest["spec"]["suspend"] = False
    assert [action.name for action in found.plan().actions if isinstance(action, ResumeJob)] == [JOB]


@pytest.mark.parametrize("condition", [conditions.COMPLETED, conditions.FAILED])
def test_the_end_deletes_the_objects(condition: str) -> None:
    """A JobSet that is finished keeps its Jobs, and neither Workload nor PodGroup."""
    found = world()
    found.settle()
    found.status["conditions"] = [{"type": condition, "status": "True", "lastTransitionTime": NOW}]
    found.settle()
    assert found.groups == {}


def test_a_recreation_keeps_the_objects() -> None:
    """A restart that recreates all Jobs keeps Workload and PodGroup, and the new Jobs name them."""
    found = settled(jobset(strategy="Recreate", **GANG))
    before, names = dict(found.groups), mapping(found)
    found.settle_job(JOB, "Failed", failed=1)
    assert found.deleted == [JOB]
    assert (found.groups, mapping(found)) == (before, names)


def test_an_elastic_job_resizes_its_gang() -> None:
    """Another parallelism changes the size in both objects, in place."""
    found = world()
    found.settle()
    before = {key: stored["metadata"]["uid"] for key, stored in found.groups.items()}
    spec = found.manifest["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec |= {"parallelism": 5, "completions": 5}
    assert kinds(found.plan()).count(ResizeSchedulingObject) == 2
    found.settle()
    workload, group = found.groups.values()
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 5}}
    assert workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"] == {"gang": {"minCount": 5}}
    assert {key: stored["metadata"]["uid"] for key, stored in found.groups.items()} == before


def test_what_another_changed_is_made_anew() -> None:
    """A difference that no update can mend deletes all objects and makes them anew; Jobs that run stay."""
    found = world()
    found.settle()
    key = next(key for key in found.groups if key[0] is POD_GROUPS)
    found.groups[key]["spec"]["schedulingPolicy"] = {"basic": {}}
    assert kinds(found.plan()) == [DeleteSchedulingObject, DeleteSchedulingObject]
    found.settle()
    assert found.groups[key]["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert found.deleted == []


def test_a_lost_group_of_a_running_job_is_made_anew() -> None:
    """A PodGroup that somebody deleted is created again, and no Job is touched."""
    found = world()
    found.settle()
    key = next(key for key in found.groups if key[0] is POD_GROUPS)
    del found.groups[key]
    planned = found.plan()
    assert kinds(planned) == [CreateSchedulingObject]
    found.settle()
    assert key in found.groups
    assert not any(isinstance(action, DeleteJob | CreateJob) for action in planned.actions)


BAD: dict[str, tuple[KubeObject, KubeObject, str]] = {
    "order_in_an_entry": (
        {"replicatedJobs": [{"targetReplicatedJobs": ["a", "b"]}]},
        {"jobs": [replicated_job("a"), replicated_job("b")], "startupPolicy": {"startupPolicyOrder": "InOrder"}},
        "in the gang of a, b",
    ),
    "exclusive": ({}, {"annotations": {wire.EXCLUSIVE_TOPOLOGY: "rack"}}, "no exclusive placement"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_problem_makes_no_gang_and_is_told(case: str) -> None:
    """What cannot become a Workload is told in SpecProblem with its cure, and the Pods go on one by one."""
    scheduling, changes, words = BAD[case]
    found = settled(jobset(scheduling=scheduling, **changes))
    assert words in found.condition("SpecProblem")["message"]
    assert found.groups == {}
    assert found.jobs
    assert all(wire.GROUP_TEMPLATE not in job["metadata"]["annotations"] for job in found.jobs.values())


def test_what_the_policy_allows_is_no_problem() -> None:
    """Level 1 with basic and an order, and the node-selector strategy in a gang, are no problems."""
    basic: KubeObject = {"schedulingPolicy": {"basic": {}}}
    assert settled(jobset(scheduling=basic, startupPolicy={"startupPolicyOrder": "InOrder"})).groups
    strategy = {wire.EXCLUSIVE_TOPOLOGY: "rack", wire.NODE_SELECTOR_STRATEGY: "true"}
    assert settled(jobset(scheduling={}, annotations=strategy)).groups


@pytest.mark.parametrize(
    "targets", [["other"], ["workers", "other"], ["workers", "workers"]], ids=["missing", "invented", "repeated"]
)
def test_without_the_policy_every_pod_has_a_group(targets: list[str]) -> None:
    """Targets that the policy refuses leave no Pod without a group, and none in two."""
    found = settled(jobset(scheduling={"replicatedJobs": [{"targetReplicatedJobs": [name]} for name in targets]}))
    assert (len(found.groups), found.find_condition("SpecProblem")) == (2, None)
    assert mapping(found)[0] is not None


def test_without_the_policy_a_jobset_without_jobs_has_no_group() -> None:
    """Nothing is made for a JobSet that has no replicatedJob."""
    assert settled(jobset(jobs=[], strategy=None, scheduling={})).groups == {}
