"""The escalation at work: the whole controller, windows in virtual time, other leaders, recreations."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.worker_failure import WorkerFailure, failure_text
from tests.common.kube.answers import refusal
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


def climbing(escalation: str, *, restarts_max: int = 10, **options: Any) -> KubeObject:
    """Return a JobSet with an escalation."""
    annotations = {wire.ESCALATION: escalation, wire.FAILURES: "backoff=0"}
    return jobset(restarts_max=restarts_max, annotations=annotations, **options)


async def fail_one(rig: Rig, crew: Crew) -> None:
    """Let one worker fail: its Pod announces the next epoch, then the others."""
    synced, _ = await crew.epochs()
    await rig.announce(crew, next(iter(crew.pods.values())), synced + 1, 0.1)
    if (await crew.status()).get("terminalState") is None:
        await rig.meet(crew, synced + 1, 0.1)
    if (await crew.epochs())[0] == synced:  # the end of a JobSet waits for words that come late
        await rig.settle(0.5)


async def steps(crew: Crew) -> list[str]:
    """Return the steps of the uses that the status holds."""
    return [use["escalationStep"] for use in (await crew.status()).get(wire.ESCALATION_USES, [])]


async def failed_reason(crew: Crew) -> str | None:
    """Return why the JobSet failed; None while it did not."""
    condition = await crew.find_condition("Failed")
    return condition["reason"] if condition is not None else None


async def test_without_the_annotation_nothing_is_written(rig: Rig) -> None:
    """No field of the status, no Event."""
    crew = await rig.started(jobset())
    await fail_one(rig, crew)
    status = await crew.status()
    assert wire.ESCALATION_USES not in status
    assert "escalationStep" not in status[wire.LAST_GROUP_RESTART]
    assert await rig.events("EscalationStep") == []


async def test_a_window_without_room_ends_the_jobset(rig: Rig) -> None:
    """The third failure in 100 s ends it; the two status writes of a restart stay two."""
    crew = await rig.started(climbing("InPlace=2,window=100"))
    before = rig.writes("/jobsets/train/status")
    await fail_one(rig, crew)
    await rig.settle(30.0)
    await fail_one(rig, crew)
    assert rig.writes("/jobsets/train/status") == before + 4
    assert await steps(crew) == ["InPlace", "InPlace"]
    assert (await crew.status())[wire.LAST_GROUP_RESTART]["escalationStep"] == "InPlace"
    await rig.settle(30.0)
    await fail_one(rig, crew)
    assert await failed_reason(crew) == "RestartLimitExceeded"
    assert (await crew.condition("Failed"))["message"] == (
        "jobset failed: no step of its escalation had room: InPlace 2 times in 100 s"
    )
    assert await crew.epochs() == (3, 3)
    for step, uses in (("InPlace", 2), ("Fail", 1)):
        assert rig.sample("inplace_escalation_steps_total", namespace="default", jobset="train", step=step) == uses
    assert "use 1 of 2 in 100 s" in (await rig.events("EscalationStep"))[0]["note"]


@pytest.mark.slow
async def test_a_window_that_has_passed_is_forgotten(rig: Rig) -> None:
    """Twice in 100 s is allowed again and again; the status holds no more than the step allows."""
    crew = await rig.started(climbing("InPlace=2,window=100"))
    for _ in range(6):
        await fail_one(rig, crew)
        await rig.settle(60.0)
        assert len(await steps(crew)) <= 2
    assert await failed_reason(crew) is None
    assert (await crew.epochs())[0] == 7


async def test_another_leader_forgets_no_use(rig: Rig) -> None:
    """The window goes on where the former controller left it, also in the middle of a restart."""
    crew = await rig.started(climbing("InPlace=2,window=1000"))
    await fail_one(rig, crew)
    await rig.announce(crew, next(iter(crew.pods.values())), 3, 0.1)
    assert await steps(crew) == ["InPlace", "InPlace"]
    await rig.change_controller()
    await rig.settle(20.0)
    await rig.meet(crew, 3, 0.1)
    assert await crew.epochs() == (3, 2)
    assert await steps(crew) == ["InPlace", "InPlace"]
    await fail_one(rig, crew)
    assert await failed_reason(crew) == "RestartLimitExceeded"


@pytest.mark.slow
async def test_a_restart_that_nobody_saw_begin_is_counted() -> None:
    """All Pods announced before the controller looked: S grows in one write, which has the use, or fails."""
    rig = Rig()
    async with rig.running():
        crew = await rig.started(climbing("InPlace=1,window=1000"))
    for epoch, synced in ((2, 2), (3, 2)):
        await crew.announce_all(epoch)
        async with rig.running(rig.controller()):
            await rig.settle(20.0)
            assert (await crew.epochs())[0] == synced
    assert await failed_reason(crew) == "RestartLimitExceeded"


@pytest.mark.slow
async def test_a_request_takes_no_place(rig: Rig) -> None:
    """What maxRestarts does not count, the escalation does not count."""
    crew = await rig.started(climbing("InPlace=1,window=1000"))
    for epoch in (2, 3, 4):
        await rig.annotate({wire.RESTART_REQUESTED: f"request-{epoch}"}, 0.1)
        await rig.meet(crew, epoch, 0.1)
        assert (await crew.epochs())[0] == epoch
    assert await steps(crew) == []


@pytest.mark.slow
async def test_max_restarts_goes_on_to_bound_everything(rig: Rig) -> None:
    """A restart beyond maxRestarts takes no place, and fails as it did."""
    crew = await rig.started(climbing("InPlace=60,RecreateJobs=4,window=1000", restarts_max=1))
    await fail_one(rig, crew)
    await fail_one(rig, crew)
    assert await failed_reason(crew) == "ReachedMaxRestarts"
    assert await steps(crew) == ["InPlace"]
    assert (await crew.status())["restarts"] == 0
    assert "saw 64; maxRestarts ends" in (await crew.condition("SpecProblem"))["message"]


async def test_recreate_jobs_is_counted_once(rig: Rig) -> None:
    """The second failure recreates every Job; maxRestarts and the escalation count it once each."""
    crew = await rig.started(climbing("InPlace=1,RecreateJobs=1,window=1000", restarts_max=3))
    await fail_one(rig, crew)
    jobs = await crew.job_uids()
    await rig.announce(crew, next(iter(crew.pods.values())), 3, 0.1)
    status = await crew.status()
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
    assert await crew.epochs() == (2, 2)
    assert (status[wire.EXEMPT_EPOCHS], status[wire.LAST_EXEMPT_EPOCH]) == (1, 3)
    assert await steps(crew) == ["InPlace", "RecreateJobs"]
    assert (await crew.condition("RestartingJobSet"))["reason"] == "Escalation"
    await renew(rig, crew)
    made = await crew.jobs()
    assert made.keys() == jobs.keys()
    assert all(job["metadata"]["uid"] != jobs[name] for name, job in made.items())
    await rig.meet(crew, 3, 0.1)
    assert await crew.epochs() == (3, 2)
    assert rig.sample("inplace_restart_budget_remaining", namespace="default", jobset="train") == 1
    await fail_one(rig, crew)
    assert await failed_reason(crew) == "RestartLimitExceeded"


async def test_recreate_job_is_counted_once_and_leaves_the_others(rig: Rig) -> None:
    """The Job of the Pod that failed first is made anew; the Pods of the other one stay, and wait for it."""
    racks = [replicated_job(pods=2, replicas=2)]
    crew = await rig.started(climbing("RecreateJob=1,window=1000", restarts_max=3, jobs=racks))
    jobs = await crew.job_uids()
    rack, other = sorted(jobs)
    await rig.set_worker(crew, crew.pods[rack, 0], 0.1, exit_code=7)
    status = await crew.status()
    (counters,) = status["replicatedJobsStatus"]
    assert (counters["jobRestarts"], counters["jobRestartsCountTowardsMax"]) == ([1, 0], [1, 0])
    assert (await crew.epochs(), status["restarts"]) == ((1, 1), 0)
    assert (status[wire.EXEMPT_EPOCHS], status[wire.LAST_EXEMPT_EPOCH]) == (1, 2)
    assert f"job {rack} is recreated" in (await rig.events("EscalationStep"))[0]["note"]
    await crew.announce_all(2, [pod for (job, _), pod in crew.pods.items() if job == other])
    await renew(rig, crew)
    made = await crew.job_uids()
    assert (made[other], made[rack] == jobs[rack]) == (jobs[other], False)
    assert await crew.epochs() == (1, 1)
    await rig.meet(crew, 2, 0.1)
    assert await crew.epochs() == (2, 1)
    assert rig.sample("inplace_restart_budget_remaining", namespace="default", jobset="train") == 2
    assert await steps(crew) == ["RecreateJob"]
    await fail_one(rig, crew)
    assert await failed_reason(crew) == "RestartLimitExceeded"


@pytest.mark.parametrize("is_lost", [False, True], ids=["a hang", "a lost Pod"])
async def test_a_job_that_is_not_to_blame_is_not_recreated(rig: Rig, *, is_lost: bool) -> None:
    """Who tells of a hang first is as likely healthy, and a lost Pod has a replacement: all restart in place."""
    crew = await rig.started(climbing("RecreateJob=1,window=1000", jobs=[replicated_job(pods=1, replicas=2)]))
    jobs = await crew.job_uids()
    slot, first = next(iter(crew.pods.items()))
    if is_lost:
        await crew.remove(first)
        await crew.replace(*slot)
    else:
        told = failure_text(WorkerFailure(1, None, rig.clock.wall_s(), stalled_s=9))
        await crew.annotate(first, {wire.WORKER_FAILED: told})
    await rig.settle(0.1)
    await rig.meet(crew, 2, 0.1)
    assert await crew.epochs() == (2, 1)
    assert await crew.job_uids() == jobs
    assert "all restart in place" in (await rig.events("EscalationStep"))[0]["note"]
    assert rig.sample("inplace_restart_budget_remaining", namespace="default", jobset="train") == 9


def with_rule(escalation: str, action: str) -> KubeObject:
    """Return a JobSet whose Jobs' failures have an action."""
    rules = [{"name": "all", "action": action}]
    return climbing(escalation, jobs=[replicated_job(pods=1, replicas=2)], rules=rules)


