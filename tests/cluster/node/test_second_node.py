"""A group on two nodes, one of which is drained, or lost from one moment to the next."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from inplace.common.kube.resources import NODES, PODS, KubeObject
from testbed.node import network
from testbed.node.cluster import Cluster
from testbed.node.group import Group, running_group
from testbed.node.machine import Node

pytestmark = pytest.mark.asyncio(loop_scope="session")

SLOTS = 4


async def running_on(node: Node, group: Group) -> list[KubeObject]:
    """Return the group's Pods on a node, once all workers run."""
    await group.until_runs(1)
    there = [pod for pod in group.pods() if pod["spec"].get("nodeName") == node.name]
    assert 0 < len(there) < SLOTS, "the scheduler spreads the Pods of a JobSet over nodes that are alike"
    return there


async def test_a_node_more_leaves_the_bridge_its_address(cluster: Cluster, second: Node) -> None:
    """Otherwise the nodes that were there look for the API server where nobody is, until their ARP entries are old."""
    assert second in cluster.nodes
    command = ("ip", "-o", "link", "show", network.BRIDGE)
    shown = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert f"link/ether {network.BRIDGE_MAC} " in shown.stdout


@pytest.mark.long
async def test_a_drained_node_moves_its_pods_and_restarts_the_others(cluster: Cluster, second: Node, mode: str) -> None:
    """Evicted Pods come back on the other node; the Pods there stay and restart in place."""
    async with running_group(cluster, mode, pods=SLOTS) as group:
        evicted = await running_on(second, group)
        await cluster.cordon(second, on=True)
        staying = group.uids() - {pod["metadata"]["uid"] for pod in evicted}
        group.expect_lost(evicted)
        for pod in evicted:
            name = pod["metadata"]["name"]
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            await cluster.client.raw("POST", f"{PODS.path(group.namespace, name)}/eviction", body=eviction)
        await group.until_runs(2)
        await cluster.cordon(second, on=False)

        assert staying < group.uids()
        assert {pod["spec"]["nodeName"] for pod in group.pods()} == {cluster.nodes[0].name}
        assert group.broken() == []


@pytest.mark.long
async def test_a_lost_node_costs_its_pods_and_one_group_restart(cluster: Cluster, second: Node) -> None:
    """When a node loses power and its Node object is deleted, its Pods are replaced and the groups go on.

    The Pods themselves cannot be deleted, not even by force: under podReplacementPolicy Failed their Job keeps its
    finalizer on them until they have failed, and with kubelet gone only the garbage collector says so, some 40 s after
    the Node is gone. So both modes lose the node together.
    """
    async with (
        running_group(cluster, "containers", pods=SLOTS) as beside,
        running_group(cluster, "supervisor", pods=SLOTS) as within,
    ):
        groups = (beside, within)
        lost = [await running_on(second, group) for group in groups]
        staying = [
            group.uids() - {pod["metadata"]["uid"] for pod in gone} for group, gone in zip(groups, lost, strict=True)
        ]
        await cluster.cordon(second, on=True)
        await second.power_off()
        for group, gone in zip(groups, lost, strict=True):
            group.expect_lost(gone)
        await cluster.client.delete(NODES, None, second.name)
        for group, stayed in zip(groups, staying, strict=True):
            await group.until_runs(2)
            assert stayed < group.uids()
            assert group.broken() == []
