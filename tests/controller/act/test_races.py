"""Any change in any phase of a group restart: the group converges, or a condition says why not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import pytest
from structlog.testing import capture_logs

from inplace.common.kube.resources import JOBS, JOBSETS, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES, KubeObject
from inplace.common.wire import names as wire
from tests.common.kube.answers import refusal
from tests.controller.crew import Crew, exists
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.player import FOUR, PHASES, Player
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

JOB = "train-workers-0"
POD_SPEC: KubeObject = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
FOREIGN: KubeObject = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": JOB, "labels": {wire.JOBSET_NAME: "train"}},
    "spec": {"template": {"spec": POD_SPEC}},
}


@asynccontextmanager
async def playing(rig: Rig, manifest: KubeObject = FOUR) -> AsyncIterator[Player]:
    """Run one controller with one JobSet; check at the end that it logged no unexpected error."""
    with capture_logs() as logs:
        async with rig.running(rig.controller(leader_elect=False)):
            yield Player(rig, await rig.submit(deepcopy(manifest)))
            await rig.settle(30.0)
    assert [entry for entry in logs if entry.get("exc_info") or "unexpected" in entry["event"]] == []


async def suspend_and_resume(rig: Rig, player: Player) -> None:
    """Suspend the JobSet, let its Pods go, and resume it."""
    await rig.edit({"spec": {"suspend": True}}, 0.0)
    await player.turn()
    assert (await player.crew.condition("Suspended"))["status"] == "True"
    await rig.edit({"spec": {"suspend": False}}, 0.0)


async def resize(rig: Rig, player: Player, pods: int) -> None:
    """Give every Job another size."""
    jobs = (await player.crew.jobset())["spec"]["replicatedJobs"]
    for job in jobs:
        job["template"]["spec"] |= {"parallelism": pods, "completions": pods}
    await rig.edit({"spec": {"replicatedJobs": jobs}}, 0.0)


async def edit_jobset(rig: Rig, player: Player, how: str) -> None:
    """Edit the JobSet in one of the ways that admission allows."""
    match how:
        case "suspend":
            await suspend_and_resume(rig, player)
        case "grow":
            await resize(rig, player, 3)
        case "shrink":
            await resize(rig, player, 1)
        case "ttl":
            await rig.edit({"spec": {"ttlSecondsAfterFinished": 0}}, 0.0)
        case "coordinator":
            await rig.edit({"spec": {"coordinator": {"replicatedJob": "workers"}}}, 0.0)
        case "metadata":
            await rig.edit({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("how", ["suspend", "grow", "shrink", "ttl", "coordinator", "metadata"])
async def test_a_jobset_may_be_edited_in_every_phase(how: str, phase: str) -> None:
    """After an edit in any phase the group runs at its new size, and the edit uses up no restart."""
    rig = Rig()
    restarts_max = 0 if phase in ("forming", "running") else 1
    async with playing(rig, changed(FOUR, "spec.failurePolicy.maxRestarts", restarts_max)) as player:
        await player.bring(phase)
        await edit_jobset(rig, player, how)
        await player.play()
        status = await player.crew.status()
        assert "terminalState" not in status
        assert len(player.crew.pods) == {"grow": 6, "shrink": 2}.get(how, 4)
        (entry,) = status["replicatedJobsStatus"]
        assert "jobRestarts" not in entry
        assert status["restarts"] == 0


async def disturb_job(rig: Rig, how: str) -> None:
    """Change a Job of ours as an administrator could by mistake."""
    garbage = {wire.RESTART_ATTEMPT: "x", wire.JOB_INDEX: "y", wire.JOBSET_NAME: "z", wire.JOBSET_UID: None}
    patches: dict[str, KubeObject] = {
        "relabelled": {"metadata": {"labels": garbage}},
        "garbled": {"metadata": {"labels": garbage, "annotations": garbage}},
        "resized": {"spec": {"parallelism": 3, "completions": 3}},
        "suspended": {"spec": {"suspend": True}},
        "orphaned": {"metadata": {"ownerReferences": None}},
    }
    if how in patches:
        await rig.admin.patch(JOBS, "default", JOB, patches[how])
    else:
        await rig.admin.delete(JOBS, "default", JOB, propagation=how)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    "how", ["relabelled", "garbled", "resized", "suspended", "orphaned", "Foreground", "Background", "Orphan"]
)
async def test_a_job_of_ours_may_be_changed_by_hand_in_every_phase(how: str, phase: str) -> None:
    """The Job is changed back or created anew; when its name is taken, a Warning says so and the controller waits."""
    rig = Rig()
    async with playing(rig) as player:
        await player.bring(phase)
        before = await player.crew.job_uids()
        await disturb_job(rig, how)
        await rig.settle(5.0)
        if how == "orphaned":
            (event,) = await rig.events("JobCreationFailed")
            assert f"job {JOB} exists and is not of this jobset" in event["note"]
            await rig.admin.delete(JOBS, "default", JOB)
            await rig.settle(60.0)
        await player.play()
        after = await player.crew.job_uids()
        is_kept = how in ("resized", "suspended")
        assert "train-workers-1" in after
        assert how == "relabelled" or (after[JOB] == before[JOB]) == is_kept
        assert len(player.crew.pods) == 4
        assert len(await rig.events("UnreadableJob")) == (how == "garbled")


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("propagation", ["Foreground", "Background", "Orphan"])
async def test_a_jobset_may_be_deleted_in_every_phase(propagation: str, phase: str) -> None:
    """A deleted JobSet gets no write, its objects go or stay by policy, and a new JobSet can have its name at once."""
    rig = Rig()
    async with playing(rig) as player:
        await player.bring(phase)
        old = await player.pods()
        await rig.admin.delete(JOBSETS, "default", "train", propagation=propagation)
        await rig.settle(0.2)
        writes = len([request for request in rig.requests if request.method != "GET"])
        for pod in old.values():
            if await exists(rig.admin, PODS, "default", pod):
                await player.crew.announce(pod, 2)
        await rig.settle(20.0)
        later = [r.path for r in rig.requests if r.method != "GET"][writes:]
        assert [path for path in later if "events" not in path and "leases" not in path] == []
        assert not await exists(rig.admin, JOBSETS, "default", "train")
        assert await exists(rig.admin, JOBS, "default", JOB) == (propagation == "Orphan")
        assert b'jobset="train"' not in rig.controllers[0].metrics.text()
        asked = len(rig.requests)
        again = Player(rig, await rig.submit(deepcopy(FOUR)))
        if propagation == "Orphan":
            assert not [r for r in rig.requests[asked:] if r.method == "POST" and "/jobs" in r.path]  # it sees the Jobs
            (event,) = await rig.events("JobCreationFailed")
            assert "exists and is not of this jobset" in event["note"]
            for job in (JOB, "train-workers-1"):
                await rig.admin.delete(JOBS, "default", job)
            await rig.settle(60.0)
        await again.play()
        assert await again.crew.epochs() == (1, 0)
        new = await again.pods()
        assert not old.keys() & {uid for uid, pod in new.items() if pod in again.crew.pods.values()}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("propagation", ["Foreground", "Background"])
async def test_a_namesake_that_follows_at_once_counts_no_pod_of_the_old_one(propagation: str, phase: str) -> None:
    """A new JobSet of the same name begins at epoch 1 with its own Pods, while old Pods still announce."""
    rig = Rig()
    async with playing(rig) as player:
        await player.bring(phase)
        old = await player.pods()
        await rig.admin.delete(JOBSETS, "default", "train", propagation=propagation)
        while await exists(rig.admin, JOBSETS, "default", "train"):
            await rig.settle(0.01)
        await rig.admin.create(JOBSETS, "default", deepcopy(FOUR))
        for pod in old.values():
            if await exists(rig.admin, PODS, "default", pod):
                await player.crew.announce(pod, 3)
        again = Player(rig, Crew(rig.admin, "default", "train"))
        await again.play()
        assert await again.crew.epochs() == (1, 0)
        new = await again.pods()
        assert not old.keys() & {uid for uid, pod in new.items() if pod in again.crew.pods.values()}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_foreign_job_may_take_the_place_of_ours_and_leave_it(phase: str) -> None:
    """A foreign Job is never changed and a Warning names it; when it goes, ours is created and the group runs."""
    rig = Rig()
    async with playing(rig) as player:
        await player.bring(phase)
        rig.fault = lambda request: refusal(503, "ServiceUnavailable") if request.method == "POST" else None
        await rig.admin.delete(JOBS, "default", JOB)
        await rig.settle(0.1)
        await rig.admin.create(JOBS, "default", deepcopy(FOREIGN))
        rig.fault = lambda _: None
        await rig.settle(20.0)
        foreign = await rig.admin.get(JOBS, "default", JOB)
        assert "ownerReferences" not in foreign["metadata"]
        assert await rig.events("JobCreationFailed")
        await rig.admin.delete(JOBS, "default", JOB)
        await rig.settle(60.0)
        await player.play()
        assert len(player.crew.pods) == 4


@pytest.mark.parametrize("subdomain", [None, "net"])
async def test_a_foreign_service_serves_while_it_is_there(subdomain: str | None) -> None:
    """A foreign Service stays as it is; when it goes, ours is made within a second, with any subdomain."""
    rig = Rig()
    name = subdomain or "train"
    service: KubeObject = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {}}
    service["spec"] = {"clusterIP": "None", "selector": {"theirs": "yes"}}
    await rig.admin.create(SERVICES, "default", service)
    manifest = FOUR if subdomain is None else changed(FOUR, "spec.network", {"subdomain": subdomain})
    async with playing(rig, manifest) as player:
        await player.play()
        assert (await rig.admin.get(SERVICES, "default", name))["spec"]["selector"] == {"theirs": "yes"}
        await rig.admin.delete(SERVICES, "default", name)
        await rig.settle(1.0)
        ours = await rig.admin.get(SERVICES, "default", name)
        assert ours["spec"]["selector"] == {wire.JOBSET_NAME: "train"}
        await rig.admin.patch(SERVICES, "default", name, {"metadata": {"ownerReferences": None}})
        await rig.settle(1.0)
        await rig.admin.delete(SERVICES, "default", name)
        await rig.settle(1.0)
        assert await exists(rig.admin, SERVICES, "default", name)


async def test_a_foreign_claim_serves_and_is_compared() -> None:
    """A foreign claim is used and reported as different; when it goes, ours is made and the condition changes."""
    rig = Rig()
    claims = PERSISTENT_VOLUME_CLAIMS
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    policy = {"templates": [{"metadata": {"name": "cache"}, "spec": spec}]}
    manifest = changed(FOUR, "spec.volumeClaimPolicies", [policy | {"retentionPolicy": {"whenDeleted": "Retain"}}])
    mounts = [{"name": "cache", "mountPath": "/cache"}]
    path = "spec.replicatedJobs.0.template.spec.template.spec.containers.0.volumeMounts"
    foreign: KubeObject = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "cache-train"}}
    small = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    await rig.admin.create(claims, "default", foreign | {"spec": small})
    async with playing(rig, changed(manifest, path, mounts)) as player:
        condition = await player.crew.condition("SpecProblem")
        assert "expected spec.resources.requests.storage '1Gi', saw '1Mi'" in condition["message"]
        await player.play()
        await rig.admin.delete(claims, "default", "cache-train")
        await rig.settle(60.0)
        ours = await rig.admin.get(claims, "default", "cache-train")
        assert ours["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
        assert (await player.crew.condition("SpecProblem"))["status"] == "False"


@pytest.mark.parametrize("phase", PHASES)
async def test_garbage_in_every_label_and_annotation_of_the_pods(phase: str) -> None:
    """Garbage in a Pod's metadata breaks no pass; agents that announce again bring the group up."""
    rig = Rig()
    garbage: dict[str, Any] = dict.fromkeys(
        (wire.JOBSET_UID, wire.JOB_INDEX, wire.REPLICATED_JOB_NAME, wire.JOB_COMPLETION_INDEX, wire.RESTART_ATTEMPT),
        "not.a-number",
    )
    async with playing(rig) as player:
        await player.bring(phase)
        for pod in player.crew.pods.values():
            broken = {"labels": garbage, "annotations": {wire.EPOCH: "x", wire.PHASES: "{", wire.ATTEMPT: "-1"}}
            await rig.admin.patch(PODS, "default", pod, {"metadata": broken})
        await rig.settle(5.0)
        assert await rig.events("UnreadablePod")
        for pod in player.crew.pods.values():
            await player.crew.annotate(pod, {wire.EPOCH: None, wire.ATTEMPT: None})
        await player.play()