async def renew(rig: Rig, crew: Crew) -> None:
    """Make the Pods of the new Jobs; those of the old ones are collected as garbage."""
    await rig.settle()
    there = {pod["metadata"]["name"] for pod in (await rig.admin.list(PODS, "default"))["items"]}
    crew.pods = {slot: pod for slot, pod in crew.pods.items() if pod in there}
    await crew.make_pods()


@pytest.mark.parametrize(
    ("action", "kept"),
    [("RestartJob", ["InPlace"]), ("RestartJobAndIgnoreMaxRestarts", [])],
)
async def test_a_failed_job_is_the_same_failure_as_its_workers_death(rig: Rig, action: str, kept: list[str]) -> None:
    """A worker dies and takes a place; then its Job fails: counted, it stays one use, uncounted, none."""
    crew = await rig.started(with_rule("InPlace=1,window=1000", action))
    (job, _), pod = next(iter(crew.pods.items()))
    await rig.set_worker(crew, pod, 0.1, exit_code=1)
    assert await steps(crew) == ["InPlace"]
    await rig.finish_job(crew, job, "Failed", 0.1, reason="PodFailurePolicy")
    assert await steps(crew) == kept
    await renew(rig, crew)
    await rig.meet(crew, 2)
    assert await crew.epochs() == (2, 1)
    assert await failed_reason(crew) is None
    assert await steps(crew) == kept


