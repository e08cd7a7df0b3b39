"""The whole controller and spares: when their Job is made and goes, what counts it, and what is said of bad values."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Final

import pytest

from inplace.common.injection.pod import InjectOptions
from inplace.common.jobset.spares import spares_name
from inplace.common.kube.resources import JOBS, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.act.refused_pods import LACKING_S
from inplace.controller.api.object_events import CORE_EVENTS
from inplace.controller.plan.spares import requests_of
from tests.controller.crew import Crew, exists
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.rig import Rig, running_rig

pytestmark = pytest.mark.virtual_time

ADDS = JobSettings(agent=InjectOptions(agent_image="agent:1"))
PODS_OF_GROUP = 4
NAME = spares_name("train")
POD = "spec.replicatedJobs.0.template.spec.template"


@pytest.fixture
def rig() -> AbstractAsyncContextManager[Rig]:
    """Return an API server with a running controller that adds agents."""
    return running_rig(job_settings=ADDS)


def with_spares(text: str | None = "2") -> KubeObject:
    """Return an in-place JobSet of four Pods that asks for spares."""
    annotations = {wire.SPARES: text} if text is not None else {}
    manifest = jobset(jobs=[replicated_job(pods=PODS_OF_GROUP)], annotations=annotations)
    return changed(manifest, f"{POD}.spec.containers.0.command", ["train"])


async def spares(rig: Rig) -> KubeObject | None:
    """Return the spares' Job; None where there is none."""
    return await rig.admin.get(JOBS, "default", NAME) if await exists(rig.admin, JOBS, "default", NAME) else None


async def problem(crew: Crew) -> str:
    """Return what SpecProblem says; "" if it is not True."""
    found = await crew.find_condition("SpecProblem")
    return str(found["message"]) if found is not None and found["status"] == "True" else ""


async def made_spare(rig: Rig, **labels: str) -> str:
    """Make a Pod of the spares' Job, as the Job controller does; return its name."""
    job = await spares(rig)
    assert job is not None
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": NAME, "uid": job["metadata"]["uid"], "controller": True}
    template = job["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{NAME}-0-abcde",
            "labels": template["metadata"]["labels"] | {wire.JOB_COMPLETION_INDEX: "0"} | labels,
            "annotations": {wire.JOB_COMPLETION_INDEX: "0"},
            "ownerReferences": [owner],
        },
        "spec": {name: value for name, value in template["spec"].items() if name != "priorityClassName"},
    }
    return str((await rig.admin.create(PODS, "default", pod))["metadata"]["name"])


async def test_the_job_is_made_when_the_group_runs_and_goes_with_the_jobset(rig: Rig) -> None:
    """Not before, so that spares take no first Pod's node; the JobSet owns it, and no queue is named."""
    crew = await rig.with_pods(changed(with_spares(), f"{POD}.metadata.labels", {wire.QUEUE_NAME: "team"}))
    await rig.settle()
    assert await spares(rig) is None
    await rig.run_epoch(crew, 1)
    job = await spares(rig)
    assert job is not None
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("JobSet", "train", True)
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (2, 2)
    assert job["spec"]["template"]["spec"]["priorityClassName"] == wire.SPARE_PRIORITY_CLASS
    every_label = job["metadata"]["labels"] | job["spec"]["template"]["metadata"]["labels"]
    assert every_label[wire.SPARE_OF] == "train"
    assert not every_label.keys() & {wire.QUEUE_NAME, wire.JOBSET_NAME, wire.JOBSET_UID, wire.JOB_KEY}


async def test_a_spare_is_no_slot(rig: Rig) -> None:
    """A Pod of it joins no group, whatever labels it has and whatever it announces, and its end restarts nobody."""
    crew = await rig.started(with_spares())
    before = (await crew.status())["replicatedJobsStatus"]
    labels = {wire.JOBSET_NAME: "train", wire.REPLICATED_JOB_NAME: "workers", wire.JOB_INDEX: "0"}
    name = await made_spare(rig, **labels)
    await crew.announce(name, 7)
    await crew.set_phase(name, "Failed")
    await rig.settle(2.0)
    await crew.remove(name)
    await rig.settle(2.0)
    assert await crew.epochs() == (1, 0)
    assert (await crew.status())["replicatedJobsStatus"] == before


