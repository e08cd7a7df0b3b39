"""A waiting barrier reports the missing Pods and why, rarely; its deadline reports them, or recreates their Jobs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inplace.common.jobset.kinds import Job
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.tracking.missing_slots import shortened, why_absent
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.objects import lone_pod
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

NOWHERE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/8 nodes are available: 8 Insufficient google.com/tpu. preemption: 0/8 nodes are available.",
}


def sample(rig: Rig, name: str, **labels: str) -> float:
    """Return one sample of the controller about the JobSet."""
    return rig.sample(name, namespace="default", jobset="train", **labels)


async def stuck(rig: Rig, manifest: KubeObject) -> Crew:
    """Bring a group to a barrier at which the last Pod is missing: its replacement cannot be scheduled."""
    crew = await rig.started(manifest)
    *others, lost = crew.pods.values()
    await crew.remove(lost)
    replacement = await crew.replace("train-workers-0", len(others))
    await crew.set_pod(replacement, phase="Pending", conditions=[NOWHERE])
    await rig.meet(crew, 2, 0.1, pods=others)
    return crew


async def test_a_barrier_that_waits_says_for_whom_and_why(rig: Rig) -> None:
    """When a restart takes too long, the condition names the missing Pod and why, once, until all are there."""
    crew = await stuck(rig, jobset(jobs=[replicated_job(pods=3)]))
    assert await crew.epochs() == (1, 1)
    await rig.settle(14.0)
    assert await crew.find_condition("BarrierWaiting") is None
    assert sample(rig, "inplace_barrier_wait_seconds", scope="") == pytest.approx(14.1, abs=0.2)
    before = rig.writes("/jobsets/train/status")
    await rig.settle(2.0)
    condition = await crew.condition("BarrierWaiting")
    words = "2/3 at epoch 2; waiting for train-workers-0-2 (Pending: 8 Insufficient google.com/tpu)"
    assert (condition["status"], condition["message"]) == ("True", words)
    await rig.settle(200.0)
    assert rig.writes("/jobsets/train/status") == before + 1
    assert len(await rig.events("PodsMissing")) == 1
    assert sample(rig, "inplace_pods", scope="", state="waiting") == 2
    assert sample(rig, "inplace_pods", scope="", state="restarting") == 1
    await rig.meet(crew, 2, 0.1)
    assert await crew.epochs() == (2, 1)
    assert (await crew.condition("BarrierWaiting"))["status"] == "False"
    assert rig.writes("/jobsets/train/status") == before + 2
    assert sample(rig, "inplace_barrier_wait_seconds", scope="") == 0


async def test_other_words_are_written_at_most_every_half_minute(rig: Rig) -> None:
    """The condition changes at most every 30 s, because each write reaches every agent; it has at most ten names."""
    crew = await rig.submit(jobset(jobs=[replicated_job(pods=40)]))
    await rig.settle(16.0)
    condition = await crew.condition("BarrierWaiting")
    assert condition["message"].startswith("0/40 at epoch 1; waiting for train-workers-0-0 (no pod), ")
    assert condition["message"].endswith("train-workers-0-9 (no pod), 30 more")
    before = rig.writes("/jobsets/train/status")
    for index in range(30):
        await rig.announce(crew, await crew.replace("train-workers-0", index), 1, 2.0)
    assert 2 <= rig.writes("/jobsets/train/status") - before <= 3
    assert len(await rig.events("PodsMissing")) == 1


@pytest.mark.parametrize("action", [None, "Event", "RecreateJobs"])
async def test_the_deadline_of_a_barrier(rig: Rig, action: str | None) -> None:
    """The deadline makes an Event and a metric; with RecreateJobs it recreates the missing Pod's Job, uncounted."""
    wanted = {wire.BARRIER: "60" if action is None else f"deadline=60,action={action}"}
    crew = await stuck(rig, jobset(jobs=[replicated_job(pods=3)], annotations=wanted))
    (before,) = (await crew.jobs()).values()
    await rig.settle(58.0)
    assert await rig.events("BarrierDeadlineExceeded") == []
    await rig.settle(4.0)
    (event,) = await rig.events("BarrierDeadlineExceeded")
    assert "no sync within 60 s: 2/3 at epoch 2; waiting for train-workers-0-2 (Pending" in event["note"]
    assert sample(rig, "inplace_barrier_deadline_exceeded_total") == 1
    (after,) = (await crew.jobs()).values()
    is_new = after["metadata"]["uid"] != before["metadata"]["uid"]
    assert is_new == (action == "RecreateJobs")
    assert sample(rig, "inplace_barrier_recreations_total") == is_new
    if is_new:
        crew.pods.clear()
        await crew.make_pods()
        await rig.meet(crew, 2, 0.1)
        assert await crew.epochs() == (2, 1)
        assert sample(rig, "inplace_restart_budget_remaining") == 2
    else:
        await rig.settle(60.0)
        assert sample(rig, "inplace_barrier_deadline_exceeded_total") == 2


