"""
Cut a node off: its kubelet, agents and workers go on, and reach nothing.

Kubernetes hears nothing of the node, gives its verdict, and deletes its Pods as soon as they tolerate that no longer.
"""

from __future__ import annotations

from inplace.common.kube.client import MERGE_PATCH
from inplace.common.kube.resources import NODES
from inplace.simulator.campaign.disturbance import Disturbance, DisturbanceKind
from inplace.simulator.campaign.network import Ending
from inplace.simulator.campaign.world import World
from inplace.simulator.cluster.node_loss import evict

PARTITION = "node-partition"


async def partition(world: World, node: str, verdict_s: float) -> Disturbance:
    """Cut a node off, and let Kubernetes give its verdict after so many seconds; return what cuts it off."""
    pods = [pod["metadata"]["name"] for pod in world.pods if pod["spec"].get("nodeName") == node]
    behind = {f"kubelet/{node}", *(f"agent/{name}" for name in pods)}
    cut = Disturbance(PARTITION, DisturbanceKind.LOSE, float("inf"), lambda client: client in behind)
    world.note_fault(PARTITION, node)
    world.judge.note_cause(2 * len(pods))  # each worker may end with its lease, and each Pod is replaced
    world.network.disturbances.append(cut)
    world.network.end_streams(Ending.SILENT, lambda stream: stream.client in behind)
    await world.clock.sleep(verdict_s)
    world.trace.add("verdict", node)
    await evict(world.client("node-lifecycle"), world.clock, node)
    return cut


async def heal(world: World, node: str, cut: Disturbance) -> None:
    """Let the node reach everything again."""
    world.network.disturbances.remove(cut)
    await world.client("user").patch(NODES, None, node, {"spec": {"taints": None}}, kind=MERGE_PATCH)
