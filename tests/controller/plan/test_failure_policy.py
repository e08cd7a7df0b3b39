"""Every action and every part of a failure policy's rules, and their count against maxRestarts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.rules import RESTART_JOB, RESTART_JOB_UNCOUNTED, RESTART_UNCOUNTED
from inplace.common.jobset.scopes import WHOLE
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.ledger import Ledger
from inplace.common.wire import names as wire
from inplace.controller.plan.executions import JOB_COUNTERS_MAX
from tests.controller.manifests import replicated_job
from tests.controller.plan.planner_world import PlannerWorld
from tests.controller.plan.policies import counters, started, uids, with_rules
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


def uncounted_epochs(world: PlannerWorld) -> int:
    """Return how many epochs a ledger does not count: the exempt ones, less the counted recreations."""
    return world.jobset.scopes[WHOLE].exempt - world.jobset.recreations_counted


def test_restart_job_recreates_that_job_alone() -> None:
    """Only the failed Job is new, under the next job-restart-attempt; no RestartingJobSet; both lists count it."""
    world = started({"action": RESTART_JOB})
    before = uids(world)
    world.set_job("train-b-1", "Failed")
    planned = world.plan()
    assert planned.is_urgent
    assert [(note.reason, note.warning) for note in planned.notes] == [("RestartJobFailurePolicyAction", True)]
    message = "applying RestartJob failure policy action (first failed job: train-b-1)"
    assert planned.notes[0].message == message
    world.settle()
    assert {name for name, uid in uids(world).items() if before[name] != uid} == {"train-b-1"}
    labels = world.jobs["train-b-1"]["metadata"]["labels"]
    assert (labels[wire.RESTART_ATTEMPT], labels[wire.JOB_RESTART_ATTEMPT]) == ("0", "1")
    assert world.jobs["train-b-1"]["spec"]["template"]["metadata"]["annotations"][wire.JOB_RESTART_ATTEMPT] == "1"
    entry = counters(world, "b")
    assert (entry["jobRestarts"], entry["jobRestartsCountTowardsMax"]) == ([0, 1], [0, 1])
    assert "jobRestarts" not in counters(world, "a")
    assert (world.find_condition("RestartingJobSet"), world.status["restarts"]) == (None, 0)


def test_restart_job_uncounted_has_no_end() -> None:
    """RestartJobAndIgnoreMaxRestarts goes on beyond maxRestarts and counts only in jobRestarts."""
    world = started({"action": RESTART_JOB_UNCOUNTED}, restarts_max=0)
    for number in (1, 2, 3):
        world.settle_job("train-a-0", "Failed")
        assert counters(world, "a")["jobRestarts"] == [number, 0]
    assert "jobRestartsCountTowardsMax" not in counters(world, "a")
    assert "terminalState" not in world.status


def test_there_is_one_budget_for_jobs_and_jobsets() -> None:
    """Counted restarts of single Jobs and of the JobSet use up the same maxRestarts."""
    world = started({"action": RESTART_JOB, "targetReplicatedJobs": ["a"]}, restarts_max=2)
    world.settle_job("train-a-0", "Failed")
    world.settle_job("train-b-0", "Failed")
    assert world.status["restartsCountTowardsMax"] == 1
    assert counters(world, "a")["jobRestarts"] == [1, 0]
    world.settle_job("train-a-1", "Failed")
    failed = world.condition("Failed")
    assert (failed["reason"], failed["message"]) == (
        "ReachedMaxRestarts",
        "jobset failed due to reaching max number of restarts (first failed job: train-a-1)",
    )


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


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({"onJobFailureMessagePatterns": ["exit code (42|43)"]}, True),
        ({"onJobFailureMessagePatterns": ["^exit"]}, False),
        ({"onJobFailureMessagePatterns": ["exit code 1$", "container worker"]}, True),
        ({"onJobFailureMessagePatterns": ["(?i)CONTAINER"]}, True),
        ({"onJobFailureMessagePatterns": ["(?=lookahead"]}, False),
        ({"onJobFailureMessagePatterns": ["(?=lookahead", "exit code 42"]}, True),
        ({"onJobFailureMessagePatterns": ["42"], "onJobFailureReasons": ["PodFailurePolicy"]}, True),
        ({"onJobFailureMessagePatterns": ["42"], "onJobFailureReasons": ["BackoffLimitExceeded"]}, False),
        ({"onJobFailureMessagePatterns": ["42"], "targetReplicatedJobs": ["b"]}, False),
        ({"onJobFailureMessagePatterns": []}, True),
    ],
)
def test_every_part_of_a_rule_must_match(rule: KubeObject, matches: bool) -> None:
    """A rule matches when each given part matches: reasons, any of the RE2 patterns (searched) and targets."""
    world = started({"action": "FailJobSet"} | rule)
    message = "Pod failed: container worker, exit code 42 matching FailJob rule at index 0"
    world.settle_job("train-a-0", "Failed", reason="PodFailurePolicy", message=message)
    assert (world.status.get("terminalState") == "Failed") is matches


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


def test_an_exemption_that_is_asked_for_twice_is_one() -> None:
    """Two recreations before the group is back make one group restart, so one epoch is exempt."""
    rule = {"action": RESTART_UNCOUNTED}
    world = started(rule, strategy=wire.IN_PLACE_RESTART)
    world.status.update(wire.status_of_epochs(1, 0))
    for _ in range(2):
        world.settle_job("train-a-0", "Failed")
    assert (world.status["restarts"], world.status["exemptEpochs"], world.status["lastExemptEpoch"]) == (2, 1, 2)


def test_a_status_of_another_controller_keeps_its_meaning() -> None:
    """In a status without exemptEpochs every uncounted recreation of upstream's counters is an exempt epoch."""
    world = started(strategy=wire.IN_PLACE_RESTART)
    world.status.update(wire.status_of_epochs(4, 3))
    world.status.update(restarts=2, restartsCountTowardsMax=1)
    assert world.jobset.restarts_so_far == 2
    assert uncounted_epochs(world) == 1


