"""KEP-262's future work: RestartReplicatedJob, FailJob, and conditions whose reason the user sets."""

import pytest

from inplace.common.jobset.rules import LEAVE_FAILED, RESTART_REPLICATED_JOB, RESTART_REPLICATED_JOB_UNCOUNTED
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.executions import JOB_COUNTERS_MAX
from tests.controller.manifests import replicated_job
from tests.controller.plan.planner_world import PlannerWorld
from tests.controller.plan.policies import counters, started, uids, with_rules
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

LEAVE = {"action": LEAVE_FAILED, "onJobFailureReasons": ["PodFailurePolicy"]}


def recreated(world: PlannerWorld, before: dict[str, str]) -> set[str]:
    """Return the names of the recreated Jobs."""
    return {name for name, uid in uids(world).items() if before[name] != uid}


@pytest.mark.parametrize(
    ("action", "counted"), [(RESTART_REPLICATED_JOB, [0, 1]), (RESTART_REPLICATED_JOB_UNCOUNTED, None)]
)
def test_restart_replicated_job_recreates_its_jobs_and_no_other(action: str, counted: list[int] | None) -> None:
    """All Jobs of the replicatedJob are recreated, completed ones too; it counts once; other replicatedJobs stay."""
    world = started({"action": action})
    before = uids(world)
    world.set_job("train-b-0", "Complete")
    world.set_job("train-b-1", "Failed")
    planned = world.plan()
    assert [note.reason for note in planned.notes] == [f"{action}FailurePolicyAction"]
    world.settle()
    assert recreated(world, before) == {"train-b-0", "train-b-1"}
    entry = counters(world, "b")
    assert (entry["jobRestarts"], entry.get("jobRestartsCountTowardsMax")) == ([1, 1], counted)
    assert world.find_condition("RestartingJobSet") is None


def test_restart_replicated_job_uses_up_max_restarts_once_each() -> None:
    """Each RestartReplicatedJob counts once, whatever the number of Jobs: the third exceeds maxRestarts 2."""
    world = started({"action": RESTART_REPLICATED_JOB}, restarts_max=2)
    for _ in range(2):
        world.settle_job("train-a-1", "Failed")
        assert "terminalState" not in world.status
    world.settle_job("train-a-0", "Failed")
    assert world.condition("Failed")["reason"] == "ReachedMaxRestarts"


def test_a_replicated_job_beyond_the_counters_restarts_the_jobset() -> None:
    """A replicatedJob larger than the counters restarts the whole JobSet, and the Event says so."""
    jobs = [replicated_job("a", replicas=JOB_COUNTERS_MAX + 1)]
    world = started({"action": RESTART_REPLICATED_JOB}, jobs=jobs)
    world.set_job("train-a-0", "Failed")
    planned = world.plan()
    assert planned.status["restarts"] == planned.status["restartsCountTowardsMax"] == 1
    assert "job index 1024 is beyond 1023" in planned.notes[-1].message


def test_fail_job_leaves_the_job_as_it_is() -> None:
    """FailJob deletes, creates and counts nothing; a condition names the Job once; other failures count as usual."""
    world = started(LEAVE)
    world.set_job("train-a-0", "Failed", reason="PodFailurePolicy")
    planned = world.plan()
    assert [(note.reason, note.warning) for note in planned.notes] == [("FailJobFailurePolicyAction", True)]
    assert planned.actions == ()
    assert planned.left == {("a", 0)}
    world.settle()
    assert (world.status["restarts"], counters(world, "a")["failed"]) == (0, 1)
    assert world.condition("JobsLeftFailed")["message"].endswith("to 1 of the jobs (first failed job: train-a-0)")

    before = uids(world)
    world.settle_job("train-b-0", "Failed", reason="DeadlineExceeded")
    assert recreated(world, before) == set(before)
    assert world.plan().left == frozenset()
    condition = world.condition("JobsLeftFailed")
    assert (condition["status"], condition["reason"]) == ("False", "NoJobLeftFailed")