@pytest.mark.parametrize(("annotations", "is_told"), [({}, True), ({wire.BARRIER: "0"}, False)])
async def test_ten_minutes_are_told_without_a_setting(rig: Rig, annotations: dict[str, str], *, is_told: bool) -> None:
    """An Event says it each time, and nothing else is done; 0 switches it off."""
    await stuck(rig, jobset(jobs=[replicated_job(pods=3)], annotations=annotations))
    await rig.settle(598.0)
    assert await rig.events("BarrierDeadlineExceeded") == []
    await rig.settle(604.0)
    assert sample(rig, "inplace_barrier_deadline_exceeded_total") == 2 * is_told
    assert len(await rig.events("BarrierDeadlineExceeded")) == 2 * is_told


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({wire.BARRIER: "soon"}, "expected an integer from 0 to 604800, saw 'soon'; an Event says so each time"),
        ({wire.BARRIER: "deadline=9,action=Panic"}, "barrier].action: expected Event or RecreateJobs, saw 'Panic'"),
        ({wire.STALL: "soon"}, "[inplace.dev/stall].after: expected seconds from 0.5 to 604800, or 0 for off"),
        ({wire.STALL: "start=-1"}, "saw '-1'; the agents leave their limits as they were; correct it"),
        ({wire.RESTART_REQUESTED: "no spaces"}, "nothing is restarted"),
        ({wire.RESTART_REQUESTED: ""}, "expected an id of 1 to 63"),
        ({wire.RESTART_REQUESTED: "x" * 64}, "expected an id of 1 to 63"),
    ],
)
async def test_what_cannot_be_read_is_a_problem_of_the_spec(rig: Rig, annotations: dict[str, str], words: str) -> None:
    """An unreadable deadline is a SpecProblem with the expected and seen value; the group runs on."""
    crew = await rig.started(jobset())
    await rig.annotate(annotations, 0.1)
    assert words in (await crew.condition("SpecProblem"))["message"]
    assert await crew.epochs() == (1, 0)


def waiting(reason: str, name: str = "worker") -> KubeObject:
    """Return the status of a container that waits."""
    return {"name": name, "state": {"waiting": {"reason": reason}}}


JOB = msgspec.convert({"metadata": {"name": "j", "uid": "j", "resourceVersion": "1"}}, Job)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"spec": {"schedulingGates": [{"name": "kueue"}]}}, "Pending: scheduling gate kueue"),
        ({"status": {"conditions": [NOWHERE]}}, "Pending: 8 Insufficient google.com/tpu"),
        ({}, "Pending: not scheduled yet"),
        (
            {"spec": {"nodeName": "n"}, "status": {"containerStatuses": [waiting("ImagePullBackOff")]}},
            "Pending: ImagePullBackOff of container worker on n",
        ),
        (
            {
                "spec": {"nodeName": "n"},
                "status": {
                    "initContainerStatuses": [waiting("PodInitializing", "first"), waiting("ErrImagePull", "agent")],
                    "containerStatuses": [waiting("PodInitializing")],
                },
            },
            "Pending: ErrImagePull of container agent on n",
        ),
        ({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}, "Running on n: has announced nothing"),
        (
            {"metadata": {"annotations": {wire.EPOCH: "6"}}, "status": {"phase": "Running"}},
            "Running: announced epoch 6",
        ),
        ({"metadata": {"annotations": {wire.EPOCH: "x"}}, "status": {"phase": "Running"}}, "cannot be read"),
        ({"metadata": {"deletionTimestamp": "now"}, "spec": {"nodeName": "n"}}, "Terminating on n"),
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, "Failed: Evicted"),
    ],
)
def test_why_a_slot_is_not_there(parts: dict[str, Any], words: str) -> None:
    """The reason for a missing slot is a short text from its Pod's status."""
    assert words in why_absent(JOB, [lone_pod(**parts)], {})


