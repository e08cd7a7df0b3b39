"""Kueue is away: what runs goes on and restarts in place; what was half done is done when Kueue is back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from testbed.api_client import UnexpectedStatus
from tests.cluster.clients.conftest import OpenQueue
from tests.cluster.clients.manifests import jobset
from tests.cluster.clients.queue import Queue, condition, is_true, priority_class, until

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def away(queue: Queue, *, kill: bool = False) -> AsyncIterator[None]:
    """Run the body without Kueue, its controller and its webhooks."""
    await queue.world.kueue.stop(kill=kill)
    try:
        yield
    finally:
        await queue.world.kueue.start()


async def test_a_group_restart_without_kueue(queue: Queue) -> None:
    """A group restarts in place while Kueue is away, and its Workload is as it was when Kueue is back."""
    await queue.in_place(jobset())
    pods = await queue.lifted(1)
    workload = await queue.workload()
    async with away(queue):
        pods[0].restart_containers()
        await queue.lifted(2)
    now = await queue.workload()
    assert (now["metadata"]["uid"], condition(now, "Evicted")) == (workload["metadata"]["uid"], {})


async def test_a_lost_pod_without_kueue(queue: Queue) -> None:
    """Without Kueue's webhook no Pod is made, so a lost one comes with Kueue; the group waits, and restarts then."""
    await queue.in_place(jobset())
    kept, gone = await queue.lifted(1)
    async with away(queue):
        await queue.world.api.delete(gone.path)
        await queue.is_gone(gone.path)
        assert [pod.path for pod in queue.played()] == [kept.path]
    await queue.lifted(2)
    assert condition(await queue.workload(), "Evicted") == {}


async def test_a_jobset_without_kueues_webhook(queue: Queue) -> None:
    """A JobSet cannot be made while Kueue's webhook is away, with or without a queue, and the refusal names the webhook."""
    async with away(queue, kill=True):
        with pytest.raises(UnexpectedStatus, match=r"jobset\.kb\.io"):
            await queue.submit(jobset())
    await queue.submit(jobset())
    await queue.admitted()
    await queue.pods_are_ready(2)


async def test_kueue_dies_in_mid_eviction(opened: OpenQueue) -> None:
    """Kueue marks a Workload as evicted and dies; when it is back, the group is suspended and the other one runs."""
    queue = await opened({"any": 3}, preemption={"withinClusterQueue": "LowerPriority"})
    for name, value in (("low", 1), ("high", 100)):
        await queue.world.applier.apply_one(priority_class(name, value))
    await queue.in_place(jobset(), priority="low")
    await queue.lifted(1)
    await queue.submit(jobset(name="high"), priority="high")

    async def is_marked() -> bool:
        return bool(condition(await queue.workload(), "Evicted"))

    await until(is_marked, "an evicted Workload")
    async with away(queue, kill=True):
        assert (await queue.jobset()) is not None
    await queue.workload_is("Admitted", "high")
    await queue.pods_are_ready(2)
    await queue.delete("high")
    await queue.workload_is("Admitted")

    async def runs() -> bool:
        found = queue.played()
        return len(found) == 2 and all(is_true(pod.stored, "Ready") for pod in found)

    await until(runs, "two Pods that are Ready")
    assert await queue.workloads_so_far() == 2
