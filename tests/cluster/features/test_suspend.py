"""Suspend and resume as a queue such as Kueue does: the changes in the Jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pytest

from inplace.common.kube.resources import KubeObject
from testbed.waiting import eventually
from tests.cluster.features.stage import START, Stage
from tests.controller.manifests import changed, jobset

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB: Final = "train-workers-0"
POD: Final = "spec.replicatedJobs.0.template.spec.template"
SUSPENDED: Final = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
AT_REST: Final = [SUSPENDED | {"lastTransitionTime": START}]


async def template(stage: Stage) -> KubeObject:
    """Return the pod template of the Job."""
    found: KubeObject = (await stage.jobs())[JOB]["spec"]["template"]
    return found


async def is_suspended(stage: Stage) -> bool:
    """Return whether the Job is suspended."""
    return bool((await stage.jobs())[JOB]["spec"]["suspend"])


async def admit(stage: Stage, *, suspend: bool = False, **changes: Any) -> None:
    """Change the pod template and suspend in one write, as a queue does; a path has `__` for each dot."""
    manifest = await stage.jobset()
    for path, value in changes.items():
        manifest = changed(manifest, f"{POD}.{path.replace('__', '.')}", value)
    await stage.edit({"spec": {"suspend": suspend, "replicatedJobs": manifest["spec"]["replicatedJobs"]}})


async def suspended(stage: Stage, **changes: Any) -> None:
    """Create a suspended JobSet with a filled pod template; wait until its Job is suspended."""
    manifest = jobset(strategy=None, suspend=True)
    for path, value in changes.items():
        manifest = changed(manifest, f"{POD}.{path.replace('__', '.')}", value)
    await stage.start(manifest)
    await stage.report(JOB, conditions=AT_REST)


@dataclass(frozen=True)
class Change:
    """One part of the pod template before and after; `seen` is the Job's value afterwards, if it differs."""

    claim: str
    path: str
    before: Any
    after: Any
    ours: tuple[str, ...] = ()


TOLERATION: Final = {"key": "gpu", "operator": "Exists"}
CHANGES: Final = (
    Change("selector_added", "spec__nodeSelector", {}, {"zone": "a"}),
    Change("selector_replaced", "spec__nodeSelector", {"zone": "a", "rack": "1"}, {"zone": "b"}),
    Change("selector_removed", "spec__nodeSelector", {"zone": "a"}, {}),
    Change("toleration_added", "spec__tolerations", [], [TOLERATION]),
    Change("toleration_replaced", "spec__tolerations", [TOLERATION], [TOLERATION | {"key": "spot"}]),
    Change("toleration_removed", "spec__tolerations", [TOLERATION], []),
    Change("gate_added", "spec__schedulingGates", [], [{"name": "example.com/hold"}]),
    Change("gate_replaced", "spec__schedulingGates", [{"name": "example.com/a"}], [{"name": "example.com/b"}]),
    Change("gate_removed", "spec__schedulingGates", [{"name": "example.com/a"}], []),
    Change("label_added", "metadata__labels", {}, {"queue": "a"}),
    Change("label_replaced", "metadata__labels", {"queue": "a"}, {"queue": "b"}),
    Change("label_removed", "metadata__labels", {"queue": "a", "kept": "1"}, {"kept": "1"}),
    Change("annotation_added", "metadata__annotations", {}, {"queue": "a"}),
    Change("annotation_removed", "metadata__annotations", {"queue": "a"}, {}),
)


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case.claim)
async def test_a_queue_changes_the_template(stage: Stage, case: Change) -> None:
    """A resumed Job has the JobSet's current template, removals included, and keeps our keys."""
    await suspended(stage, **{case.path: case.before})
    keys = {key for key in (await template(stage))["metadata"]["labels"] if "jobset.sigs.k8s.io" in key}
    await admit(stage, **{case.path: case.after})
    await eventually(lambda: is_suspended(stage), False)
    found = await template(stage)
    part, name = case.path.split("__")
    seen = found[part].get(name) or type(case.after)()
    if part == "metadata":
        seen = {key: value for key, value in seen.items() if key in ("queue", "kept")}
    assert seen == case.after
    assert {key for key in found["metadata"]["labels"] if "jobset.sigs.k8s.io" in key} == keys
    assert await stage.warnings() == []


