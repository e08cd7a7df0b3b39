"""Pods that end before they join are bounded by maxRestarts; no epoch shows them: the whole controller."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.exit_words import ended_with
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time


async def fail(rig: Rig, crew: Crew, pod: str, failed: int, *, code: int, evicted: bool = False) -> None:
    """Let a Pod's container end, and its Job make another one; failed Pods stay."""
    ended = {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    statuses = [{"name": "worker", "state": {"terminated": ended}}]
    await crew.set_pod(pod, phase="Failed", containerStatuses=statuses, conditions=[disruption] * evicted)
    await crew.set_job("train-workers-0", failed=failed)
    await crew.replace("train-workers-0", 0)
    await rig.settle(2.0)


@pytest.mark.parametrize("joined_before", [False, True])
async def test_ends_before_joining_are_counted(rig: Rig, joined_before: bool) -> None:
    """With two restarts, the third end is one too many; the message has the code and the count."""
    manifest = jobset(restarts_max=2, jobs=[replicated_job("workers", pods=2)])
    if joined_before:
        crew = await rig.started(manifest)
        first = next(iter(crew.pods.values()))
        await fail(rig, crew, first, 1, code=1)  # of a Pod that had joined: an epoch says it
    else:
        crew = await rig.with_pods(manifest)
    job = next(iter(await crew.jobs()))
    for failed in (1, 2, 3):
        assert await crew.find_condition("Failed") is None
        await fail(rig, crew, crew.pods[job, 0], failed + joined_before, code=127)
    condition = await crew.condition("Failed")
    assert condition["reason"] == "ReachedMaxRestarts"
    assert "3 pods of one slot ended before they joined" in condition["message"]
    assert "container worker exited with 127" in condition["message"]


@pytest.mark.parametrize(
    ("code", "evicted"), [(6, False), (137, False), (127, True)], ids=["its check failed", "killed", "evicted"]
)
async def test_other_ends_before_joining_are_not(rig: Rig, code: int, evicted: bool) -> None:
    """A node that fails a check, and one that is drained, are no fault of the job."""
    crew = await rig.with_pods(jobset(restarts_max=0, jobs=[replicated_job("workers", pods=2)]))
    job = next(iter(await crew.jobs()))
    for failed in (1, 2):
        await fail(rig, crew, crew.pods[job, 0], failed, code=code, evicted=evicted)
    assert await crew.find_condition("Failed") is None


async def test_a_replicated_job_that_opted_out_is_its_jobs_affair(rig: Rig) -> None:
    """Its Pods never announce; their Job counts how often they fail."""
    manifest = jobset(restarts_max=0, jobs=[replicated_job("workers", pods=2)])
    template = manifest["spec"]["replicatedJobs"][0]["template"]
    template.setdefault("metadata", {}).setdefault("annotations", {})[wire.DISABLE] = "true"
    crew = await rig.with_pods(manifest)
    job = next(iter(await crew.jobs()))
    await fail(rig, crew, crew.pods[job, 0], 1, code=1)
    assert await crew.find_condition("Failed") is None


async def restart_in_place(
    rig: Rig,
    crew: Crew,
    pod: str,
    count: int,
    *,
    code: int,
    container: str = "worker",
    reason: str = "RestartingAllContainers",
) -> None:
    """Let a container of a Pod end, and kubelet start the Pod's containers again, for the `count`-th time."""
    last = {"terminated": {"exitCode": 137, "reason": reason}} if count else {}
    ended = {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}
    running: KubeObject = {"running": {}}
    waiting: KubeObject = {"waiting": {"reason": reason}}
    for state in ({"terminated": ended}, waiting, running):
        parts = {}
        for field, name in (("containerStatuses", "worker"), ("initContainerStatuses", "inplace-agent")):
            now = state if name == container else running
            parts[field] = [{"name": name, "restartCount": count, "lastState": last, "state": now}]
        await crew.set_pod(pod, phase="Running", **parts)
    await rig.settle(1.0)


@pytest.mark.parametrize("announced", [False, True], ids=["never announced", "announced, and others are missing"])
@pytest.mark.parametrize(
    ("container", "code"), [("worker", 127), ("worker", 128), ("worker", 1), ("worker", 139), ("inplace-agent", 2)]
)
async def test_a_pod_that_starts_again_and_again_is_counted(
    rig: Rig, announced: bool, container: str, code: int
) -> None:
    """With two restarts, the third end is one too many, whichever container of the sidecar-mode Pod ends."""
    crew = await rig.with_pods(jobset(restarts_max=2, jobs=[replicated_job("workers", pods=2)]))
    pod = next(iter(crew.pods.values()))
    if announced:
        await crew.announce(pod, 1)
    for count in (0, 1, 2):
        assert await crew.find_condition("Failed") is None
        await restart_in_place(rig, crew, pod, count, code=code, container=container)
    condition = await crew.condition("Failed")
    assert condition["reason"] == "ReachedMaxRestarts"
    assert "the containers of one pod ended 3 times before they joined" in condition["message"]
    words = ended_with(code).replace("with exit code", "exited with")
    assert f"container {container} {words}" in condition["message"]


@pytest.mark.parametrize(
    "change",
    [
        {"code": 137},
        {"code": 143},
        {"code": 6},
        {"code": 0},
        {"code": 1, "container": "inplace-agent"},
        {"code": 88, "container": "inplace-agent"},
        {"code": 127, "reason": "Error"},
    ],
    ids=str,
)
async def test_other_restarts_before_joining_are_not(rig: Rig, change: dict[str, Any]) -> None:
    """Containers that others ended, a check that failed, an agent that tries again, and what kubelet backs off from."""
    crew = await rig.with_pods(jobset(restarts_max=0, jobs=[replicated_job("workers", pods=2)]))
    for count in range(5):
        await restart_in_place(rig, crew, next(iter(crew.pods.values())), count, **change)
    assert await crew.find_condition("Failed") is None


async def test_what_joined_at_last_is_forgotten(rig: Rig) -> None:
    """Ends before the first epoch do not use up the restarts of the training; the barrier named them meanwhile."""
    crew = await rig.with_pods(jobset(restarts_max=3, jobs=[replicated_job("workers", pods=2)]))
    pod = next(iter(crew.pods.values()))
    for count in range(3):
        await restart_in_place(rig, crew, pod, count, code=127)
    await rig.settle(20.0)
    assert "container worker exited with 127" in (await crew.condition("BarrierWaiting"))["message"]
    await rig.meet(crew, 1)
    assert (await crew.epochs()) == (1, 0)
    for epoch in (2, 3, 4):
        await rig.meet(crew, epoch, 2.0)
    assert await crew.find_condition("Failed") is None


async def test_restarts_with_the_group_are_no_early_ends(rig: Rig) -> None:
    """A Pod whose annotation somebody removed after restarts of its group did not end so often before it joined."""
    crew = await rig.with_pods(jobset(restarts_max=3, jobs=[replicated_job("workers", pods=2)]))
    pod = next(iter(crew.pods.values()))
    for epoch in (1, 2, 3):
        await restart_in_place(rig, crew, pod, epoch, code=88, container="inplace-agent")
        await rig.meet(crew, epoch, 2.0)
    assert await crew.epochs() == (3, 2)
    await crew.annotate(pod, dict.fromkeys((wire.EPOCH, wire.ATTEMPT)))
    await restart_in_place(rig, crew, pod, 3, code=1)
    assert await crew.find_condition("Failed") is None
