"""Group restarts of real containers: kubelet, containerd, our images, our controller."""

from __future__ import annotations

import pytest

from tests.cluster.node.cluster import Cluster
from tests.cluster.node.group import running_group

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_killed_worker_restarts_the_group_in_place(cluster: Cluster, mode: str) -> None:
    """SIGKILL to one worker: everybody runs again at epoch 2, in the Pods that were there."""
    async with running_group(cluster, mode) as group:
        await group.until_runs(1)
        before = group.uids()
        group.kill(group.pods()[0], "worker")
        await group.until_runs(2)

        assert group.epochs() == (2, 1)
        assert group.uids() == before
        assert group.broken() == []
