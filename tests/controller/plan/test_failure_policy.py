"""Every action and every part of a failure policy's rules, and their count against maxRestarts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.rules import RESTART_JOB, RESTART_JOB_UNCOUNTED, RESTART_UNCOUNTED
from inplace.common.jobset.scopes import WHOLE
from inplace.common.protocol.ledger import Ledger
from inplace.common.wire import names as wire
from inplace.controller.plan.executions import JOB_COUNTERS_MAX
from tests.controller.manifests import replicated_job
from tests.controller.plan.planner_world import PlannerWorld
from tests.controller.plan.policies import counters, started

pytestmark = pytest.mark.virtual_time


def uncounted_epochs(world: PlannerWorld) -> int:
    """Return how many epochs a ledger does not count: the exempt ones, less the counted recreations."""
    return world.jobset.scopes[WHOLE].exempt - world.jobset.recreations_counted


def test_several_failed_jobs_are_restarted_one_by_one() -> None:
    """A pass restarts one failed Job, the earliest first; later passes restart the others."""
    world = started({"action": RESTART_JOB_UNCOUNTED})
    world.set_job("train-a-0", "Failed", at="2026-01-01T00:00:02Z")
    world.set_job("train-a-1", "Failed", at="2026-01-01T00:00:01Z")
    world.carry_out(world.plan())
    assert counters(world, "a")["jobRestarts"] == [0, 1]
    world.settle()
    assert counters(world, "a")["jobRestarts"] == [1, 1]


def test_a_job_without_the_label_is_of_attempt_0() -> None:
    """A Job without the label job-restart-attempt is of attempt 0: it stays until it is restarted alone, once."""
    world = started({"action": RESTART_JOB_UNCOUNTED})
    for part in ("labels", "annotations"):
        del world.jobs["train-a-0"]["metadata"][part][wire.JOB_RESTART_ATTEMPT]
    assert world.plan().actions == ()
    world.settle_job("train-a-0", "Failed")
    assert world.deleted == ["train-a-0"]
    assert counters(world, "a")["jobRestarts"] == [1, 0]


def test_a_job_beyond_the_counters_restarts_the_jobset() -> None:
    """The status has 1024 counters; a Job beyond them restarts the whole JobSet, and the Event says so."""
    world = started({"action": RESTART_JOB}, jobs=[replicated_job("a", replicas=JOB_COUNTERS_MAX + 1)])
    world.set_job(f"train-a-{JOB_COUNTERS_MAX}", "Failed")
    planned = world.plan()
    assert planned.status["restarts"] == planned.status["restartsCountTowardsMax"] == 1
    assert "job index 1024 is beyond 1023" in planned.notes[-1].message


def test_the_first_rule_that_matches_decides() -> None:
    """Rules are tried in order, whichever Job failed first; within a rule the earliest failure is named."""
    world = started(
        {"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
        {"action": RESTART_UNCOUNTED, "targetReplicatedJobs": ["b"]},
        {"action": "FailJobSet"},
    )
    world.set_job("train-a-0", "Failed", at="2026-01-01T00:00:01Z")
    world.set_job("train-b-0", "Failed", at="2026-01-01T00:00:03Z")
    world.set_job("train-b-1", "Failed", at="2026-01-01T00:00:02Z")
    world.carry_out(world.plan())
    restarting = world.condition("RestartingJobSet")
    assert restarting["reason"] == "FailurePolicy_r1"
    assert restarting["message"].endswith("(first failed job: train-b-1)")


@given(
    st.lists(st.sampled_from(["in place", "uncounted", "counted", "job", "uncounted job"]), max_size=8), st.booleans()
)
def test_restarts_in_place_and_recreations_share_one_exact_budget(events: list[str], before_first: bool) -> None:
    """In any history each counted restart counts once, whether a recreation or in place."""
    actions = {
        "uncounted": RESTART_UNCOUNTED,
        "counted": "RestartJobSet",
        "job": RESTART_JOB,
        "uncounted job": RESTART_JOB_UNCOUNTED,
    }
    rules = [{"action": action, "onJobFailureReasons": [name.title()]} for name, action in actions.items()]
    world = started(*rules, strategy=wire.IN_PLACE_RESTART, restarts_max=100)
    counted = epoch = 0
    if before_first:
        events = ["start", *events]
    for event in events:
        if event in actions:
            world.settle_job("train-a-0", "Failed", reason=event.title())
        counted += event in ("counted", "job") or (event == "in place" and epoch > 0)
        epoch += 1 if event in ("start", "in place") or epoch > 0 else 0
        world.status.update(wire.status_of_epochs(epoch, max(0, epoch - 1)))
        assert world.jobset.restarts_so_far == counted
        ledger = Ledger(world.jobset.shape, epoch, max(0, epoch - 1))
        decision = ledger.decide(restarts_max=100, uncounted=uncounted_epochs(world))
        assert decision.restarts == counted or epoch == 0


def test_a_status_of_another_controller_keeps_its_meaning() -> None:
    """In a status without exemptEpochs every uncounted recreation of upstream's counters is an exempt epoch."""
    world = started(strategy=wire.IN_PLACE_RESTART)
    world.status.update(wire.status_of_epochs(4, 3))
    world.status.update(restarts=2, restartsCountTowardsMax=1)
    assert world.jobset.restarts_so_far == 2
    assert uncounted_epochs(world) == 1