@pytest.mark.slow
async def test_a_death_without_a_step_waits_for_its_job_to_decide(rig: Rig) -> None:
    """The window is full when a worker dies; its Job then fails under a rule that does not count: nothing fails."""
    crew = await rig.started(with_rule("InPlace=1,window=1000", "RestartJobAndIgnoreMaxRestarts"))
    await fail_one(rig, crew)
    for pod in crew.pods.values():
        await crew.set_worker(pod, run=2)
    await rig.settle(0.1)
    (job, _), pod = next(iter(crew.pods.items()))
    await rig.set_worker(crew, pod, 0.1, run=2, exit_code=1)
    assert await crew.epochs() == (2, 2)
    assert await steps(crew) == ["Fail", "InPlace"] or await steps(crew) == ["InPlace", "Fail"]
    assert await failed_reason(crew) is None
    await crew.finish_job(job, "Failed", reason="PodFailurePolicy")
    await renew(rig, crew)
    await rig.meet(crew, 3)
    assert await crew.epochs() == (3, 2)
    assert await failed_reason(crew) is None
    assert await steps(crew) == ["InPlace"]


@pytest.mark.slow
async def test_a_failed_job_takes_the_step_recreate_jobs(rig: Rig) -> None:
    """A rule that restarts one Job is widened to all, and counted once."""
    crew = await rig.started(with_rule("RecreateJobs=1,window=1000", "RestartJob"))
    (job, _) = next(iter(crew.pods))
    await rig.finish_job(crew, job, "Failed", 0.1, reason="PodFailurePolicy")
    status = await crew.status()
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
    assert await steps(crew) == ["RecreateJobs"]
    await renew(rig, crew)
    (job, _) = next(iter(crew.pods))
    await rig.finish_job(crew, job, "Failed", 0.1, reason="PodFailurePolicy")
    assert await failed_reason(crew) == "RestartLimitExceeded"


