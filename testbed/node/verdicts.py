"""Let Kubernetes find a dead node in seconds, and say when it did.

A kubelet renews its node's Lease every 10 s, and kube-controller-manager gives a node up 50 s after the last renewal.
That is long for a test, and longer than a short lease of a worker. Here both are shorter, in proportion.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from inplace.common.kube.resources import NODES
from testbed.node.cluster import Cluster
from testbed.node.machine import Node
from testbed.waiting import until

LEASE_S: Final = 8
"""nodeLeaseDurationSeconds: kubelet renews its node's Lease every quarter of it."""

LEASE_S_DEFAULT: Final = 40
GRACE_S: Final = 8
"""node-monitor-grace-period: without a renewal for so long, a node is given up."""

LOOK_S: Final = 1
VERDICT_S_MAX: Final = 60.0
UNREACHABLE: Final = "node.kubernetes.io/unreachable"


@asynccontextmanager
async def quick_verdicts(cluster: Cluster) -> AsyncIterator[None]:
    """Let the present nodes renew quickly and Kubernetes judge quickly; afterwards all is as before."""
    await _renew_every(cluster, LEASE_S)
    periods = (f"--node-monitor-grace-period={GRACE_S}s", f"--node-monitor-period={LOOK_S}s")
    await cluster.plane.restart_controller_manager(*periods)
    try:
        yield
    finally:
        await cluster.plane.restart_controller_manager()
        await _renew_every(cluster, LEASE_S_DEFAULT)


async def until_given_up(cluster: Cluster, node: Node) -> float:
    """Return when Kubernetes has tainted a node as unreachable, on the monotonic clock."""

    async def is_tainted() -> bool:
        taints = (await cluster.client.get(NODES, None, node.name))["spec"].get("taints") or []
        return any((taint["key"], taint["effect"]) == (UNREACHABLE, "NoExecute") for taint in taints)

    await until(is_tainted, f"{node.name} is given up", timeout_s=VERDICT_S_MAX)
    return time.monotonic()


async def _renew_every(cluster: Cluster, lease_s: int) -> None:
    nodes = [node for node in cluster.nodes if node.is_on]  # an earlier test may have lost some
    await asyncio.gather(*(node.restart_kubelet(nodeLeaseDurationSeconds=lease_s) for node in nodes))
