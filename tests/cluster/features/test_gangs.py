"""spec.scheduling on a real API server: sizes, suspension, and names that others have; test_gangs_real.py has Pods."""

from __future__ import annotations

from typing import Any, Final

import pytest

from inplace.common.kube.resources import POD_GROUPS, SCHEDULING_WORKLOADS, KubeObject, Resource
from inplace.common.wire import names as wire
from testbed.go_programs import kubernetes_version
from testbed.waiting import eventually
from tests.cluster.features.stage import Stage
from tests.controller.manifests import jobset, replicated_job

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(kubernetes_version() < "v1.37", reason="scheduling.k8s.io/v1beta1 came with Kubernetes 1.37"),
]

JOB: Final = "train-workers-0"
BASIC: Final[dict[str, Any]] = {"schedulingPolicy": {"basic": {}}}
FOREIGN: Final = ((SCHEDULING_WORKLOADS, {"podGroupTemplates": [{"name": "own", **BASIC}]}), (POD_GROUPS, BASIC))


async def stored(stage: Stage) -> list[KubeObject]:
    """Return the Workloads and PodGroups that are not being deleted."""
    found = [one for kind, _ in FOREIGN for one in (await stage.client.list(kind, stage.namespace))["items"]]
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


async def sizes(stage: Stage) -> list[int]:
    """Return the sizes of the gang in the Workload and in its PodGroup."""
    specs = [one["spec"] for one in await stored(stage)]
    groups = [group for spec in specs for group in spec.get("podGroupTemplates") or [spec]]
    return [group["schedulingPolicy"]["gang"]["minCount"] for group in groups]


async def test_a_gang_follows_its_jobs_and_goes_with_a_suspension(stage: Stage) -> None:
    """Both objects have the size of the Jobs, also of resized ones; a suspension deletes them."""
    before = await stage.start(jobset(scheduling={}))
    await eventually(lambda: sizes(stage), [2, 2])
    await stage.edit({"spec": {"replicatedJobs": [replicated_job(pods=5)]}})
    await eventually(lambda: sizes(stage), [5, 5])
    assert [job["metadata"]["uid"] for job in (await stage.jobs()).values()] == [before[JOB]["metadata"]["uid"]]
    await stage.edit({"spec": {"suspend": True}})
    await eventually(lambda: stored(stage), [])
    assert await stage.warnings() == []


async def test_a_gang_has_no_more_pods_than_its_jobs_make(stage: Stage) -> None:
    """Jobs with fewer completions than parallelism make fewer Pods, and the scheduler waits for no more."""
    await stage.start(jobset(jobs=[replicated_job(pods=4, completions=3)], strategy=None, scheduling={}))
    await eventually(lambda: sizes(stage), [3, 3])


@pytest.mark.parametrize(("resource", "spec"), FOREIGN, ids=lambda value: getattr(value, "kind", ""))
async def test_a_foreign_object_stays(stage: Stage, resource: Resource, spec: KubeObject) -> None:
    """An object of our name that is somebody else's stays as it is, an Event names it, and the Job waits."""
    job = (await stage.start(jobset(scheduling={}, suspend=True)))[JOB]
    name = job["metadata"]["annotations"][wire.GROUP_TEMPLATE]
    theirs = await stage.client.create(resource, stage.namespace, {"metadata": {"name": name}, "spec": spec})
    await stage.edit({"spec": {"suspend": False}})
    await stage.says_soon("GangCreationFailed")
    (told,) = await stage.warnings()
    assert f"{resource.kind} {name} exists and is not of this jobset" in told
    assert (await stage.jobs())[JOB]["spec"]["suspend"] is True
    assert await stage.client.get(resource, stage.namespace, name) == theirs
