"""The shipped install on a real node: deploy/ and our images, unchanged."""

from __future__ import annotations

import pytest

from inplace.common.kube.resources import LEASES, PODS, Resource
from testbed.kubectl import done
from testbed.node.cluster import Cluster, install_needed
from testbed.node.group import SETTLED_S_MAX, running_group
from testbed.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SYSTEM = "inplace-system"
NAME = "inplace-controller"


async def test_what_is_shipped_restarts_a_group_and_survives_its_leader(cluster: Cluster) -> None:
    """After one kubectl apply two controllers run; a group restarts, and again after the leader's Pod is deleted."""
    client, kubeconfig = cluster.client, cluster.plane.kubeconfig
    await cluster.controller.stop()
    try:
        await done(kubeconfig, "apply", "--server-side", "--force-conflicts", "-k", "deploy/")

        async def available() -> bool:
            status = (await client.get(DEPLOYMENTS, SYSTEM, NAME)).get("status") or {}
            return bool(status.get("availableReplicas") == 2)

        await until(available, "two controllers are available", timeout_s=SETTLED_S_MAX)
        async with running_group(cluster, "containers") as group:
            await group.until_runs(1)
            before = group.uids()
            await group.kill(0, "worker")
            await group.until_runs(2)

            leader = (await client.get(LEASES, SYSTEM, NAME))["spec"]["holderIdentity"]
            (pod,) = (p for p in (await client.list(PODS, SYSTEM))["items"] if leader.startswith(p["metadata"]["name"]))
            await client.delete(PODS, SYSTEM, pod["metadata"]["name"])
            await group.kill(1, "worker")
            await group.until_runs(3)

            assert group.uids() == before
            assert group.broken() == []
    finally:
        await done(kubeconfig, "delete", "-k", "deploy/base")
        await install_needed(client)
        cluster.controller.start()
