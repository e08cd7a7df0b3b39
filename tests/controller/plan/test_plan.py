"""The planner's decisions, feature by feature; test_plan_properties.py has the properties of every plan."""

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.errors import InvariantError
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import CreateJob, CreateService, DeleteJob, ResumeJob
from inplace.controller.plan.draft import COUNTERS_HOLD_RESTART_S
from tests.controller.manifests import jobset, replicated_job
from tests.controller.plan.planner_world import NOW, PlannerWorld, settled, settled_world


def test_a_new_jobset_gets_its_service_and_its_jobs() -> None:
    """The first pass creates the headless Service and every Job, and counts zeros."""
    world = PlannerWorld(jobset(jobs=[replicated_job("a", replicas=2), replicated_job("b")]))
    planned = world.plan()
    assert [type(action) for action in planned.actions] == [CreateService, CreateJob, CreateJob, CreateJob]
    zeros = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    assert planned.status == {
        "replicatedJobsStatus": [{"name": "b", **zeros}, {"name": "a", **zeros}],
        "restarts": 0,
        "executionAttempts": 0,
        "startTime": NOW,
    }
    assert not planned.is_urgent


def test_only_missing_jobs_are_created() -> None:
    """A Job whose name is taken, even by one that is being deleted, is not created."""
    world = settled_world(jobs=[replicated_job(replicas=3)])
    world.jobs["train-workers-0"]["metadata"]["deletionTimestamp"] = NOW
    del world.jobs["train-workers-1"]
    names = [a.manifest["metadata"]["name"] for a in world.plan().actions if isinstance(a, CreateJob)]
    assert names == ["train-workers-1"]


