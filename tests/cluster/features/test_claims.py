"""spec.volumeClaimPolicies: claims that Jobs share, and the deletion of claims."""

from __future__ import annotations

from typing import Any, Final

import pytest

from inplace.common.kube.resources import JOBS, PERSISTENT_VOLUME_CLAIMS, KubeObject
from testbed.waiting import eventually
from tests.cluster.features.served import ServedController
from tests.cluster.features.stage import Stage
from tests.controller.crew import exists
from tests.controller.manifests import changed, jobset, replicated_job
from tests.deploy.spec_cases import claim

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONTAINERS: Final = "template.spec.template.spec.containers"


def mounting(name: str, *volumes: str, init: bool = False) -> KubeObject:
    """Return a replicatedJob that mounts volumes."""
    mounts = [{"name": volume, "mountPath": f"/{volume}"} for volume in volumes]
    container = {"name": "worker", "image": "worker:1", "volumeMounts": mounts}
    job = replicated_job(name)
    if init:
        return changed(job, "template.spec.template.spec.initContainers", [container | {"name": "init"}])
    return changed(job, CONTAINERS, [container])


def policies(policy: str | None, *templates: KubeObject) -> list[KubeObject]:
    """Return volumeClaimPolicies."""
    retention = {} if policy is None else {"retentionPolicy": {"whenDeleted": policy} if policy else {}}
    return [{"templates": list(templates)} | retention]


async def find(stage: Stage, name: str = "data-train") -> KubeObject:
    """Return a claim, once it is there."""
    await eventually(lambda: exists(stage.client, PERSISTENT_VOLUME_CLAIMS, stage.namespace, name), True)
    return await stage.client.get(PERSISTENT_VOLUME_CLAIMS, stage.namespace, name)


