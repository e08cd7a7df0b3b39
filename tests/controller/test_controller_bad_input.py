"""Bad input of users, other controllers and attackers: it affects only its own JobSet and gets a message."""

import contextlib

import pytest

from inplace.common.kube.errors import Invalid, NotFound
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, JOBS, JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.api.events import BURST
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.rig import Rig
from tests.deploy.crd_cases import crd

pytestmark = pytest.mark.virtual_time

TWO_BY_TWO = jobset(jobs=[replicated_job(replicas=2, pods=2)])


@pytest.mark.parametrize("text", ["2147483648", "-1", "abc", "", "1e3", "0"])
async def test_a_broken_annotation_holds_up_its_own_group_and_tells_why(rig: Rig, text: str) -> None:
    """A Pod with an unreadable epoch counts as not announced, with a Warning, until it is valid; other groups go on."""
    other = await rig.started(jobset("other"))
    crew = await rig.with_pods(jobset())
    good, bad = crew.pods.values()
    await crew.announce(good, 1)
    await crew.annotate(bad, {wire.EPOCH: text})
    await rig.settle()
    assert await crew.epochs() == (0, 0)
    (event,) = await rig.events("UnreadablePod")
    assert event["type"] == "Warning"
    assert bad in event["note"]
    assert "expected an integer from 1 to 2147483647" in event["note"]
    await crew.announce(bad, 1)
    await rig.meet(other, 2)
    assert await crew.epochs() == (1, 0)
    assert await other.epochs() == (2, 1)


@pytest.mark.attack
async def test_a_worker_cannot_write_an_event_with_each_patch(rig: Rig) -> None:
    """1,251 texts that cannot be read are a burst of Events; the restart that follows is told, and that of others."""
    other = await rig.started(jobset("other"))
    crew = await rig.started(jobset())
    bad, _ = crew.pods.values()
    for number in range(1_251):
        await crew.annotate(bad, {wire.NOTICE: f"no notice, {number}"})
    await rig.settle()
    assert len(await rig.events("UnreadablePod")) == BURST
    for one in (crew, other):
        await rig.meet(one, 2)
    started = {event["regarding"]["name"] for event in await rig.events("GroupRestartStarted")}
    assert started == {"train", "other"}


async def test_garbage_in_labels_stops_nobody(rig: Rig) -> None:
    """Garbage in labels changes nothing: membership follows from owner, name and index."""
    crew = await rig.submit(jobset())
    garbage = {wire.JOB_INDEX: "x", wire.REPLICATED_JOB_NAME: "y", wire.RESTART_ATTEMPT: "z"}
    await rig.admin.patch(JOBS, "default", "train-workers-0", {"metadata": {"labels": garbage}})
    await crew.make_pods()
    one, _ = crew.pods.values()
    broken = {wire.JOB_COMPLETION_INDEX: "x", wire.JOB_INDEX: "y", wire.JOBSET_UID: "z"}
    await rig.admin.patch(PODS, "default", one, {"metadata": {"labels": broken}})
    await rig.meet(crew, 1)
    assert await crew.epochs() == (1, 0)


async def test_foreign_pods_do_not_count(rig: Rig) -> None:
    """A Pod with our labels and another JobSet's owner, or none, changes nothing."""
    crew = await rig.started(jobset())
    other = await rig.submit(jobset("other"))
    (ours,) = (await crew.jobs()).values()
    (theirs,) = (await other.jobs()).values()
    labels = ours["spec"]["template"]["metadata"]["labels"] | {wire.JOB_COMPLETION_INDEX: "0"}
    await other.make_pod(theirs, 0, labels=labels, annotations=wire.epoch_annotations(2))
    alone = {"name": "alone", "labels": labels, "annotations": wire.epoch_annotations(2), "ownerReferences": []}
    await other.make_pod(theirs, 1, **alone)
    await rig.settle()
    assert await crew.epochs() == (1, 0)


async def test_a_foreign_job_with_our_name_is_reported_and_waited_for() -> None:
    """Beside a foreign Job of our name all other Jobs are created; a Warning names it, and its deletion cures it."""
    rig = Rig()
    foreign: KubeObject = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train-workers-0"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    }
    await rig.admin.create(JOBS, "default", foreign)
    async with rig.running():
        crew = await rig.submit(TWO_BY_TWO)
        await rig.settle(300.0)
        assert "train-workers-1" in await crew.jobs()
        assert (await crew.status())["replicatedJobsStatus"]
        attempts = rig.writes("/jobs", "POST")
        assert attempts < 30
        (event,) = await rig.events("JobCreationFailed")
        assert "train-workers-0 exists and is not of this jobset" in event["note"]
        assert event["series"]["count"] > 1
        await rig.admin.delete(JOBS, "default", "train-workers-0")
        await rig.settle(120.0)
        assert set(await crew.jobs()) == {"train-workers-0", "train-workers-1"}


async def test_a_jobset_that_vanishes_in_the_middle_leaves_nothing_behind(rig: Rig) -> None:
    """A JobSet deleted while its Jobs are created and its Pods announce leaves no error, no series and no Job."""
    crew = await rig.started(jobset(jobs=[replicated_job(replicas=20, pods=1)]))
    assert b'jobset="train"' in rig.controllers[0].metrics.text()
    await rig.admin.delete(JOBSETS, "default", "train")
    for pod in list(crew.pods.values())[:5]:
        with contextlib.suppress(NotFound):
            await crew.announce(pod, 2)
    await rig.settle(30.0)
    assert await crew.jobs() == {}
    assert b'jobset="train"' not in rig.controllers[0].metrics.text()
    again = await rig.started(jobset())
    assert await again.epochs() == (1, 0)


async def test_one_bad_jobset_does_not_stop_the_others() -> None:
    """An invalid JobSet that no CRD checked is reported and left alone; other JobSets are served."""
    rig = Rig()
    definition = crd_without_validation()
    rig.server.load([])
    await rig.admin.patch(
        CUSTOM_RESOURCE_DEFINITIONS,
        None,
        "jobsets.jobset.x-k8s.io",
        {"spec": {"versions": definition["spec"]["versions"]}},
    )
    async with rig.running():
        broken = jobset("broken", strategy=None)
        broken["spec"]["replicatedJobs"] = [{"replicas": "many"}]
        odd = jobset("odd", strategy=None)
        odd["spec"]["replicatedJobs"][0]["template"] = {"spec": "text"}
        await rig.submit(broken)
        await rig.submit(odd)
        good = await rig.started(jobset("good"))
        assert await good.epochs() == (1, 0)
        events = await rig.events("UnreadableJobSet")
        assert {event["regarding"]["name"] for event in events} == {"broken", "odd"}


def crd_without_validation() -> KubeObject:
    """Return the CRD with an opaque schema."""
    definition = crd()
    opaque = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": opaque}
    return definition


async def test_a_manifest_that_cannot_work_is_refused_at_the_door() -> None:
    """The API server refuses an impossible manifest with path and value; the controller never sees it."""
    rig = Rig()
    manifest = changed(jobset(), "spec.replicatedJobs.0.template.spec.backoffLimit", 6)
    with pytest.raises(Invalid, match="backoffLimit: found 6; must be set to 2147483647"):
        await rig.admin.create(JOBSETS, "default", manifest)


async def test_another_managers_jobset_is_never_touched(rig: Rig) -> None:
    """A JobSet of another manager gets no Jobs, status or Event, even for Pods that look like ours."""
    crew = await rig.submit(jobset(managedBy="example.com/other"))
    await rig.settle(30.0)
    assert await crew.jobs() == {}
    assert "status" not in await crew.jobset()