async def test_an_in_order_start_does_not_deadlock_and_joins_uncounted() -> None:
    """With InOrder and barriers each replicatedJob runs before the next starts, and all run at one epoch at the end."""
    rig = Rig()
    order = {"startupPolicyOrder": "InOrder"}
    manifest = jobset(jobs=[replicated_job(name) for name in "abc"], restarts_max=0, startupPolicy=order)
    async with playing(rig, manifest) as player:
        for name in ("a", "b", "c"):
            await player.play()
            assert len(player.crew.pods) == {"a": 2, "b": 4, "c": 6}[name]
            for job in await player.crew.jobs():
                await player.crew.set_job(job, active=2, ready=2)
            await rig.settle(3.0)
        status = await player.crew.status()
        assert await player.crew.epochs() == (3, 2)
        assert "terminalState" not in status
        assert (await player.crew.condition("StartupPolicyCompleted"))["status"] == "True"


async def test_a_restart_of_another_container_alone_is_nobodys_business() -> None:
    """A log sidecar's own restarts change no epoch and no count and fail nothing, even with no restart left."""
    rig = Rig()
    async with playing(rig, changed(FOUR, "spec.failurePolicy.maxRestarts", 0)) as player:
        await player.bring("running")
        (pod, *_) = player.crew.pods.values()
        for count in range(1, 6):
            sidecar = {
                "name": "logs",
                "image": "logs:1",
                "imageID": "",
                "ready": True,
                "restartCount": count,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }
            await player.crew.set_pod(pod, initContainerStatuses=[sidecar])
            await rig.settle()
        assert await player.crew.epochs() == (1, 0)
        assert "terminalState" not in await player.crew.status()


@pytest.mark.parametrize("phase", PHASES)
async def test_a_failed_job_goes_through_the_failure_policy_in_every_phase(phase: str) -> None:
    """A failed Job's rule decides in every phase: the Jobs are recreated, it counts once, and the group runs again."""
    rig = Rig()
    rule = {"name": "evicted", "action": "RestartJobSetAndIgnoreMaxRestarts"}
    restarts_max = 0 if phase in ("forming", "running") else 1
    manifest = changed(FOUR, "spec.failurePolicy.maxRestarts", restarts_max)
    async with playing(rig, changed(manifest, "spec.failurePolicy.rules", [rule])) as player:
        await player.bring(phase)
        await rig.finish_job(player.crew, JOB, "Failed", 5.0, reason="BackoffLimitExceeded")
        await player.play()
        status = await player.crew.status()
        assert "terminalState" not in status
        assert (status["restarts"], status.get("restartsCountTowardsMax", 0)) == (1, 0)
        assert len(player.crew.pods) == 4