@pytest.mark.parametrize("policy", [None, "", "Delete", "Retain"])
async def test_owner(stage: Stage, policy: str | None) -> None:
    """A claim is deleted with the JobSet; a retained claim has no owner and stays."""
    template = claim("data", labels={"a": "label"}, annotations={"an": "annotation"})
    await stage.start(
        jobset(strategy=None, jobs=[mounting("a", "data")], volumeClaimPolicies=policies(policy, template))
    )
    found = await find(stage)
    uid = (await stage.jobset())["metadata"]["uid"]
    owners = [owner["uid"] for owner in found["metadata"].get("ownerReferences", ())]
    assert owners == ([] if policy == "Retain" else [uid])
    assert found["metadata"]["labels"] == {"a": "label", "jobset.sigs.k8s.io/jobset-name": "train"}
    assert found["metadata"]["annotations"] == {"an": "annotation"}
    assert found["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    assert found["spec"]["accessModes"] == ["ReadWriteOnce"]


async def test_only_who_mounts_it_gets_the_volume(stage: Stage) -> None:
    """A Job gets a volume for each claim that one of its containers mounts, init containers too, and for no other."""
    templates = policies(None, claim("data"), claim("logs"))
    jobs = [mounting("both", "data", "logs"), mounting("one", "data"), mounting("init", "logs", init=True)]
    made = await stage.start(jobset(strategy=None, jobs=[*jobs, replicated_job("none")], volumeClaimPolicies=templates))

    def volumes(job: str) -> dict[str, Any]:
        found = made[f"train-{job}-0"]["spec"]["template"]["spec"].get("volumes", ())
        return {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in found}

    assert volumes("both") == {"data": "data-train", "logs": "logs-train"}
    assert volumes("one") == {"data": "data-train"}
    assert volumes("init") == {"logs": "logs-train"}
    assert volumes("none") == {}


async def test_claims_of_a_suspended_jobset(stage: Stage) -> None:
    """Claims are created while the JobSet is suspended."""
    templates = policies(None, claim("data"))
    await stage.start(jobset(strategy=None, suspend=True, jobs=[mounting("a", "data")], volumeClaimPolicies=templates))
    await find(stage)


# Its retention, its access mode (the template's is ReadWriteOnce), and whether that is a problem.
EXISTING: Final = {
    "as_the_template": ("Retain", "ReadWriteOnce", False),
    "of_another_kind": ("Retain", "ReadWriteMany", True),
    "not_ours_to_delete": ("Delete", "ReadWriteOnce", True),
}


@pytest.mark.parametrize("name", EXISTING)
async def test_a_claim_that_exists_is_used(stage: Stage, name: str) -> None:
    """A claim of an earlier run is mounted as it is; if it differs from the template, SpecProblem says so."""
    policy, mode, is_problem = EXISTING[name]
    storage = claim("data")["spec"] | {"accessModes": [mode]}
    mine = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-train"}, "spec": storage}
    stored = await stage.client.create(PERSISTENT_VOLUME_CLAIMS, stage.namespace, mine)
    templates = policies(policy, claim("data"))
    await stage.start(jobset(strategy=None, jobs=[mounting("a", "data")], volumeClaimPolicies=templates))
    await stage.shows(restarts=0)
    found = await find(stage)
    assert found["metadata"]["uid"] == stored["metadata"]["uid"]
    assert "ownerReferences" not in found["metadata"]
    assert found["spec"]["accessModes"] == [mode]
    problem = await stage.words("SpecProblem")
    assert (problem is not None and problem[0] == "True" and "data-train" in problem[2]) is is_problem


async def test_three_jobsets_share_a_claim(stage: Stage, controller: ServedController) -> None:
    """Three JobSets whose template and name give the same claim name share the claim, also when created at once."""
    sharing = {"a-b-c-d": "data", "b-c-d": "data-a", "c-d": "data-a-b"}
    stages = [Stage(stage.client, stage.namespace, name) for name in sharing]
    async with controller.replaced():
        for each in stages:
            template = sharing[each.name]
            retained = policies("Retain", claim(template))
            jobs = [mounting("w", template)]
            await each.submit(jobset(each.name, strategy=None, jobs=jobs, volumeClaimPolicies=retained))
    for each in stages:
        await each.has_jobs(f"{each.name}-w-0")
    found = (await stage.client.list(PERSISTENT_VOLUME_CLAIMS, stage.namespace))["items"]
    assert [item["metadata"]["name"] for item in found] == ["data-a-b-c-d"]
    assert await stage.warnings() == []


async def test_a_claim_that_goes_is_waited_for(stage: Stage, controller: ServedController) -> None:
    """While a claim is being deleted no Job is created and the JobSet says so; when it is gone, the JobSet goes on."""
    mine = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-train",
            "finalizers": ["example.com/hold"],
            "labels": {"jobset.sigs.k8s.io/jobset-name": "train"},
        },
        "spec": claim("data")["spec"],
    }
    templates = policies(None, claim("data"))
    async with controller.replaced():  # its cache of claims may be behind its cache of JobSets; not at the start
        await stage.client.create(PERSISTENT_VOLUME_CLAIMS, stage.namespace, mine)
        await stage.client.delete(PERSISTENT_VOLUME_CLAIMS, stage.namespace, "data-train")
        await stage.submit(jobset(strategy=None, jobs=[mounting("a", "data")], volumeClaimPolicies=templates))
    await stage.says_soon("PVCCreationFailed")
    assert (await stage.client.list(JOBS, stage.namespace))["items"] == []
    let_go = {"metadata": {"finalizers": None}}
    await stage.client.patch(PERSISTENT_VOLUME_CLAIMS, stage.namespace, "data-train", let_go)
    await stage.has_jobs("train-a-0")


async def test_a_claim_that_cannot_be_made(stage: Stage) -> None:
    """When the server refuses a claim, an Event has its message and no Job starts."""
    bad = claim("data")
    bad["spec"] = bad["spec"] | {"accessModes": ["Sometimes"]}
    await stage.submit(jobset(strategy=None, jobs=[mounting("a", "data")], volumeClaimPolicies=policies(None, bad)))
    await stage.says_soon("PVCCreationFailed")
    kind, note = (await stage.events())["PVCCreationFailed"]
    assert kind == "Warning"
    assert "Sometimes" in note
    assert await stage.jobs() == {}