@pytest.mark.parametrize("where", ["deletionTimestamp", "managedBy"])
def test_what_is_not_ours_is_left_alone(where: str) -> None:
    """A JobSet that is being deleted, or that another controller manages, is never touched."""
    world = PlannerWorld(jobset())
    if where == "managedBy":
        world.manifest["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    else:
        world.manifest["metadata"]["deletionTimestamp"] = NOW
    planned = world.plan()
    assert (planned.status, planned.actions, planned.warnings) == ({}, (), ())


@pytest.mark.parametrize("name", [wire.MANAGED_BY_BUILT_IN, wire.MANAGED_BY_US])
def test_the_reserved_managers_are_us(name: str) -> None:
    """Upstream's reserved value means the built-in controller; our own name leaves upstream's out."""
    assert PlannerWorld(jobset(managedBy=name)).plan().actions


def test_a_jobset_without_replicated_jobs_is_fine() -> None:
    """A JobSet without replicatedJobs creates no Job and never completes."""
    world = settled(jobset(jobs=[]))
    assert world.jobs == {}
    assert world.find_condition("Completed") is None


def test_counters() -> None:
    """Ready counts Pods against parallelism, active Jobs with active Pods, the rest conditions."""
    world = settled_world(jobs=[replicated_job(replicas=4)])
    world.set_job("train-workers-0", active=2, ready=2)
    world.set_job("train-workers-1", active=2, ready=1)
    world.set_job("train-workers-2", active=1, ready=1, succeeded=1)
    world.set_job("train-workers-3", "Complete", succeeded=2)
    assert world.plan().status["replicatedJobsStatus"] == [
        {"name": "workers", "ready": 2, "succeeded": 1, "failed": 0, "active": 3, "suspended": 0}
    ]


def test_foreign_parts_of_the_counters_survive() -> None:
    """Fields of replicatedJobsStatus that this version does not write are kept."""
    world = settled_world()
    world.status["replicatedJobsStatus"][0]["invented"] = [1]
    world.set_job("train-workers-0", active=2)
    assert world.plan().status["replicatedJobsStatus"][0]["invented"] == [1]


def test_all_jobs_completed() -> None:
    """With the default success policy every Job must complete; then the JobSet is Completed."""
    world = settled_world(jobs=[replicated_job(replicas=2)])
    world.set_job("train-workers-0", "Complete")
    assert "conditions" not in world.plan().status
    world.settle_job("train-workers-1", "Complete")
    assert world.status["terminalState"] == "Completed"
    condition = world.find_condition("Completed")
    assert condition == {
        "type": "Completed",
        "status": "True",
        "reason": "AllJobsCompleted",
        "message": "jobset completed successfully",
        "lastTransitionTime": NOW,
    }
    assert set(world.jobs) == {"train-workers-0", "train-workers-1"}


def test_any_of_the_targets() -> None:
    """With operator Any one succeeded Job of a target is enough; active Jobs are deleted, finished ones stay."""
    policy = {"operator": "Any", "targetReplicatedJobs": ["driver"]}
    world = settled(
        jobset(strategy=None, jobs=[replicated_job("driver"), replicated_job("workers")], successPolicy=policy)
    )
    world.settle_job("train-workers-0", "Complete")
    assert "terminalState" not in world.status
    world.set_job("train-workers-0", active=1)
    world.settle_job("train-driver-0", "Complete")
    assert world.status["terminalState"] == "Completed"
    assert world.deleted == ["train-workers-0"]


def test_a_failed_job_without_a_policy_fails_the_jobset() -> None:
    """The JobSet fails and names the Job that failed first; active Jobs are deleted."""
    world = settled(jobset(strategy=None, jobs=[replicated_job(replicas=3)]))
    world.set_job("train-workers-1", "Failed", at="2026-01-01T00:00:02Z")
    world.settle_job("train-workers-2", "Failed", at="2026-01-01T00:00:01Z")
    condition = world.condition("Failed")
    assert (condition["reason"], condition["message"]) == (
        "FailedJobs",
        "jobset failed due to one or more job failures (first failed job: train-workers-2)",
    )
    assert world.status["terminalState"] == "Failed"
    assert world.deleted == ["train-workers-0"]


def test_recreate_until_max_restarts() -> None:
    """A failed Job recreates every Job of the JobSet, maxRestarts times; then the JobSet fails."""
    world = settled_world(restarts_max=2, jobs=[replicated_job(replicas=2)])
    for restart in (1, 2):
        old = {job["metadata"]["uid"] for job in world.jobs.values()}
        world.set_job("train-workers-0", "Failed")
        planned = world.plan()
        assert planned.status["restarts"] == planned.status["restartsCountTowardsMax"] == restart
        assert planned.actions == ()
        assert ("RestartJobSetFailurePolicyAction", True) in [(n.reason, n.warning) for n in planned.notes]
        world.settle()
        assert not old & {job["metadata"]["uid"] for job in world.jobs.values()}
        assert {job["metadata"]["labels"][wire.RESTART_ATTEMPT] for job in world.jobs.values()} == {str(restart)}
        assert world.condition("RestartingJobSet")["status"] == "True"
    for name in world.jobs:
        world.set_job(name, active=2, ready=2)
    world.settle()
    restarting = world.condition("RestartingJobSet")
    assert (restarting["status"], restarting["reason"]) == ("False", "JobsReady")
    world.settle_job("train-workers-0", "Failed")
    failed = world.condition("Failed")
    assert failed["reason"] == "ReachedMaxRestarts"
    assert failed["message"].endswith("(first failed job: train-workers-0)")


def test_names_are_reused_as_soon_as_they_are_free() -> None:
    """Recreate does not wait for the others; BlockingRecreate does."""
    for strategy, created in (("Recreate", ["train-workers-0"]), ("BlockingRecreate", [])):
        world = settled_world(strategy=strategy, jobs=[replicated_job(replicas=2)])
        world.set_job("train-workers-1", "Failed")
        world.carry_out(world.plan())
        world.carry_out(world.plan(), instant_deletes=False)
        del world.jobs["train-workers-0"]
        names = [a.manifest["metadata"]["name"] for a in world.plan().actions if isinstance(a, CreateJob)]
        assert names == created


@pytest.mark.parametrize(
    ("rule", "reason", "expected"),
    [
        ({"action": "FailJobSet"}, "X", "Failed"),
        ({"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}, "PodFailurePolicy", "Failed"),
        ({"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}, "X", "RestartingJobSet"),
        ({"action": "FailJobSet", "targetReplicatedJobs": ["workers"]}, "X", "Failed"),
        ({"action": "FailJobSet", "targetReplicatedJobs": ["other"]}, "X", "RestartingJobSet"),
        ({"action": "RestartJobSetAndIgnoreMaxRestarts"}, "X", "RestartingJobSet"),
        ({"action": "RestartElsewhere"}, "X", "RestartingJobSet"),
    ],
)
def test_rules(rule: KubeObject, reason: str, expected: str) -> None:
    """The first rule that matches decides; without a match the JobSet restarts."""
    world = settled_world(rules=[{"name": "r"} | rule])
    world.set_job("train-workers-0", "Failed", reason=reason)
    world.carry_out(world.plan())
    assert world.find_condition(expected) is not None


def test_uncounted_restarts_are_not_counted() -> None:
    """RestartJobSetAndIgnoreMaxRestarts restarts beyond maxRestarts."""
    rule = {"name": "evicted", "action": "RestartJobSetAndIgnoreMaxRestarts"}
    world = settled_world(restarts_max=0, rules=[rule])
    world.set_job("train-workers-0", "Failed")
    world.carry_out(world.plan())
    assert world.status["restarts"] == 1
    assert "restartsCountTowardsMax" not in world.status
    assert world.condition("RestartingJobSet")["reason"] == "FailurePolicy_evicted"


def test_suspend_and_resume() -> None:
    """Suspend is passed on, at creation and later; the conditions say so; resume undoes it."""
    world = settled(jobset(strategy="Recreate", suspend=True))
    assert world.jobs["train-workers-0"]["spec"]["suspend"] is True
    condition = world.condition("Suspended")
    assert (condition["status"], condition["reason"]) == ("True", "SuspendedJobs")
    world.manifest["spec"]["suspend"] = False
    assert [action.name for action in world.plan().actions if isinstance(action, ResumeJob)] == ["train-workers-0"]
    world.settle()
    condition = world.condition("Suspended")
    assert (condition["status"], condition["reason"]) == ("False", "ResumeJobs")


def test_the_barrier_is_skipped_while_suspended() -> None:
    """No epoch is written for a suspended group."""
    world = settled(jobset(suspend=True))
    world.decision = Decision(1, 0)
    assert world.plan().status == {}


def test_an_unreadable_attempt_is_cured_by_a_new_job() -> None:
    """A Job of ours with an unreadable restart-attempt is recreated, with a Warning."""
    world = settled_world()
    metadata = world.jobs["train-workers-0"]["metadata"]
    metadata["labels"][wire.RESTART_ATTEMPT] = "garbage"
    assert world.plan().actions == ()
    metadata["annotations"][wire.RESTART_ATTEMPT] = "-1"
    assert [warning.reason for warning in world.plan().warnings] == ["UnreadableJob"]
    world.settle()
    assert world.deleted == ["train-workers-0"]
    assert world.jobs["train-workers-0"]["metadata"]["labels"][wire.RESTART_ATTEMPT] == "0"


def test_a_stray_job_is_left_alone() -> None:
    """A Job with our owner reference but no expected name changes nothing, even when it fails."""
    world = settled_world()
    stray = world.jobs["train-workers-0"]
    world.jobs["stray"] = stray | {"metadata": stray["metadata"] | {"name": "stray", "uid": "stray"}}
    world.set_job("stray", "Failed")
    assert world.plan().actions == ()
    assert world.plan().status == {}


def test_a_stray_job_that_nobody_can_read_is_left_alone() -> None:
    """A Job made by hand, with our owner reference and without our labels, is not deleted as broken."""
    world = settled_world()
    stray = {"name": "stray", "uid": "stray", "resourceVersion": "1", "labels": {}, "annotations": {}}
    world.jobs["stray"] = world.jobs["train-workers-0"] | {"metadata": stray}
    planned = world.plan()
    assert (planned.actions, planned.status, planned.warnings) == ((), {}, ())


def test_a_job_of_an_earlier_restart_does_not_outlive_its_jobset() -> None:
    """Jobs of an earlier restart are deleted, also when the JobSet fails before their deletion."""
    world = settled_world(restarts_max=1, jobs=[replicated_job(replicas=2)])
    world.set_job("train-workers-0", "Failed")
    world.carry_out(world.plan())
    world.status.update({"terminalState": "Failed", "conditions": [{"type": "Failed", "status": "True"}]})
    deletions = [action.name for action in world.plan().actions if isinstance(action, DeleteJob)]
    assert deletions == ["train-workers-0", "train-workers-1"]


def test_epochs_are_written_in_both_encodings() -> None:
    """S and D go out as epochs and as attempts; an attempt whose epoch is 0 is absent."""
    world = settled(jobset())
    world.decision = Decision(1, 0)
    planned = world.plan()
    assert planned.is_urgent
    assert planned.status == {"syncedEpoch": 1, "deprecatedEpoch": 0, "currentInPlaceRestartAttempt": 0}
    world.carry_out(planned)
    world.decision = Decision(1, 1)
    assert world.plan().status["previousInPlaceRestartAttempt"] == 0


def test_epochs_never_go_back() -> None:
    """A decision below the status is our bug and raises InvariantError."""
    world = settled(jobset())
    world.status.update(wire.status_of_epochs(3, 2))
    world.decision = Decision(2, 2)
    with pytest.raises(InvariantError, match="only grow"):
        world.plan()


def test_one_group_restart_too_many() -> None:
    """One group restart too many fails the JobSet with upstream's message, which names no Job."""
    world = settled(jobset())
    world.decision = Decision(4, 3, restarts=4, exceeded=True)
    world.settle()
    condition = world.condition("Failed")
    assert (condition["reason"], condition["message"]) == (
        "ReachedMaxRestarts",
        "jobset failed due to reaching max number of restarts",
    )
    assert world.deleted == ["train-workers-0"]


def test_a_job_with_completed_pods_is_recreated() -> None:
    """A Job with a completed Pod is recreated, also when only the Job's counter shows the Pod."""
    for decision, succeeded in ((Decision(1, 1, recreate=frozenset({("workers", 0)})), 0), (Decision(1, 1), 1)):
        world = settled(jobset(jobs=[replicated_job(replicas=2)]))
        world.status.update(wire.status_of_epochs(1, 1))
        world.set_job("train-workers-0", active=1, succeeded=succeeded)
        world.decision = decision
        deletions = [action for action in world.plan().actions if isinstance(action, DeleteJob)]
        assert deletions == [DeleteJob("train-workers-0", "job-1", DeleteJob.COMPLETED_PODS)]


def test_completed_pods_alone_restart_nothing() -> None:
    """Workers that complete while their epoch runs cause no restart."""
    world = settled(jobset())
    world.status.update(wire.status_of_epochs(1, 0))
    world.set_job("train-workers-0", active=1, succeeded=1)
    world.decision = Decision(1, 0)
    assert world.plan().actions == ()


def test_counters_wait_while_a_group_restarts() -> None:
    """A change of counters alone waits, longest during a group restart, because each write reaches every agent."""
    world = settled(jobset())
    world.status.update(wire.status_of_epochs(1, 1))
    world.set_job("train-workers-0", active=2)
    world.decision = Decision(1, 1)
    planned = world.plan()
    assert not planned.is_urgent
    assert planned.hold_s == COUNTERS_HOLD_RESTART_S
    world.decision = Decision(2, 1)
    planned = world.plan()
    assert planned.is_urgent
    assert "replicatedJobsStatus" in planned.status


def test_restarts_in_place_count_towards_the_maximum_of_recreations() -> None:
    """Restarts in place and recreations share maxRestarts: used-up restarts make a Job's failure fatal."""
    world = settled(jobset(restarts_max=2))
    world.status.update(wire.status_of_epochs(3, 2))
    world.set_job("train-workers-0", "Failed")
    world.carry_out(world.plan())
    assert world.status["terminalState"] == "Failed"
