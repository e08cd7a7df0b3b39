"""Other parts end in the middle of a group restart: kubelet, the runtime, the API server, the controller, a Pod."""

from __future__ import annotations

import asyncio

import pytest

from inplace.common.wire import names as wire
from testbed.node.evidence import ran
from testbed.node.group import SETTLED_S_MAX, Group
from testbed.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUIET_S = 1.0  # kubelet takes some 0.3 s for a container on a busy node


async def until_announced(group: Group, epoch: int, *, by: int) -> None:
    """Return when `count` Pods announced an epoch, in the middle of a restart."""

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


async def until_all_wait(group: Group, epoch: int) -> None:
    """Return when all Pods wait at the barrier for an epoch: the paused controller does not write S."""
    await let_hang(group, 1)  # its Pod announces a grace period later than the others
    await group.kill(0, "worker")
    await until(lambda: group.epochs()[1] == epoch - 1, "D", timeout_s=SETTLED_S_MAX, also=group.state)
    group.cluster.controller.pause()
    await until_announced(group, epoch, by=group.slots)
    assert group.epoch == epoch - 1


async def until_quiet(group: Group) -> None:
    """Return when no Pod has changed for a second: kubelet has made all the containers that it can make."""

    def versions() -> set[str]:
        return {pod["metadata"]["resourceVersion"] for pod in group.pods()}

    seen: set[str] = set()
    while seen != versions():
        seen = versions()
        await asyncio.sleep(QUIET_S)


async def until_settled(group: Group, epoch: int, before: set[str]) -> None:
    """Return when the group runs at an epoch, in the same Pods, and check that no rule is broken."""
    await group.until_runs(epoch)
    assert group.uids() == before
    assert group.broken() == []


async def test_kubelet_restarts_while_the_group_waits_at_the_barrier(group: Group) -> None:
    """When kubelet ends while all wait, the restart goes on once kubelet and the controller are back."""
    epoch, before, node, controller = group.epoch + 1, group.uids(), group.cluster.nodes[0], group.cluster.controller
    await until_all_wait(group, epoch)
    await until_quiet(group)
    await node.stop_kubelet(kill=True)
    await controller.stop(kill=True)
    await node.start_kubelet()
    controller.start()
    await until_settled(group, epoch, before)


@pytest.mark.long
async def test_kubelet_restarts_while_containers_restart(group: Group) -> None:
    """When kubelet ends after the first announcement, the restart waits until it is back, and continues.

    A container that it was creating at its end is a dead one to the next kubelet: then the group restarts once more.
    """
    epoch, before, node = group.epoch + 1, group.uids(), group.cluster.nodes[0]
    await group.kill(0, "worker")
    await until_announced(group, epoch, by=1)
    await node.stop_kubelet(kill=True)
    await node.start_kubelet()

    def all_run() -> bool:
        return any(len(ran(group.evidence, each)) == group.slots for each in (epoch, epoch + 1))

    await until(all_run, "all workers run", timeout_s=SETTLED_S_MAX, also=group.state)
    await until_quiet(group)
    assert group.epoch in (epoch, epoch + 1)
    await until_settled(group, group.epoch, before)


async def test_the_runtime_restarts_while_the_group_restarts(group: Group) -> None:
    """When containerd is killed during a restart and started again, containers live on and the restart ends."""
    epoch, before, node = group.epoch + 1, group.uids(), group.cluster.nodes[0]
    await group.kill(0, "worker")
    await node.stop_containerd(kill=True)
    await node.start_containerd()
    await until_settled(group, epoch, before)


@pytest.mark.parametrize("announced", [0, 1])
async def test_the_controller_is_killed_before_the_last_announcement(group: Group, announced: int) -> None:
    """A controller killed after one announcement is followed by one that continues from the stored state."""
    epoch, before, controller = group.epoch + 1, group.uids(), group.cluster.controller
    if announced == 0:
        await controller.stop(kill=True)
    await group.kill(0, "worker")
    await until_announced(group, epoch, by=1)
    await controller.stop(kill=True)
    controller.start()
    await until_settled(group, epoch, before)


async def test_the_controller_is_killed_after_the_last_announcement(group: Group) -> None:
    """When the controller dies after the last announcement, before it wrote S, the next controller writes it."""
    epoch, before, controller = group.epoch + 1, group.uids(), group.cluster.controller
    await until_all_wait(group, epoch)
    await controller.stop(kill=True)
    controller.start()
    await until_settled(group, epoch, before)


async def test_the_api_server_restarts_during_a_group_restart(group: Group) -> None:
    """When the API server is killed at the first announcement, all Pods wait for it and none restarts twice."""
    epoch, before = group.epoch + 1, group.uids()
    await group.kill(0, "worker")
    await until_announced(group, epoch, by=1)
    await group.cluster.plane.restart_apiserver(kill=True)
    await until_settled(group, epoch, before)


async def test_a_worker_that_ignores_sigterm_is_ended_all_the_same(group: Group) -> None:
    """A hanging worker delays the group by its grace period, and never runs beside the next epoch."""
    epoch, before = group.epoch + 1, group.uids()
    await let_hang(group, 1)
    await group.kill(0, "worker")
    await until_settled(group, epoch, before)


async def test_failures_of_all_workers_at_once_cost_one_restart(group: Group) -> None:
    """When all workers die together, the group restarts once.

    All supervisors may announce the new epoch before the controller's pass; then it is synced at once, without D.
    """
    (synced, deprecated), before = group.epochs(), group.uids()
    await group.kill_all("worker")
    await until_settled(group, synced + 1, before)
    assert group.epochs() in {(synced + 1, synced), (synced + 1, deprecated)}


async def test_a_deleted_pod_is_replaced_and_the_group_restarts(group: Group) -> None:
    """When a user deletes a Pod, its Job makes another one, and the other Pods restart in place."""
    epoch = group.epoch + 1
    victim, *others = group.pods()
    await group.delete(victim)
    await group.until_runs(epoch)

    assert {pod["metadata"]["uid"] for pod in others} < group.uids()
    gone = victim["metadata"]["uid"]  # its Job keeps it until the replacement is there: it counts the index's failures
    await until(lambda: gone not in group.uids(), "the deleted Pod is gone", timeout_s=SETTLED_S_MAX)
    assert group.broken() == []
