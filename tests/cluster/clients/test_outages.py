"""Kueue is away: what runs goes on and restarts in place; what was half done is done when Kueue is back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from testbed.api_client import UnexpectedStatus
from testbed.waiting import until
from tests.cluster.clients.conftest import OpenQueue
from tests.cluster.clients.manifests import jobset
from tests.cluster.clients.pages import page_commands, run_command, saved
from tests.cluster.clients.queue import Queue, condition, is_true, priority_class

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
    """Kueue's webhook stands before every announcement: without it a group waits, and restarts when it is back."""
    await queue.in_place(jobset())
    pods = await queue.lifted(1)
    workload = await queue.workload()
    async with away(queue):
        pods[0].restart_containers()
        with pytest.raises(UnexpectedStatus, match=r"vpod\.kb\.io"):
            await queue.world.api.patch(pods[0].path, {"metadata": {"annotations": {"some": "update"}}})
        assert pods[1].lifts == [1]
    await queue.lifted(2)
    now = await queue.workload()
    assert (now["metadata"]["uid"], condition(now, "Evicted")) == (workload["metadata"]["uid"], {})


async def test_agents_without_the_webhook(queue: Queue, tmp_path: Path) -> None:
    """With agents left out of that webhook, as docs/with-kueue.md does it, lint is content and a group restarts."""
    (tmp_path / "agents.yaml").write_text(saved("with-kueue.md")["agents.yaml"])
    (command,) = (each for each in page_commands("with-kueue.md") if "agents.yaml" in each)
    kubeconfig, lint = queue.world.plane.kubeconfig, "inplace lint -f examples/train.yaml --cluster 2>&1 || true"
    assert "webhook vpod.kb.io" in await run_command(kubeconfig, lint)
    await run_command(kubeconfig, command, folder=tmp_path)
    assert "webhook vpod.kb.io" not in await run_command(kubeconfig, lint)
    await queue.in_place(jobset())
    pods = await queue.lifted(1)
    async with away(queue):
        pods[0].restart_containers()
        await queue.lifted(2)
    assert condition(await queue.workload(), "Evicted") == {}


async def test_a_lost_pod_without_kueue(queue: Queue) -> None:
    """Without Kueue's webhook no Pod is made, so a lost one is replaced when Kueue is back; then the group restarts."""
    await queue.in_place(jobset())
    kept, gone = await queue.lifted(1)
    async with away(queue):
        await queue.world.api.delete(gone.path)

        async def is_ending() -> bool:
            return "deletionTimestamp" in (await queue.pods())[gone.stored["metadata"]["name"]]["metadata"]

        await until(is_ending, "a Pod that is being deleted")
        assert {pod.path for pod in queue.played()} <= {kept.path, gone.path}
    await queue.lifted(2)
    assert condition(await queue.workload(), "Evicted") == {}


async def test_a_jobset_without_kueues_webhook(queue: Queue) -> None:
    """No JobSet can be made while Kueue's webhook is away, queued or not, and the refusal names the webhook."""
    plain = jobset(name="plain")
    plain["metadata"]["namespace"] = queue.namespace
    async with away(queue, kill=True):
        with pytest.raises(UnexpectedStatus, match=r"jobset\.kb\.io"):
            await queue.submit(jobset())
        with pytest.raises(UnexpectedStatus, match=r"jobset\.kb\.io"):
            await queue.world.applier.apply_one(plain)
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
