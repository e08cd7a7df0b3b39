"""Elastic Indexed Jobs: parallelism and completions that change while the JobSet lives."""

from __future__ import annotations

from typing import Any, Final

import pytest

from inplace.common.kube.errors import Invalid
from inplace.common.kube.resources import KubeObject
from testbed.waiting import eventually
from tests.cluster.features.stage import START, Stage
from tests.controller.manifests import jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB: Final = "train-workers-0"


async def resize(stage: Stage, pods: int, **spec: Any) -> None:
    """Give the one replicatedJob another size."""
    await stage.edit({"spec": {"replicatedJobs": [replicated_job(pods=pods, **spec)]}})


async def size(stage: Stage, name: str = JOB) -> tuple[int, int]:
    """Return (parallelism, completions) of a Job."""
    spec = (await stage.jobs())[name]["spec"]
    return spec["parallelism"], spec["completions"]


@pytest.mark.parametrize("sizes", [(4,), (1,), (4, 1, 3)], ids=["up", "down", "up-down-up"])
async def test_resized(stage: Stage, sizes: tuple[int, ...]) -> None:
    """The same Job gets the new size, and no restart happens or counts."""
    before = await stage.start(jobset(strategy="Recreate"))
    await stage.be_ready(JOB)
    for pods in sizes:
        await resize(stage, pods)
        await eventually(lambda: size(stage), (pods, pods))
    after = await stage.jobs()
    assert after[JOB]["metadata"]["uid"] == before[JOB]["metadata"]["uid"]
    await stage.shows(restarts=0)


async def test_only_what_changed_is_resized(stage: Stage) -> None:
    """All unfinished Jobs of the resized replicatedJob change, and no other Job."""
    jobs = [replicated_job("a", replicas=2), replicated_job("b")]
    await stage.start(jobset(strategy=None, jobs=jobs))
    await stage.succeed("train-a-0")
    await stage.counts_are("a", succeeded=1)
    await stage.edit({"spec": {"replicatedJobs": [replicated_job("a", replicas=2, pods=3), replicated_job("b")]}})
    await eventually(lambda: size(stage, "train-a-1"), (3, 3))
    assert (await size(stage, "train-a-0"), await size(stage, "train-b-0")) == ((2, 2), (2, 2))


async def test_resized_while_suspended(stage: Stage) -> None:
    """A suspended Job is resized and has the new size when it is resumed."""
    await stage.start(jobset(strategy=None, suspend=True))
    await resize(stage, 5)
    await eventually(lambda: size(stage), (5, 5))
    await stage.edit({"spec": {"suspend": False}})

    async def is_suspended() -> bool:
        return bool((await stage.jobs())[JOB]["spec"]["suspend"])

    await eventually(is_suspended, False)
    await stage.be_ready(JOB)
    await stage.counts_are("workers", ready=1, active=1)


async def test_recreated_at_the_new_size(stage: Stage) -> None:
    """A restart makes Jobs of the spec's current size."""
    await stage.start(jobset(strategy="Recreate"))
    await resize(stage, 3)
    await eventually(lambda: size(stage), (3, 3))
    await stage.fail(JOB)
    await eventually(lambda: stage.labels_of("jobset.sigs.k8s.io/restart-attempt"), {JOB: "1"})
    assert await size(stage) == (3, 3)


async def test_a_finished_jobset_is_not_resized(stage: Stage) -> None:
    """The write is refused in upstream's words; its Jobs have ended and keep their size."""
    await stage.start(jobset(strategy=None))
    await stage.succeed(JOB)
    await stage.becomes_terminal("Completed")
    with pytest.raises(Invalid, match="Cannot mutate parallelism or completions when JobSet is in a terminal state"):
        await resize(stage, 4)
    await stage.edit({"metadata": {"labels": {"looked": "again"}}})
    await stage.counts_are("workers", succeeded=1)
    assert await size(stage) == (2, 2)


@pytest.mark.parametrize("pods", [3, 1])
async def test_resized_in_place(stage: Stage, pods: int) -> None:
    """The group restarts once at its new size, and with maxRestarts 0 that is no failure."""
    await stage.start(jobset(restarts_max=0))
    await stage.make_pods()
    await stage.announce_all(1)
    await eventually(stage.epochs, (1, 0))
    await resize(stage, pods)
    await eventually(lambda: size(stage), (pods, pods))
    if pods == 3:
        assert await stage.epochs() == (1, 0)  # the running workers go on until a new Pod announces
        await stage.make_pods()
    else:
        await eventually(stage.epochs, (1, 1))
        await stage.remove(stage.pods[JOB, 1])
    await stage.announce_all(2)
    await eventually(lambda: synced(stage), 2)
    assert (await stage.status())["exemptEpochs"] == 1
    assert (await stage.status()).get("terminalState") in (None, "")


async def synced(stage: Stage) -> int:
    """Return S."""
    return (await stage.epochs())[0]


def queued(pods: int) -> KubeObject:
    """Return a Job status with this number of ready Pods."""
    return {"startTime": START, "active": pods, "ready": pods}


async def test_counters_follow_the_size(stage: Stage) -> None:
    """The counter `ready` compares with the current size."""
    await stage.start(jobset(strategy=None))
    await stage.report(JOB, **queued(2))
    await stage.counts_are("workers", active=1, ready=1)
    await resize(stage, 3)
    await stage.counts_are("workers", active=1)
    await stage.report(JOB, **queued(3))
    await stage.counts_are("workers", active=1, ready=1)