@pytest.mark.slow
async def test_scopes_share_one_escalation(rig: Rig) -> None:
    """The windows count the failures of all scopes; a use names its own."""
    manifest = climbing("InPlace=2,window=1000", jobs=[replicated_job("left", pods=1), replicated_job("right", pods=1)])
    manifest["metadata"]["annotations"][wire.RESTART_SCOPE] = "ReplicatedJob"
    crew = await rig.started(manifest)
    left, right = crew.pods.values()
    for pod, epoch in ((left, 2), (right, 2)):
        await rig.announce(crew, pod, epoch, 0.1)
    uses = (await crew.status())[wire.ESCALATION_USES]
    assert [(use["escalationStep"], use["scope"]) for use in uses] == [("InPlace", "left"), ("InPlace", "right")]
    await rig.announce(crew, left, 3)
    assert await failed_reason(crew) == "RestartLimitExceeded"


@pytest.mark.slow
async def test_the_annotation_may_change_at_any_time(rig: Rig) -> None:
    """A wider window, garbage or its removal act on the next failure; nothing fails in between."""
    crew = await rig.started(climbing("InPlace=1,window=1000"))
    await fail_one(rig, crew)
    for epoch, escalation in ((3, "InPlace=2,window=1000"), (4, "garbage"), (5, None)):
        await rig.annotate({wire.ESCALATION: escalation}, 0.1)
        await fail_one(rig, crew)
        assert (await crew.epochs())[0] == epoch
        problem = await crew.find_condition("SpecProblem")
        assert (problem is not None and problem["status"] == "True") == (escalation == "garbage")


async def end(rig: Rig, crew: Crew, slot: tuple[str, int]) -> str:
    """Let kubelet end the Pod of a slot and its Job replace it; return the replacement."""
    await crew.set_phase(crew.pods[slot], "Failed")
    await rig.settle(0.1)
    return await crew.replace(*slot)


async def deadlines(rig: Rig) -> dict[str, int | None]:
    """Return activeDeadlineSeconds by Pod."""
    found = (await rig.admin.list(PODS, "default"))["items"]
    return {pod["metadata"]["name"]: pod["spec"].get("activeDeadlineSeconds") for pod in found}


@pytest.mark.parametrize("is_seen_early", [True, False])
async def test_replace_pod_ends_the_pod_that_failed_first(rig: Rig, is_seen_early: bool) -> None:
    """S waits for its replacement, whatever the old Pod announces; the others keep their Pods; one restart."""
    crew = await rig.started(climbing("ReplacePod=1,window=1000"))
    slots = list(crew.pods)
    first, other = crew.pods.values()
    if is_seen_early:
        await crew.set_worker(first, exit_code=7)
    else:
        await crew.announce(first, 2)
    await rig.settle(0.1)
    (use,) = (await crew.status())[wire.ESCALATION_USES]
    assert (use["escalationStep"], use["pod"], use["epoch"]) == ("ReplacePod", first, 2)
    assert await deadlines(rig) == {first: 1, other: None}
    await rig.meet(crew, 2, 5.0)
    assert await crew.epochs() == (1, 1)
    patches = rig.writes(f"/pods/{first}")
    new = await end(rig, crew, slots[0])
    await rig.settle(0.1)
    assert await crew.epochs() == (1, 1)
    await rig.announce(crew, new, 2, 0.1)
    assert await crew.epochs() == (2, 1)
    assert (rig.writes(f"/pods/{first}"), rig.writes(f"/pods/{other}"), rig.writes(f"/pods/{new}")) == (
        patches,
        0,
        0,
    )
    assert patches == 1
    assert f"pod {first} is replaced" in (await rig.events("EscalationStep"))[0]["note"]


