"""restartStrategy InPlaceRestart: epochs and attempts, and differences from upstream in special cases."""

from __future__ import annotations

from typing import Any, Final

import pytest

from inplace.common.wire import names as wire
from testbed.waiting import eventually
from tests.cluster.features.served import ServedController
from tests.cluster.features.stage import Stage
from tests.controller.manifests import changed, jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB: Final = "train-workers-0"
ATTEMPTS: Final = ("currentInPlaceRestartAttempt", "previousInPlaceRestartAttempt")


async def running(stage: Stage, *, restarts_max: int = 3, **options: Any) -> list[str]:
    """Bring a group to its first epoch; return its Pods."""
    await stage.start(jobset(restarts_max=restarts_max, **options))
    await stage.make_pods()
    await stage.announce_all(1)
    await eventually(stage.epochs, (1, 0))
    return list(stage.pods.values())


async def synced(stage: Stage) -> int:
    """Return S."""
    return (await stage.epochs())[0]


async def attempts(stage: Stage) -> tuple[Any, Any]:
    """Return (current, previous) as upstream counts them."""
    status = await stage.status()
    return status.get(ATTEMPTS[0]), status.get(ATTEMPTS[1])


async def test_a_group_restart(stage: Stage) -> None:
    """The first new announcement deprecates the old epoch, the last one syncs; no Job changes or counts."""
    first, *others = await running(stage)
    jobs, before = await stage.jobs(), await stage.status()
    assert await attempts(stage) == (0, None)
    await stage.announce(first, 2)
    await eventually(stage.epochs, (1, 1))
    assert await attempts(stage) == (0, 0)
    for pod in others:
        await stage.announce(pod, 2)
    await eventually(stage.epochs, (2, 1))
    assert await attempts(stage) == (1, 0)
    assert {n: j["metadata"]["uid"] for n, j in (await stage.jobs()).items()} == {
        n: j["metadata"]["uid"] for n, j in jobs.items()
    }
    after = await stage.status()
    assert [after[name] for name in ("restarts", "executionAttempts")] == [0, 0]
    assert after["startTime"] == before["startTime"]
    assert await stage.words("RestartingJobSet") is None


async def test_upstreams_agents(stage: Stage) -> None:
    """Pods that write only upstream's annotation restart in place too."""
    await stage.start(jobset())
    await stage.make_pods()
    for attempt, epoch in ((0, 1), (1, 2)):
        for pod in stage.pods.values():
            await stage.annotate(pod, {wire.ATTEMPT: str(attempt)})
        await eventually(lambda: synced(stage), epoch)
        assert (await attempts(stage))[0] == attempt


async def test_a_foreign_containers_restarts_are_its_own(stage: Stage) -> None:
    """A log sidecar that restarts more often than maxRestarts changes nothing; upstream fails the JobSet."""
    first, *_ = await running(stage, restarts_max=0)
    await stage.set_worker(first, run=9)
    await stage.edit({"metadata": {"labels": {"looked": "again"}}})
    await stage.be_ready(JOB)
    await stage.counts_are("workers", ready=1, active=1)
    assert (await stage.status()).get("terminalState") in (None, "")


async def test_a_namesakes_pods_do_not_count(stage: Stage) -> None:
    """Pods of a deleted JobSet with the same name do not count; upstream counts by the name alone."""
    job = (await stage.start(jobset()))[JOB]
    of_another = changed(
        changed(job, "metadata.uid", "gone"), "spec.template.metadata.labels", {wire.JOBSET_NAME: "train"}
    )
    stranger = await stage.make_pod(of_another, 0)
    await stage.announce(stranger, 7)
    await stage.make_pods()
    await stage.make_pod(job, 0)
    await stage.announce_all(1)
    await eventually(stage.epochs, (1, 0))


@pytest.mark.parametrize("garbage", ["", "x", "-1", "0", "2147483648", "1.5", " 2"])
async def test_garbage_in_an_annotation(stage: Stage, garbage: str) -> None:
    """One Pod's garbage annotation stops no group; upstream's reconcile stops for ever."""
    first, second = await running(stage)
    await stage.annotate(first, {wire.EPOCH: garbage, wire.ATTEMPT: garbage})
    await stage.announce(second, 2)
    await eventually(stage.epochs, (1, 1))
    await stage.announce(first, 2)
    await eventually(stage.epochs, (2, 1))


@pytest.mark.parametrize("replicas", [1, 2])
async def test_slots(stage: Stage, controller: ServedController, replicas: int) -> None:
    """The barrier waits for replicas x parallelism of every replicatedJob, and for the last of them."""
    jobs = [replicated_job("a", replicas=replicas), replicated_job("b", pods=1)]
    await stage.start(jobset(jobs=jobs))
    await stage.make_pods()
    *most, last = stage.pods.values()
    assert len(most) == 2 * replicas
    for pod in most:
        await stage.announce(pod, 1)
    labels = ("inplace_pods{", f'namespace="{stage.namespace}"', 'state="waiting"')

    async def wait_at_the_barrier() -> bool:
        lines = [one for one in controller.metrics().splitlines() if all(label in one for label in labels)]
        return [line.rpartition(" ")[2] for line in lines] == [f"{len(most)}.0"]  # an older chart rendering has none

    await eventually(wait_at_the_barrier, True)
    assert await stage.epochs() == (0, 0)
    await stage.announce(last, 1)
    await eventually(stage.epochs, (1, 0))
