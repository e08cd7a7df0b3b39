"""
Every feature's writes on a real kube-apiserver, with exactly the permissions of deploy/rbac.

The tests play the Job controller and the scheduler. What only a real server shows: that it accepts our claims, resumes,
resizes, lifted gates and statuses, and that the shipped roles allow them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from common import wire
from common.kube.client import KubeClient, KubeObject
from common.kube.resources import EVENTS, JOBS, JOBSETS, NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from tests.cluster.control_plane import ControlPlane
from tests.cluster.test_controller_real import REPOSITORY, admin, apply, eventually, running, submit
from tests.controller.crew import Crew
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.test_lifecycle import with_claims

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["admin"]  # a fixture

NOW = "2026-01-01T00:00:00Z"
RACK = "example.com/rack"
POD = "spec.replicatedJobs.0.template.spec.template"
FOLDER: Path = REPOSITORY / "examples"
MANIFESTS = sorted(path.name for path in FOLDER.glob("*.yaml"))


@pytest_asyncio.fixture(loop_scope="session")
async def controlled(control_plane: ControlPlane, admin: KubeClient, namespace: str) -> AsyncIterator[str]:
    """Give a namespace in which a controller works with the shipped permissions."""
    for document in yaml.safe_load_all((REPOSITORY / "deploy" / "rbac" / "controller.yaml").read_text()):
        await apply(admin, document)
    kubeconfig = await control_plane.service_account_kubeconfig("inplace-system", "inplace-controller")
    async with running(control_plane, namespace, kubeconfig=kubeconfig):
        yield namespace


async def warnings(admin: KubeClient, namespace: str) -> list[str]:
    """Return what the Warnings say."""
    events = (await admin.list(EVENTS, namespace))["items"]
    return [f"{event['reason']}: {event['note']}" for event in events if event["type"] == "Warning"]


async def set_status(admin: KubeClient, namespace: str, name: str, **status: Any) -> None:
    """Set part of a Job's status."""
    await admin.patch(JOBS, namespace, name, {"status": status}, subresource="status")


@pytest.mark.parametrize("name", MANIFESTS)
async def test_examples(admin: KubeClient, controlled: str, name: str) -> None:
    """Each is accepted, its first Jobs exist, and the controller warns of nothing."""
    found = yaml.safe_load_all((FOLDER / name).read_text())
    for manifest in [document for document in found if document["kind"] == JOBSETS.kind]:
        manifest["metadata"]["namespace"] = controlled
        await admin.create(JOBSETS, controlled, manifest)
        crew = Crew(admin, controlled, manifest["metadata"]["name"])

        async def has_jobs(crew: Crew = crew) -> bool:
            return bool(await crew.jobs())

        await eventually(has_jobs, True)
    assert await warnings(admin, controlled) == []


async def test_a_single_job_is_restarted(admin: KubeClient, controlled: str) -> None:
    """The status with its counters is accepted, and the Job comes back under the next job-restart-attempt."""
    manifest = jobset(namespace=controlled, strategy="Recreate", jobs=[replicated_job(replicas=2)])
    pattern = ["exit code (42|43)"]
    rule = {"name": "r", "action": "RestartJob", "onJobFailureMessagePatterns": pattern}
    manifest["spec"]["failurePolicy"]["rules"] = [rule]
    await admin.create(JOBSETS, controlled, manifest)
    crew = Crew(admin, controlled, "train")

    async def attempts() -> dict[str, str]:
        jobs = (await crew.jobs()).items()
        return {name: job["metadata"]["labels"][wire.JOB_RESTART_ATTEMPT] for name, job in jobs}

    await eventually(attempts, {"train-workers-0": "0", "train-workers-1": "0"})
    await crew.finish_job("train-workers-1", "Failed", reason="PodFailurePolicy", message="failed with exit code 42")

    async def leaving() -> bool:
        return "deletionTimestamp" in (await crew.jobs())["train-workers-1"]["metadata"]

    await eventually(leaving, True)
    await admin.patch(JOBS, controlled, "train-workers-1", {"metadata": {"finalizers": None}})
    await eventually(attempts, {"train-workers-0": "0", "train-workers-1": "1"})
    (entry,) = (await crew.status())["replicatedJobsStatus"]
    assert (entry["jobRestarts"], entry["jobRestartsCountTowardsMax"]) == ([0, 1], [0, 1])