async def test_a_started_job_is_resumed_with_another_template(stage: Stage) -> None:
    """A started Job's start time is cleared, and it is resumed AFTER the Job controller has stopped it."""
    await stage.start(jobset(strategy=None))
    await stage.be_ready(JOB)
    await admit(stage, suspend=True, spec__nodeSelector={"zone": "b"})
    await eventually(lambda: is_suspended(stage), True)
    await stage.edit({"spec": {"suspend": False}})
    await stage.report(JOB, active=0, ready=0, conditions=AT_REST)
    await eventually(lambda: is_suspended(stage), False)
    assert (await template(stage))["spec"]["nodeSelector"] == {"zone": "b"}
    assert "startTime" not in (await stage.jobs())[JOB]["status"]


async def test_a_running_job_is_not_touched(stage: Stage) -> None:
    """A template change while suspended reaches the Jobs only at the resume."""
    await suspended(stage)
    await admit(stage, suspend=True, spec__nodeSelector={"zone": "a"})
    await stage.edit({"spec": {"ttlSecondsAfterFinished": 9}})
    await stage.counts_are("workers", suspended=1)
    assert "nodeSelector" not in (await template(stage))["spec"]


SIZED: Final = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}
RESIZED: Final = {"requests": {"cpu": "2", "example.com/gpu": "4"}, "limits": {"example.com/gpu": "4"}}
ENDING: Final = "Ensure MutablePodResourcesForSuspendedJobs is enabled on the API server."


def sized(*, suspend: bool) -> KubeObject:
    """Return a JobSet with two sized containers and an init container."""
    worker = {"name": "worker", "image": "worker:1", "resources": SIZED}
    containers = {"containers": [worker, worker | {"name": "log"}], "initContainers": [worker | {"name": "init"}]}
    manifest = jobset(strategy=None, suspend=suspend)
    for part, value in containers.items():
        manifest = changed(manifest, f"{POD}.spec.{part}", value)
    return manifest


@pytest.mark.parametrize("ran", [False, True])
async def test_resources_are_changed_while_suspended(stage: Stage, ran: bool) -> None:
    """A resumed Job has the template's requests and limits, container by container; before the resume nothing moves."""
    await stage.start(sized(suspend=not ran))
    if ran:
        await stage.be_ready(JOB)
        await stage.edit({"spec": {"suspend": True}})
        await eventually(lambda: is_suspended(stage), True)
        await stage.report(JOB, active=0, ready=0, conditions=AT_REST)
    uid = (await stage.jobs())[JOB]["metadata"]["uid"]
    change = {"spec__containers__0__resources": RESIZED, "spec__initContainers__0__resources": None}
    await admit(stage, suspend=True, **change)
    await stage.becomes("Suspended", "True", "SuspendedJobs", "jobset is suspended")
    assert (await template(stage))["spec"]["containers"][0]["resources"] == SIZED
    await stage.edit({"spec": {"suspend": False}})
    await eventually(lambda: is_suspended(stage), False)
    spec = (await template(stage))["spec"]
    assert [each.get("resources") for each in spec["containers"]] == [RESIZED, SIZED]
    assert spec["initContainers"][0]["resources"] == {}
    assert (await stage.jobs())[JOB]["metadata"]["uid"] == uid
    assert await stage.warnings() == []


async def test_resources_that_the_server_refuses(stage: Stage) -> None:
    """An Event names the Job, the error and the gate; the Job stays suspended, and runs once the template is mended."""
    await stage.start(sized(suspend=True))
    await admit(stage, spec__containers__0__resources={"requests": {"cpu": "4"}, "limits": {"cpu": "2"}})
    await stage.says_soon("FailedResourcePropagation")
    kind, note = (await stage.events())["FailedResourcePropagation"]
    assert (kind, JOB in note, "must be less than or equal to cpu limit" in note) == ("Warning", True, True)
    assert note.endswith(ENDING)
    assert await is_suspended(stage)
    await admit(stage, suspend=True, spec__containers__0__resources=RESIZED)
    await stage.edit({"spec": {"suspend": False}})
    await eventually(lambda: is_suspended(stage), False)
    assert (await template(stage))["spec"]["containers"][0]["resources"] == RESIZED
