"""Other parts end in the middle of a group restart: kubelet, the runtime, the API server, the controller, a Pod."""

from __future__ import annotations

import asyncio

import pytest

from inplace.common import wire
from testbed.node.group import SETTLED_S_MAX, Group
from testbed.node.patience import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def until_announced(group: Group, epoch: int, *, by: int) -> None:
    """Return when so many Pods announced an epoch: the group is in the middle of its restart."""

    def holds() -> bool:
        announced = [wire.epoch_of_pod(pod["metadata"].get("annotations") or {}) for pod in group.pods()]
        return sum(each == epoch for each in announced) >= by

    await until(holds, f"{by} announcements of {epoch}", timeout_s=SETTLED_S_MAX, also=group.state)


async def let_hang(group: Group, slot: int) -> None:
    """Let a worker ignore SIGTERM from now on."""
    hanging = group.pods()[slot]
    group.order(hanging, "hang")
    taken = group.evidence / f"{hanging['metadata']['name']}.order"
    await until(lambda: not taken.exists(), "the order is taken", timeout_s=SETTLED_S_MAX)


async def until_settled(group: Group, epoch: int, before: set[str]) -> None:
    """Return when the group runs at an epoch: in the Pods of before, with no rule broken."""
    await group.until_runs(epoch)
    assert group.uids() == before
    assert group.broken() == []


async def test_kubelet_restarts_while_the_group_waits_at_the_barrier(group: Group) -> None:
    """Kubelet ends when the first Pod has announced and comes back later: the restart waits for it, no more."""
    epoch, before, node = group.epoch + 1, group.uids(), group.cluster.nodes[0]
    await group.kill(0, "worker")
    await until_announced(group, epoch, by=1)
    await node.stop_kubelet(kill=True)
    await node.start_kubelet()
    await until_settled(group, epoch, before)


async def test_the_runtime_restarts_while_the_group_restarts(group: Group) -> None:
    """Containerd is killed in the middle and started again: containers live on below their shims, the restart ends."""
    epoch, before, node = group.epoch + 1, group.uids(), group.cluster.nodes[0]
    await group.kill(0, "worker")
    await node.stop_containerd(kill=True)
    await node.start_containerd()
    await until_settled(group, epoch, before)


@pytest.mark.parametrize("announced", [0, 1])
async def test_the_controller_is_killed_before_the_last_announcement(group: Group, announced: int) -> None:
    """Before the failure is known, with one announcement: the next controller goes on from what is stored."""
    epoch, before, controller = group.epoch + 1, group.uids(), group.cluster.controller
    if announced == 0:
        await controller.stop(kill=True)
    await group.kill(0, "worker")
    await until_announced(group, epoch, by=1)
    await controller.stop(kill=True)
    controller.start()
    await until_settled(group, epoch, before)


async def test_the_controller_is_killed_after_the_last_announcement(group: Group) -> None:
    """It stands still while the last Pod announces, and dies before it has written S: the next one writes it."""
    epoch, before, controller = group.epoch + 1, group.uids(), group.cluster.controller
    await let_hang(group, 1)  # its announcement comes a grace period after the others'
    await group.kill(0, "worker")
    await until(lambda: group.epochs()[1] == epoch - 1, "D", timeout_s=SETTLED_S_MAX, also=group.state)
    controller.pause()
    await until_announced(group, epoch, by=group.slots)
    await controller.stop(kill=True)
    assert group.epoch == epoch - 1
    controller.start()
    await until_settled(group, epoch, before)


async def test_the_api_server_restarts_during_a_group_restart(group: Group) -> None:
    """The API server is killed as the first Pod announces: everybody waits for it and nobody restarts twice."""
    epoch, before = group.epoch + 1, group.uids()
    await group.kill(0, "worker")
    await until_announced(group, epoch, by=1)
    await group.cluster.plane.restart_apiserver(kill=True)
    await until_settled(group, epoch, before)


async def test_a_worker_that_ignores_sigterm_is_ended_all_the_same(group: Group) -> None:
    """A hanging worker holds the group up for its grace period, and never runs beside the next epoch."""
    epoch, before = group.epoch + 1, group.uids()
    await let_hang(group, 1)
    await group.kill(0, "worker")
    await until_settled(group, epoch, before)


async def test_failures_of_all_workers_at_once_cost_one_restart(group: Group) -> None:
    """Everybody dies in the same moment: one epoch.

    Supervisors may all have announced it before the controller looks: it is synced then, and D tells nobody anything.
    """
    (synced, deprecated), before = group.epochs(), group.uids()
    await asyncio.gather(*(group.kill(slot, "worker") for slot in range(group.slots)))
    await until_settled(group, synced + 1, before)
    assert group.epochs() in {(synced + 1, synced), (synced + 1, deprecated)}


async def test_a_deleted_pod_is_replaced_and_the_group_restarts(group: Group) -> None:
    """A user deletes a Pod: the Job makes another, and the others keep theirs and restart in place."""
    epoch = group.epoch + 1
    victim, *others = group.pods()
    await group.delete(victim)
    await group.until_runs(epoch)

    assert {pod["metadata"]["uid"] for pod in others} < group.uids()
    assert victim["metadata"]["uid"] not in group.uids()
    assert group.broken() == []
