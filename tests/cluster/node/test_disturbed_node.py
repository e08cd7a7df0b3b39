"""What else may end in the middle of a group restart: kubelet, the runtime, the API server, the controller, a Pod."""

from __future__ import annotations

import asyncio

import pytest

from common import wire
from tests.cluster.node.cluster import Cluster
from tests.cluster.node.group import SETTLED_S_MAX, Group, running_group
from tests.cluster.node.patience import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def until_announced(group: Group, epoch: int, *, by: int) -> None:
    """Return when so many Pods announced an epoch: the group is in the middle of its restart."""

    def holds() -> bool:
        announced = [wire.epoch_of_pod(pod["metadata"].get("annotations") or {}) for pod in group.pods()]
        return sum(each == epoch for each in announced) >= by

    await until(holds, f"{by} announcements of {epoch}", timeout_s=SETTLED_S_MAX, also=group.state)


async def test_a_deleted_pod_is_replaced_and_the_group_restarts(cluster: Cluster, mode: str) -> None:
    """A user deletes a Pod: the Job makes another, and the others keep theirs and restart in place."""
    async with running_group(cluster, mode) as group:
        await group.until_runs(1)
        victim, *others = group.pods()
        await group.delete(victim)
        await group.until_runs(2)

        assert {pod["metadata"]["uid"] for pod in others} < group.uids()
        assert victim["metadata"]["uid"] not in group.uids()
        assert group.broken() == []


async def test_kubelet_restarts_while_the_group_waits_at_the_barrier(cluster: Cluster, mode: str) -> None:
    """Kubelet ends when the first Pod has announced and comes back later: the restart waits for it, no more."""
    async with running_group(cluster, mode) as group:
        await group.until_runs(1)
        before = group.uids()
        node = cluster.nodes[0]
        await group.kill(0, "worker")
        await until_announced(group, 2, by=1)
        await node.stop_kubelet(kill=True)
        node.start_kubelet()
        await group.until_runs(2)

        assert group.uids() == before
        assert group.broken() == []


async def test_the_runtime_restarts_while_the_group_restarts(cluster: Cluster, mode: str) -> None:
    """Containerd is killed in the middle and started again: containers live on below their shims, the restart ends."""
    async with running_group(cluster, mode) as group:
        await group.until_runs(1)
        before = group.uids()
        node = cluster.nodes[0]
        await group.kill(0, "worker")
        await node.stop_containerd(kill=True)
        await node.start_containerd()
        await group.until_runs(2)

        assert group.uids() == before
        assert group.broken() == []


async def test_the_controller_is_killed_at_each_phase(cluster: Cluster, mode: str) -> None:
    """Before the failure is known, with one announcement, with all: the next controller goes on from what is stored."""
    async with running_group(cluster, mode) as group:
        await group.until_runs(1)
        before = group.uids()
        for epoch, announced in ((2, 0), (3, 1)):
            if announced == 0:
                await cluster.controller.stop(kill=True)
            await group.kill(0, "worker")
            await until_announced(group, epoch, by=max(announced, 1))
            await cluster.controller.stop(kill=True)
            cluster.controller.start()
            await group.until_runs(epoch)

        assert group.uids() == before
        assert group.broken() == []


async def test_the_api_server_restarts_during_a_group_restart(cluster: Cluster, mode: str) -> None:
    """The API server is killed as the first Pod announces: everybody waits for it and nobody restarts twice."""
    async with running_group(cluster, mode) as group:
        await group.until_runs(1)
        before = group.uids()
        await group.kill(0, "worker")
        await until_announced(group, 2, by=1)
        await cluster.plane.restart_apiserver(kill=True)
        await group.until_runs(2)

        assert group.uids() == before
        assert group.broken() == []


async def test_a_worker_that_ignores_sigterm_is_ended_all_the_same(cluster: Cluster, mode: str) -> None:
    """A hanging worker holds the group up for its grace period, and never runs beside the next epoch."""
    async with running_group(cluster, mode) as group:
        await group.until_runs(1)
        before = group.uids()
        hanging = group.pods()[1]
        group.order(hanging, "hang")
        taken = group.evidence / f"{hanging['metadata']['name']}.order"
        await until(lambda: not taken.exists(), "the order is taken", timeout_s=SETTLED_S_MAX)
        await group.kill(0, "worker")
        await group.until_runs(2)

        assert group.uids() == before
        assert group.broken() == []


async def test_failures_of_all_workers_at_once_cost_one_restart(cluster: Cluster, mode: str) -> None:
    """Everybody dies in the same moment: one epoch."""
    async with running_group(cluster, mode) as group:
        await group.until_runs(1)
        await asyncio.gather(*(group.kill(slot, "worker") for slot in range(group.slots)))
        await group.until_runs(2)

        assert group.epochs() == (2, 1)
        assert group.broken() == []
