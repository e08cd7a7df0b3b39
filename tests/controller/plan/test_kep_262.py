"""KEP-262's future work: RestartReplicatedJob, FailJob, and conditions whose reason the user sets."""

import pytest

from inplace.common.jobset.rules import RESTART_REPLICATED_JOB
from inplace.controller.plan.executions import JOB_COUNTERS_MAX
from tests.controller.manifests import replicated_job
from tests.controller.plan.planner_world import PlannerWorld
from tests.controller.plan.policies import started, uids

pytestmark = pytest.mark.virtual_time


def recreated(world: PlannerWorld, before: dict[str, str]) -> set[str]:
    """Return the names of the recreated Jobs."""
    return {name for name, uid in uids(world).items() if before[name] != uid}


def test_a_replicated_job_beyond_the_counters_restarts_the_jobset() -> None:
    """A replicatedJob larger than the counters restarts the whole JobSet, and the Event says so."""
    jobs = [replicated_job("a", replicas=JOB_COUNTERS_MAX + 1)]
    world = started({"action": RESTART_REPLICATED_JOB}, jobs=jobs)
    world.set_job("train-a-0", "Failed")
    planned = world.plan()
    assert planned.status["restarts"] == planned.status["restartsCountTowardsMax"] == 1
    assert "job index 1024 is beyond 1023" in planned.notes[-1].message


def test_a_reason_that_no_condition_can_have_is_told_and_left_out() -> None:
    """An invalid setConditionReason is reported and the action's own reason is used, so that status writes succeed."""
    world = started({"action": "FailJobSet", "setConditionReason": "out of memory"})
    assert "rules[0].setConditionReason" in world.condition("SpecProblem")["message"]
    world.settle_job("train-a-0", "Failed")
    assert world.condition("Failed")["reason"] == "FailJobSetFailurePolicyAction"