async def test_uncounted_recreations_under_in_place_restart_survive_the_controller(rig: Rig) -> None:
    """Uncounted Job failures never use up maxRestarts, also for a new controller."""
    rule = {"action": RESTART_JOB_UNCOUNTED, "onJobFailureReasons": ["PodFailurePolicy"]}
    manifest = with_rules(rule, strategy=wire.IN_PLACE_RESTART, restarts_max=1)
    crew = await rig.started(manifest)
    for epoch in (2, 3, 4):
        await rig.finish_job(crew, "train-a-0", "Failed", 2.0, reason="PodFailurePolicy")
        crew.pods = {slot: pod for slot, pod in crew.pods.items() if slot[0] != "train-a-0"}
        await crew.make_pods()
        await rig.meet(crew, epoch)
        assert await crew.epochs() == (epoch, epoch - 1)
    assert (await crew.status())["replicatedJobsStatus"][1]["jobRestarts"] == [3, 0]
    await rig.change_controller()
    await rig.meet(crew, 5)
    assert await crew.epochs() == (5, 4)
    await rig.announce(crew, crew.pods["train-a-0", 0], 6)
    assert (await crew.condition("Failed"))["reason"] == "ReachedMaxRestarts"


@pytest.mark.parametrize("peers_first", [False, True])
async def test_a_dead_pods_job_decides_before_max_restarts(rig: Rig, peers_first: bool) -> None:
    """With no restart left a worker's exit does not fail the JobSet; its Job's failure goes through the rules."""
    rule = {"action": RESTART_UNCOUNTED, "onJobFailureReasons": ["PodFailurePolicy"]}
    crew = await rig.started(with_rules(rule, strategy=wire.IN_PLACE_RESTART, restarts_max=0))
    dead = crew.pods["train-a-0", 0]
    await rig.set_worker(crew, dead, exit_code=42)
    if peers_first:
        await crew.announce_all(2, set(crew.pods.values()) - {dead})
    await crew.set_phase(dead, "Failed")
    await rig.settle()
    assert await crew.find_condition("Failed") is None
    await rig.finish_job(crew, "train-a-0", "Failed", reason="PodFailurePolicy")
    status = await crew.status()
    assert (status["restarts"], status.get("restartsCountTowardsMax")) == (1, None)
    assert "terminalState" not in status