async def epochs_beside_a_spare(**labels: str | None) -> tuple[int, int]:
    """Return S and D after a restart of a group beside a spare with these labels as well; None takes one away."""
    async with running_rig(job_settings=ADDS) as rig:
        crew = await rig.started(with_spares())
        spare = await made_spare(rig)
        await rig.admin.patch(PODS, "default", spare, {"metadata": {"labels": labels}})
        await rig.settle()
        await rig.meet(crew, 2, 2.0)
        return await crew.epochs()


GROUPS: Final = {wire.JOBSET_NAME: "train", wire.REPLICATED_JOB_NAME: "workers", wire.JOB_INDEX: "0"}


async def test_no_barrier_waits_for_a_spare() -> None:
    """Nor for one to which somebody gave the labels of the group."""
    assert await epochs_beside_a_spare() == (2, 1)
    assert await epochs_beside_a_spare(**GROUPS) == (2, 1)


async def test_a_spare_that_is_counted_would_be_seen() -> None:
    """The planted bug: a spare that looks like a Pod of the group holds it up."""
    assert await epochs_beside_a_spare(**GROUPS, **{wire.SPARE_OF: None}) == (1, 1)


@pytest.mark.attack
async def test_spares_hold_no_more_than_the_group(rig: Rig) -> None:
    """Small Pods of other replicatedJobs do not raise the number of spares, which are as large as the large ones."""
    jobs = [replicated_job("workers", pods=2)] + [replicated_job(f"tiny-{number}", pods=1) for number in range(4)]
    for wanted, memory in zip(jobs, ("1Gi", *["50Mi"] * 4), strict=True):
        container = wanted["template"]["spec"]["template"]["spec"]["containers"][0]
        container |= {"command": ["train"], "resources": {"requests": {"memory": memory}}}
    crew = await rig.started(jobset(jobs=jobs, annotations={wire.SPARES: "6"}))
    assert await spares(rig) is None
    assert "expected at most 2, the pods of the largest replicatedJob, saw 6" in await problem(crew)
    await rig.annotate({wire.SPARES: "2"})
    job = await spares(rig)
    assert job is not None
    held = job["spec"]["parallelism"] * _mebibytes(job)
    group = sum(made["spec"]["parallelism"] * _mebibytes(made) for made in (await crew.jobs()).values())
    assert held <= group


def _mebibytes(job: KubeObject) -> int:
    """Return what a Pod of a Job asks for, in mebibytes."""
    requests = requests_of(job["spec"]["template"]["spec"])
    return int(requests["memory"]) // 2**20


async def test_spares_that_the_server_refuses_are_told_and_not_asked_for_again_and_again(rig: Rig) -> None:
    """Without the PriorityClass: one Event on the JobSet, one read of Events in minutes, and one Job."""
    crew = await rig.started(with_spares())
    job = await spares(rig)
    assert job is not None
    await crew.set_job(NAME, startTime="2023-11-14T22:13:20Z")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "spares.1", "namespace": "default"},
        "involvedObject": {"kind": "Job", "namespace": "default", "name": NAME, "uid": job["metadata"]["uid"]},
        "reason": "FailedCreate",
        "message": 'Error creating: pods "x" is forbidden: no PriorityClass with name inplace-spare was found',
        "type": "Warning",
    }
    await rig.admin.create(CORE_EVENTS, "default", event)
    await rig.settle(LACKING_S + 200.0)
    (told,) = await rig.events("PodsRefused")
    assert told["regarding"]["kind"] == "JobSet"
    assert "no PriorityClass with name inplace-spare was found" in told["note"]
    assert "deploy/spares" in told["note"]
    assert sum(r.method == "GET" and "/events?" in r.path for r in rig.requests) == 1
    assert rig.writes("/jobs", "POST") == 2, "one for the group, one for the spares"
