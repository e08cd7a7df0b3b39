"""Our controller adopts upstream's objects as they are, on a real kube-apiserver."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import pytest

from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import JOBS, JOBSETS, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES, KubeObject
from inplace.common.wire import names as wire
from testbed.control_plane import ControlPlane
from testbed.waiting import eventually
from tests.cluster.features.stage import Stage
from tests.cluster.test_controller_real import admin, running
from tests.controller.manifests import changed, jobset, replicated_job
from tests.deploy.spec_cases import claim, claims

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["admin"]  # a fixture

KINDS: Final = (JOBS, PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS)
# After one restart by recreation and two in place; the second of these is under way.
STATUS: Final[dict[str, Any]] = {
    "restarts": 1,
    "restartsCountTowardsMax": 0,
    "currentInPlaceRestartAttempt": 2,
    "previousInPlaceRestartAttempt": 1,
    "replicatedJobsStatus": [{"name": "workers", "ready": 2, "succeeded": 0, "failed": 0, "active": 2, "suspended": 0}],
    "conditions": [
        {
            "type": "RestartingJobSet",
            "status": "False",
            "reason": "JobsReady",
            "message": "all jobs are ready",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
}


def mounting() -> KubeObject:
    """Return two Jobs of two Pods each that mount a claim."""
    container = {"name": "worker", "image": "worker:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    return changed(replicated_job(replicas=2), "template.spec.template.spec.containers", [container])


def job_of_upstream(stage: Stage, uid: str, index: int) -> KubeObject:
    """Return a Job as upstream's controller without its RestartJob gate makes it; no key of ours is on it."""
    name = f"train-workers-{index}"
    keys = {
        wire.JOBSET_NAME: "train",
        wire.JOBSET_UID: uid,
        wire.REPLICATED_JOB_NAME: "workers",
        wire.REPLICATED_JOB_REPLICAS: "2",
        wire.GLOBAL_REPLICAS: "2",
        wire.JOB_INDEX: str(index),
        wire.JOB_GLOBAL_INDEX: str(index),
        wire.JOB_KEY: hashlib.sha1(f"{stage.namespace}/{name}".encode(), usedforsecurity=False).hexdigest(),
        wire.RESTART_ATTEMPT: "1",
        wire.GROUP_NAME: "default",
        wire.GROUP_REPLICAS: "2",
        wire.JOB_GROUP_INDEX: str(index),
    }
    spec = mounting()["template"]["spec"] | {"completionMode": "Indexed", "suspend": False}
    spec = changed(spec, "template.metadata", {"labels": keys, "annotations": keys})
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data-train"}}
    spec["template"]["spec"] |= {"subdomain": "train", "volumes": [volume]}
    metadata = {"name": name, "labels": keys, "annotations": keys, "ownerReferences": owned_by(uid)}
    return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": metadata, "spec": spec}


def owned_by(uid: str) -> list[KubeObject]:
    """Return the JobSet as an owner."""
    owner = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "name": "train", "uid": uid}
    return [owner | {"controller": True, "blockOwnerDeletion": True}]


async def leave_behind(stage: Stage) -> None:
    """Create the objects that upstream's controller would have created by now."""
    stored = await stage.submit(jobset(jobs=[mounting()], restarts_max=2, volumeClaimPolicies=claims(claim("data"))))
    uid, owners = stored["metadata"]["uid"], owned_by(stored["metadata"]["uid"])
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "train", "ownerReferences": owners},
        "spec": {"clusterIP": "None", "selector": {wire.JOBSET_NAME: "train"}, "publishNotReadyAddresses": True},
    }
    await stage.client.create(SERVICES, stage.namespace, service)
    labels = {wire.JOBSET_NAME: "train"}
    data = {"name": "data-train", "labels": labels, "ownerReferences": owners}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": data, "spec": claim("data")["spec"]}
    await stage.client.create(PERSISTENT_VOLUME_CLAIMS, stage.namespace, body)
    for index in range(2):
        job = await stage.client.create(JOBS, stage.namespace, job_of_upstream(stage, uid, index))
        await stage.be_ready(job["metadata"]["name"])
    await stage.client.patch(JOBSETS, stage.namespace, "train", {"status": STATUS}, subresource="status")
    await stage.make_pods()
    for pod in stage.pods.values():
        await stage.annotate(pod, {wire.ATTEMPT: "2"})


async def uids(stage: Stage) -> dict[str, str]:
    """Return the UID of everything in the namespace."""
    found = [item for kind in KINDS for item in (await stage.client.list(kind, stage.namespace))["items"]]
    return {f"{item['metadata']['name']}": item["metadata"]["uid"] for item in found}


async def test_a_running_group_is_adopted(control_plane: ControlPlane, admin: KubeClient, namespace: str) -> None:
    """A running group is adopted without any creation, deletion or restart; counters continue, in both encodings."""
    stage = Stage(admin, namespace, "train")
    await leave_behind(stage)
    before = await uids(stage)
    async with running(control_plane, namespace):
        first, *others = stage.pods.values()
        await stage.annotate(first, {wire.ATTEMPT: "3"})
        await stage.shows(syncedEpoch=3, deprecatedEpoch=3, previousInPlaceRestartAttempt=2, restarts=1)
        for pod in others:
            await stage.annotate(pod, {wire.ATTEMPT: "3"})
        await stage.shows(syncedEpoch=4, deprecatedEpoch=3, currentInPlaceRestartAttempt=3)
        assert await uids(stage) == before
        kept = [entry for entry in (await stage.status())["conditions"] if entry["type"] != "InPlaceRestarting"]
        assert kept == STATUS["conditions"]
        # 3 restarts in place by now; upstream's uncounted recreation made one of them.
        for pod in stage.pods.values():
            await stage.annotate(pod, {wire.ATTEMPT: "4"})
        message = "jobset failed due to reaching max number of restarts"
        await stage.becomes("Failed", "True", "ReachedMaxRestarts", message)


async def test_a_finished_jobset_is_left_alone(control_plane: ControlPlane, admin: KubeClient, namespace: str) -> None:
    """A finished JobSet keeps upstream's status unchanged, and its Jobs stay."""
    stage = Stage(admin, namespace, "train")
    stored = await stage.submit(jobset(strategy=None, jobs=[mounting()], volumeClaimPolicies=claims(claim("data"))))
    for index in range(2):
        await stage.client.create(JOBS, namespace, job_of_upstream(stage, stored["metadata"]["uid"], index))
        await stage.succeed(f"train-workers-{index}")
    ended = {
        "type": "Completed",
        "status": "True",
        "reason": "AllJobsCompleted",
        "message": "jobset completed successfully",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    counted = [{"name": "workers", "ready": 0, "succeeded": 2, "failed": 0, "active": 0, "suspended": 0}]
    status = {
        "restarts": 1,
        "terminalState": "Completed",
        "conditions": [ended],
        "replicatedJobsStatus": counted,
        "restartsCountTowardsMax": 1,
    }
    await stage.client.patch(JOBSETS, namespace, "train", {"status": status}, subresource="status")
    before, version = await uids(stage), (await stage.jobset())["metadata"]["resourceVersion"]
    async with running(control_plane, namespace):
        other = Stage(admin, namespace, "other")  # its objects are made AFTER the first JobSet's pass
        await other.submit(jobset("other", strategy=None))

        async def has_its_job() -> bool:
            return "other-workers-0" in await other.jobs()

        await eventually(has_its_job, True)
        after = await uids(stage)
        assert {name: uid for name, uid in after.items() if not name.startswith("other")} == before
        assert (await stage.jobset())["metadata"]["resourceVersion"] == version
