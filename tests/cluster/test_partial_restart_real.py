"""Partial restart on a real kube-apiserver: scopes in a Table, the CRD's rules for them, and real agents."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.errors import Invalid
from inplace.common.kube.resources import JOBSETS
from inplace.common.wire import names as wire
from testbed.control_plane import ControlPlane
from testbed.group import Group, PlayedPod, running_controller, running_group
from testbed.played_agent import RESTART_EXIT_CODE

pytestmark = pytest.mark.asyncio(loop_scope="session")


def of(group: Group, replicated_job: str) -> list[PlayedPod]:
    """Return the Pods of one replicatedJob."""
    return [pod for name, pod in group.pods.items() if f"-{replicated_job}-" in name]


def lifted(group: Group, **epochs: int) -> bool:
    """Return whether each barrier's last lift was at its replicatedJob's epoch."""
    return all(
        len(of(group, name)) == 2 and all(pod.lifts[-1:] == [epoch] for pod in of(group, name))
        for name, epoch in epochs.items()
    )


async def scopes(group: Group) -> dict[str, tuple[int, int]]:
    """Return (S, D) by scope."""
    entries = (await group.jobset())["status"][wire.SCOPED_EPOCHS]
    return {entry["name"]: (entry[wire.SYNCED_EPOCH], entry[wire.DEPRECATED_EPOCH]) for entry in entries}


async def test_a_killed_agent_restarts_its_scope_and_no_other(
    full_control_plane: ControlPlane, full_namespace: str
) -> None:
    """A killed agent brings its scope to epoch 2, and the other scope stays at epoch 1; agents read the Table."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace, pods=2, divided=True) as group, running_controller(plane, namespace):
        await group.until(lambda: lifted(group, workers=1, others=1), "every barrier lifted at epoch 1")
        first, second = of(group, "workers")
        first.kill()
        await group.until(lambda: lifted(group, workers=2, others=1), "the workers' barriers lifted at epoch 2")
        assert await scopes(group) == {"others": (1, 0), "workers": (2, 1)}
        assert second.exits == [RESTART_EXIT_CODE]
        assert [pod.exits for pod in of(group, "others")] == [[], []]

        of(group, "others")[0].kill()
        await group.until(lambda: lifted(group, workers=2, others=2), "the others' barriers lifted at epoch 2")
        assert [pod.lifts for pod in group.pods.values()] == [[1, 2]] * 4


@pytest.mark.parametrize(
    "change",
    [
        {wire.RESTART_SCOPE_FIELD: "Group"},
        {wire.RESTART_SCOPE_FIELD: None},
        {wire.SCOPED_EPOCHS: None},
        {wire.SCOPED_EPOCHS: [{"name": "workers", wire.SYNCED_EPOCH: 9}]},
        {wire.SCOPED_EPOCHS: [{"name": "workers", wire.SYNCED_EPOCH: 0}, {"name": "others", wire.SYNCED_EPOCH: 1}]},
        {wire.SCOPED_EPOCHS: [{"name": "workers", wire.SYNCED_EPOCH: 1, wire.DEPRECATED_EPOCH: 2}, {"name": "others"}]},
    ],
)
async def test_the_server_refuses_to_take_a_scope_back(
    full_control_plane: ControlPlane, full_namespace: str, change: dict[str, Any]
) -> None:
    """The server refuses to remove or change the division or an entry, and to decrease its epochs or pass S."""
    async with running_group(full_control_plane, full_namespace, pods=1, divided=True) as group:
        begun = {
            wire.RESTART_SCOPE_FIELD: "ReplicatedJob",
            wire.SCOPED_EPOCHS: [{"name": "others"}, {"name": "workers", wire.SYNCED_EPOCH: 1}],
        }
        path = (JOBSETS, full_namespace, "train")
        await group.client.patch(*path, {"status": begun}, subresource="status")
        with pytest.raises(Invalid, match="scope"):
            await group.client.patch(*path, {"status": change}, subresource="status")