@pytest.mark.parametrize(
    ("operator", "ends", "outcome"),
    [
        ("All", {"train-a-0": "Failed", "train-a-1": "Complete", "train-b-0": "Complete"}, None),
        (
            "All",
            {"train-a-0": "Failed", "train-a-1": "Complete", "train-b-0": "Complete", "train-b-1": "Complete"},
            "Completed",
        ),
        ("All", dict.fromkeys(["train-a-0", "train-a-1", "train-b-0", "train-b-1"], "Failed"), "Failed"),
        ("Any", {"train-a-0": "Failed"}, None),
        ("Any", {"train-a-0": "Failed", "train-b-0": "Complete"}, "Completed"),
        ("Any", dict.fromkeys(["train-a-0", "train-a-1", "train-b-0", "train-b-1"], "Failed"), "Failed"),
    ],
)
def test_success_does_not_wait_for_a_job_that_was_left(operator: str, ends: KubeObject, outcome: str | None) -> None:
    """With All, all other Jobs, at least one, must succeed; when no Job can succeed any more, the JobSet fails."""
    world = started(LEAVE, successPolicy={"operator": operator})
    for name, end in ends.items():
        world.set_job(name, end, reason="PodFailurePolicy")
    world.settle()
    assert world.status.get("terminalState") == outcome


def test_success_counts_only_targets_among_those_that_were_left() -> None:
    """Leaving a Job failed that is no target of the success policy does not end the JobSet."""
    world = started(LEAVE, successPolicy={"operator": "All", "targetReplicatedJobs": ["a"]})
    for name in ("train-b-0", "train-b-1"):
        world.set_job(name, "Failed", reason="PodFailurePolicy")
    world.settle()
    assert "terminalState" not in world.status
    for name in ("train-a-0", "train-a-1"):
        world.set_job(name, "Complete")
    world.settle()
    assert world.status["terminalState"] == "Completed"


def test_fail_job_fails_the_jobset_when_others_wait_for_that_job() -> None:
    """When another replicatedJob depends on the left Job's completion, the JobSet fails at once."""
    jobs = [replicated_job("a"), replicated_job("b") | {"dependsOn": [{"name": "a", "status": "Complete"}]}]
    world = started(LEAVE, jobs=jobs)
    world.settle_job("train-a-0", "Failed", reason="PodFailurePolicy")
    failed = world.condition("Failed")
    assert failed["reason"] == "FailJobFailurePolicyAction"
    assert "can never start" in failed["message"]


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("FailJobSet", "Failed"),
        ("FailJob", "JobsLeftFailed"),
        ("RestartJobSet", "RestartingJobSet"),
        ("RestartJobSetAndIgnoreMaxRestarts", "RestartingJobSet"),
    ],
)
def test_a_rule_sets_the_reason_of_its_condition(action: str, kind: str) -> None:
    """A rule's setConditionReason takes the place of the action's own, in the condition and in its Event."""
    world = started({"action": action, "setConditionReason": "OutOfMemory"})
    world.set_job("train-a-0", "Failed")
    assert "OutOfMemory" in [note.reason for note in world.plan().notes]
    world.settle()
    assert world.condition(kind)["reason"] == "OutOfMemory"


def test_a_reason_that_no_condition_can_have_is_told_and_left_out() -> None:
    """An invalid setConditionReason is reported and the action's own reason is used, so that status writes succeed."""
    world = started({"action": "FailJobSet", "setConditionReason": "out of memory"})
    assert "rules[0].setConditionReason" in world.condition("SpecProblem")["message"]
    world.settle_job("train-a-0", "Failed")
    assert world.condition("Failed")["reason"] == "FailJobSetFailurePolicyAction"


async def test_a_group_goes_on_without_the_pods_of_a_job_that_was_left(rig: Rig) -> None:
    """The barrier does not wait for a left Job's Pods, also with a new controller; nothing is recreated."""
    crew = await rig.started(with_rules(LEAVE, strategy=wire.IN_PLACE_RESTART))
    before = await crew.job_uids()
    for index in range(2):
        await crew.set_phase(crew.pods.pop(("train-a-0", index)), "Failed")
    await rig.finish_job(crew, "train-a-0", "Failed", reason="PodFailurePolicy")
    assert await crew.epochs() == (1, 0)
    await rig.meet(crew, 2)
    assert await crew.epochs() == (2, 1)
    await rig.change_controller()
    await rig.meet(crew, 3)
    assert await crew.epochs() == (3, 2)
    assert await crew.job_uids() == before