@pytest.mark.slow
async def test_a_pod_is_replaced_although_all_announce_before_the_write_is_done(rig: Rig) -> None:
    """All announce while the write of D is on its way: S does not grow past the Pod that is to be replaced."""
    crew = await rig.started(climbing("ReplacePod=1,window=1000"))
    first, *_ = crew.pods.values()
    rig.latency_s = lambda request: 1.0 if request.path.endswith("/status") else 0.0
    await rig.meet(crew, 2, 3.0)
    assert await crew.epochs() == (1, 1)
    assert (await deadlines(rig))[first] == 1


async def test_a_controller_that_crashes_before_the_patch_lets_its_successor_do_it() -> None:
    """The use is in the status, so the next leader counts the Pod as leaving, and ends it."""
    rig = Rig()
    async with rig.running():
        crew = await rig.started(climbing("ReplacePod=1,window=1000"))
        first, other = crew.pods.values()
        rig.fault = lambda request: refused(request, first)
        await rig.announce(crew, first, 2, 0.5)
        assert (await deadlines(rig))[first] is None
    rig.fault = lambda _: None
    await crew.announce_all(2)
    async with rig.running(rig.controller()):
        await rig.settle(20.0)
        assert await deadlines(rig) == {first: 1, other: None}
        assert await crew.epochs() == (1, 1)
        assert len((await crew.status())[wire.ESCALATION_USES]) == 1


def refused(request: Request, pod: str) -> Response | None:
    """Refuse to patch one Pod."""
    return refusal(403, "Forbidden") if request.path.split("?")[0].endswith(f"/pods/{pod}") else None


@pytest.mark.slow
async def test_a_pod_that_cannot_be_patched_holds_nobody_up_for_long(rig: Rig) -> None:
    """Without the right to patch Pods the group restarts in place after a minute, and an Event says so."""
    crew = await rig.started(climbing("ReplacePod=1,window=1000"))
    first, _ = crew.pods.values()
    rig.fault = lambda request: refused(request, first)
    await rig.announce(crew, first, 2, 0.1)
    await rig.meet(crew, 2, 50.0)
    assert await crew.epochs() == (1, 1)
    await rig.settle(30.0)
    assert await crew.epochs() == (2, 1)
    (use,) = (await crew.status())[wire.ESCALATION_USES]
    assert (use["escalationStep"], use.get("pod")) == ("ReplacePod", None)
    assert first in (await rig.events("PodNotReplaced"))[0]["note"]
    assert await rig.events("PodReplacementFailed")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["lost", "stalled"])
async def test_where_nobody_is_to_blame_the_step_restarts_in_place(rig: Rig, how: str) -> None:
    """A Pod that is gone has its replacement already; after a hang no Pod is known to be the one that hung."""
    crew = await rig.started(climbing("ReplacePod=1,window=1000"))
    slots = list(crew.pods)
    first, _ = crew.pods.values()
    if how == "lost":
        await crew.set_phase(first, "Failed")
        await rig.settle(0.1)
        new = await crew.replace(*slots[0])
        await crew.announce(new, 2)
    else:
        told = "v1,epoch=1,stalled=9,at=1700000000000"
        await crew.annotate(first, {wire.WORKER_FAILED: told})
    await rig.settle(0.1)
    await rig.meet(crew, 2, 0.1)
    assert await crew.epochs() == (2, 1)
    assert set((await deadlines(rig)).values()) == {None}
    assert await steps(crew) == ["ReplacePod"]
    assert "all restart in place" in (await rig.events("EscalationStep"))[0]["note"]
