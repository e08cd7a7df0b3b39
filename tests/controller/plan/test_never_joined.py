"""Pods that end before they join are bounded by maxRestarts; no epoch shows them: the whole controller."""

from __future__ import annotations

import pytest

from inplace.common import wire
from inplace.common.kube.resources import JOBS, PODS
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


async def fail(rig: Rig, crew: Crew, pod: str, failed: int, *, code: int, evicted: bool = False) -> None:
    """Let a Pod's container end, and its Job make another one; failed Pods stay."""
    ended = {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}
    status = {"phase": "Failed", "containerStatuses": [{"name": "worker", "state": {"terminated": ended}}]}
    if evicted:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
    await rig.admin.patch(PODS, "default", pod, {"status": status}, subresource="status")
    ((name, job),) = (await crew.jobs()).items()
    await rig.admin.patch(JOBS, "default", name, {"status": {"failed": failed}}, subresource="status")
    await crew.make_pod(job, 0)
    await rig.settle(2.0)


@pytest.mark.parametrize("joined_before", [False, True])
async def test_ends_before_joining_are_counted(joined_before: bool) -> None:
    """With two restarts, the third end is one too many; the message has the code and the count."""
    rig = Rig()
    async with rig.running():
        manifest = jobset(restarts_max=2, jobs=[replicated_job("workers", pods=2)])
        if joined_before:
            crew = await rig.started(manifest)
            first = next(iter(crew.pods.values()))
            await fail(rig, crew, first, 1, code=1)  # of a Pod that had joined: an epoch says it
        else:
            crew = await rig.submit(manifest)
            await crew.make_pods()
        job = next(iter(await crew.jobs()))
        for failed in (1, 2, 3):
            assert await crew.condition("Failed") is None
            await fail(rig, crew, crew.pods[job, 0], failed + joined_before, code=127)
        condition = await crew.condition("Failed")
        assert condition is not None
        assert condition["reason"] == "ReachedMaxRestarts"
        assert "3 pods of one slot ended before they joined" in condition["message"]
        assert "container worker exited with 127" in condition["message"]


@pytest.mark.parametrize(
    ("code", "evicted"), [(6, False), (137, False), (127, True)], ids=["its check failed", "killed", "evicted"]
)
async def test_other_ends_before_joining_are_not(code: int, evicted: bool) -> None:
    """A node that fails a check, and one that is drained, are no fault of the job."""
    rig = Rig()
    async with rig.running():
        crew = await rig.submit(jobset(restarts_max=0, jobs=[replicated_job("workers", pods=2)]))
        await crew.make_pods()
        job = next(iter(await crew.jobs()))
        for failed in (1, 2):
            await fail(rig, crew, crew.pods[job, 0], failed, code=code, evicted=evicted)
        assert await crew.condition("Failed") is None


async def test_a_replicated_job_that_opted_out_is_its_jobs_affair() -> None:
    """Its Pods never announce; their Job counts how often they fail."""
    rig = Rig()
    async with rig.running():
        manifest = jobset(restarts_max=0, jobs=[replicated_job("workers", pods=2)])
        template = manifest["spec"]["replicatedJobs"][0]["template"]
        template.setdefault("metadata", {}).setdefault("annotations", {})[wire.DISABLE] = "true"
        crew = await rig.submit(manifest)
        await crew.make_pods()
        job = next(iter(await crew.jobs()))
        await fail(rig, crew, crew.pods[job, 0], 1, code=1)
        assert await crew.condition("Failed") is None