def test_why_a_slot_without_a_pod_is_not_there() -> None:
    """The reason for a slot without a Pod comes from its Job, or is the missing Job."""
    leaving = msgspec.convert(
        {"metadata": {"name": "j", "uid": "j", "resourceVersion": "1", "deletionTimestamp": "now"}}, Job
    )
    assert why_absent(None, [], {}) == "its job does not exist"
    assert why_absent(JOB, [], {}) == "no pod"
    assert why_absent(leaving, [], {}) == "no pod: its job is being deleted"
    assert why_absent(JOB, [lone_pod(), lone_pod()], {}) == "2 pods, of which one must go first"


def test_a_message_of_another_scheduler_is_kept() -> None:
    """Another scheduler's message is shown up to the end of its first sentence."""
    assert shortened("no quota for you. Ask later.") == "no quota for you"


def test_a_pod_that_runs_keeps_no_conditions() -> None:
    """The conditions of running Pods are not kept in memory."""
    fine = {"type": "PodScheduled", "status": "True"}
    ready = {"name": "agent", "state": {"running": {}}}
    status = lone_pod(status={"conditions": [fine], "initContainerStatuses": [ready]}).status
    assert (status.conditions, status.init_container_statuses) == (None, None)


@pytest.mark.parametrize(
    ("announced", "words"),
    [
        (7, "announced an epoch that the group has not reached; if this stays, delete it"),
        (1, "announced an epoch that had begun without it; the group restarts"),
    ],
)
async def test_a_pod_that_holds_the_barrier_up_is_named_with_what_to_do(rig: Rig, announced: int, words: str) -> None:
    """A Pod that is ahead, or that joined an epoch too late, is named beside those that are missing."""
    crew = await rig.started(jobset(jobs=[replicated_job(pods=3)]))
    first, second, _ = crew.pods.values()
    await crew.remove(first)
    new = await crew.replace("train-workers-0", 0)
    await crew.announce(new, announced)
    await rig.announce(crew, second, 2, 30.0)
    assert await crew.epochs() == (1, 1)
    condition = await crew.condition("BarrierWaiting")
    assert condition["message"].startswith("1/3 at epoch 2; waiting for ")
    assert condition["message"].endswith(f", pod {new} ({words})")


async def test_a_deadline_shorter_than_a_pods_start_is_no_storm() -> None:
    """A deadline of 1 s recreates Jobs at once, then 300 and 600 s later, whichever controller leads."""
    rig = Rig()
    wanted = {wire.BARRIER: "deadline=1,action=RecreateJobs"}
    manifest = jobset(restarts_max=0, jobs=[replicated_job(replicas=5, pods=1)], annotations=wanted)
    crew: Crew | None = None
    for seconds, rounds in ((100.0, 1), (150.0, 1), (100.0, 2), (500.0, 2), (150.0, 3)):
        async with rig.running(rig.controller(leader_elect=False)):
            crew = crew or await rig.submit(manifest)
            await rig.settle(seconds)
            assert (await crew.status())[wire.RECREATIONS]["rounds"] == rounds
            deleted = sum(sent.method == "DELETE" and "/jobs/train-" in sent.path for sent in rig.requests)
            assert deleted == 5 * rounds
            assert await crew.find_condition("Failed") is None