async def test_claims_and_ttl(admin: KubeClient, controlled: str) -> None:
    """The claim exists before the Jobs; a finished JobSet is deleted in the foreground."""
    manifest = changed(with_claims(ttlSecondsAfterFinished=1), "metadata.namespace", controlled)
    await admin.create(JOBSETS, controlled, manifest)
    crew = Crew(admin, controlled, "train")

    async def names() -> set[str]:
        return set(await crew.jobs())

    await eventually(names, {"train-a-0", "train-b-0"})
    claim = await admin.get(PERSISTENT_VOLUME_CLAIMS, controlled, "cache-train")
    assert claim["metadata"]["ownerReferences"][0]["kind"] == "JobSet"
    for name in await names():
        await crew.finish_job(name, "Complete")

    async def is_leaving() -> bool:
        return "deletionTimestamp" in (await crew.jobset())["metadata"]

    await eventually(is_leaving, True)
    assert await warnings(admin, controlled) == []


async def test_a_queue_admits_evicts_and_admits_elsewhere(admin: KubeClient, controlled: str) -> None:
    """The server takes additions and removals, and the start time that is cleared."""
    await admin.create(JOBSETS, controlled, jobset(namespace=controlled, suspend=True, strategy="Recreate"))
    crew = Crew(admin, controlled, "train")
    job = "train-workers-0"

    async def template() -> tuple[Any, Any, Any]:
        found = (await crew.jobs()).get(job)
        if found is None:
            return None, None, None
        pod = found["spec"]["template"]
        return found["spec"]["suspend"], pod["spec"].get("nodeSelector"), pod["metadata"]["labels"].get("queue")

    async def admit(suspend: bool, selector: Any, labels: Any) -> None:
        manifest = changed(await crew.jobset(), f"{POD}.spec.nodeSelector", selector)
        manifest = changed(manifest, f"{POD}.metadata", {"labels": labels})
        manifest["spec"]["suspend"] = suspend
        manifest["metadata"].pop("resourceVersion")
        patch = {"spec": {"suspend": suspend, "replicatedJobs": manifest["spec"]["replicatedJobs"]}}
        await admin.patch(JOBSETS, controlled, "train", patch)

    await eventually(template, (True, None, None))
    await admit(False, {"zone": "a", "gpu": "h100"}, {"queue": "a"})
    suspended: KubeObject = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": ""}
    await set_status(admin, controlled, job, conditions=[suspended | {"lastTransitionTime": NOW}])
    await eventually(template, (False, {"zone": "a", "gpu": "h100"}, "a"))
    running_now = suspended | {"status": "False", "lastTransitionTime": NOW}
    await set_status(admin, controlled, job, startTime=NOW, conditions=[running_now])
    await admit(True, {"zone": "a"}, {})
    await eventually(template, (True, {"zone": "a", "gpu": "h100"}, "a"))
    await set_status(admin, controlled, job, conditions=[suspended | {"lastTransitionTime": NOW}])
    await admit(False, {"zone": "b"}, {})
    await eventually(template, (False, {"zone": "b"}, None))
    assert "startTime" not in (await crew.jobs())[job]["status"]


async def test_a_group_is_resized(admin: KubeClient, controlled: str) -> None:
    """Parallelism and completions change in tandem, up and down; shrinking deprecates the epoch."""
    crew = await submit(admin, controlled, jobs=[replicated_job(pods=2)])
    await crew.announce_all(1)
    await eventually(crew.epochs, (1, 0))

    async def size() -> tuple[int, int]:
        spec = (await crew.jobs())["train-workers-0"]["spec"]
        return spec["parallelism"], spec["completions"]

    for pods in (3, 1):
        patch = {"spec": {"replicatedJobs": [replicated_job(pods=pods)]}}
        await admin.patch(JOBSETS, controlled, "train", patch)
        await eventually(size, (pods, pods))
    await eventually(crew.epochs, (1, 1))
    assert (await crew.status())["exemptEpochs"] == 1


async def test_gates_are_lifted(admin: KubeClient, controlled: str) -> None:
    """One patch takes the gate away and adds the selector; the server allows both."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n-{controlled}", "labels": {RACK: "r1"}}}
    await admin.create(NODES, None, node)
    annotations = {"metadata": {"annotations": {wire.EXCLUSIVE_TOPOLOGY: RACK}}}
    job = replicated_job(pods=2)
    job["template"] |= annotations
    crew = await submit(admin, controlled, strategy=None, jobs=[job])
    leader, follower = (crew.pods["train-workers-0", index] for index in (0, 1))

    async def gated(pod: str) -> bool:
        return bool((await admin.get(PODS, controlled, pod))["spec"].get("schedulingGates"))

    await eventually(lambda: gated(leader), False)
    assert await gated(follower)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": leader},
        "target": {"kind": "Node", "name": node["metadata"]["name"]},  # type: ignore[index]
    }
    await admin.raw("POST", f"/api/v1/namespaces/{controlled}/pods/{leader}/binding", body=binding)
    await eventually(lambda: gated(follower), False)
    assert (await admin.get(PODS, controlled, follower))["spec"]["nodeSelector"] == {RACK: "r1"}