async def test_a_lost_pod_without_room_is_waited_for_while_its_epoch_runs(rig: Rig) -> None:
    """A replacement that finds no node is a restart under way, by condition, Event and metric, until it joins."""
    crew = await rig.started(jobset(jobs=[replicated_job(pods=3)]))
    assert sample(rig, "inplace_restart_in_progress", scope="") == 0
    *others, lost = crew.pods.values()
    await crew.remove(lost)
    replacement = await crew.replace("train-workers-0", len(others))
    await crew.set_pod(replacement, phase="Pending", conditions=[NOWHERE])
    await rig.settle(14.0)
    assert await crew.find_condition("BarrierWaiting") is None
    assert sample(rig, "inplace_restart_in_progress", scope="") == 1
    before = rig.writes("/jobsets/train/status")
    await rig.settle(3.0)
    assert await crew.epochs() == (1, 0)
    condition = await crew.condition("BarrierWaiting")
    words = "2/3 at epoch 1; waiting for train-workers-0-2 (Pending: 8 Insufficient google.com/tpu)"
    assert (condition["status"], condition["message"]) == ("True", words)
    await rig.settle(200.0)
    assert rig.writes("/jobsets/train/status") == before + 1
    assert len(await rig.events("PodsMissing")) == 1
    assert sample(rig, "inplace_barrier_wait_seconds", scope="") == pytest.approx(217, abs=2)
    await rig.meet(crew, 2, 0.1)
    assert await crew.epochs() == (2, 1)
    assert (await crew.condition("BarrierWaiting"))["status"] == "False"
    assert sample(rig, "inplace_restart_in_progress", scope="") == 0


@pytest.mark.parametrize("action", ["Event", "RecreateJobs"])
async def test_the_deadline_holds_for_a_lost_pod(rig: Rig, action: str) -> None:
    """The peers of a lost Pod run on and wait for it: its deadline makes an Event, or recreates its Job alone."""
    wanted = {wire.BARRIER: f"deadline=60,action={action}"}
    crew = await rig.started(jobset(jobs=[replicated_job(replicas=2, pods=2)], annotations=wanted))
    before = {name: job["metadata"]["uid"] for name, job in (await crew.jobs()).items()}
    await crew.remove(list(crew.pods.values())[-1])
    await rig.settle(58.0)
    assert await rig.events("BarrierDeadlineExceeded") == []
    await rig.settle(4.0)
    (event,) = await rig.events("BarrierDeadlineExceeded")
    assert "no sync within 60 s: 3/4 at epoch 1; waiting for train-workers-1-1 (no pod)" in event["note"]
    after = {name: job["metadata"]["uid"] for name, job in (await crew.jobs()).items()}
    new = {name for name, uid in after.items() if uid != before[name]}
    assert new == ({"train-workers-1"} if action == "RecreateJobs" else set())


@pytest.mark.parametrize("restarts", [False, True], ids=["it ran", "it restarted"])
async def test_a_suspended_jobset_waits_for_nobody(rig: Rig, restarts: bool) -> None:
    """Its Pods are gone on purpose: no restart is in progress, so no alert tells of Pods that are missing."""
    crew = await rig.started(jobset(jobs=[replicated_job(pods=3)]))
    first, *others = crew.pods.values()
    if restarts:
        await rig.announce(crew, first, 2)
        assert sample(rig, "inplace_restart_in_progress", scope="") == 1
    await rig.edit({"spec": {"suspend": True}})
    for pod in (first, *others):
        await crew.remove(pod)
    await rig.settle(60.0)
    assert sample(rig, "inplace_pods", scope="", state="missing") == 3
    assert sample(rig, "inplace_restart_in_progress", scope="") == 0
    assert await crew.find_condition("BarrierWaiting") is None


async def test_a_pod_that_completed_is_not_waited_for(rig: Rig) -> None:
    """At a healthy end ranks complete one after the other: nothing waits, and no restart is under way."""
    crew = await rig.started(jobset(jobs=[replicated_job(pods=3)]))
    *_, done = crew.pods.values()
    await crew.set_pod(done, phase="Succeeded")
    await rig.settle(60.0)
    assert await crew.find_condition("BarrierWaiting") is None
    assert sample(rig, "inplace_restart_in_progress", scope="") == 0


async def test_a_lost_pod_that_nothing_replaces_is_told_without_another_event(rig: Rig) -> None:
    """No event follows the loss: the controller looks again by itself once the patience is over."""
    crew = await rig.started(jobset(jobs=[replicated_job(pods=3)]))
    await rig.settle(60.0)
    await crew.remove(list(crew.pods.values())[-1])
    await rig.settle(16.0)
    assert (await crew.condition("BarrierWaiting"))[
        "message"
    ] == "2/3 at epoch 1; waiting for train-workers-0-2 (no pod)"
