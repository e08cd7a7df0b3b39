"""Spares on real nodes: kubelet runs them, and the real scheduler lets a replacement take their room."""

from __future__ import annotations

import os

import pytest

from inplace.common.kube.resources import KubeObject
from testbed.node import manifests
from testbed.node.archives import WORKER_IMAGE
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.node.machine import Node
from testbed.waiting import until
from tests.cluster.node.test_bad_node import announced

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

PODS = 2  # of three nodes, each of which takes one Pod


def with_spare(jobset: KubeObject) -> None:
    """Ask for one spare, and let each Pod fill a node."""
    manifests.fill_nodes(jobset, os.cpu_count() or 1)
    manifests.hold_spares(jobset, 1)


async def the_spare(group: Group) -> KubeObject:
    """Return the spare, once it runs."""
    await until(lambda: len(group.spares()) == 1, "a spare runs", timeout_s=SETTLED_S_MAX, also=group.state)
    (spare,) = group.spares()
    return spare


async def test_a_replacement_takes_the_room_of_a_spare(cluster: Cluster, third: Node) -> None:
    """A worker fails on a cordoned node: its replacement runs where the spare was, which is gone; one restart."""
    async with running_group(cluster, "process", pods=PODS, change=with_spare) as group:
        await group.until_runs(1)
        spare = await the_spare(group)
        held = spare["spec"]["nodeName"]
        assert held not in {pod["spec"]["nodeName"] for pod in group.live()}
        assert spare["spec"]["priority"] == -10
        victim = group.live()[0]
        node = group.node_of(victim)
        await cluster.cordon(node, on=True)
        try:
            group.expect_lost([victim])
            group.order(victim, "exit 3")
            await group.until_runs(2)
            known = victim["metadata"]["uid"]
            (moved,) = (pod for pod in group.live() if pod["spec"]["nodeName"] == held)
            assert moved["metadata"]["uid"] != known
            moments = {
                "created": group.history.first_s("Pod", lambda pod: pod["metadata"]["uid"] == moved["metadata"]["uid"]),
                "announced": group.history.first_s(
                    "Pod", lambda pod: pod["metadata"]["uid"] == moved["metadata"]["uid"] and announced(pod)
                ),
            }
            print(f"created to announced, a spare taken meanwhile: {moments['announced'] - moments['created']:.2f} s")
            await until(
                lambda: spare["metadata"]["uid"] not in group.history.pods(),
                "the spare is gone",
                timeout_s=SETTLED_S_MAX,
                also=group.state,
            )
        finally:
            await cluster.cordon(node, on=False)
        again = await the_spare(group)
        assert again["spec"]["nodeName"] == node.name, "its node is free again: the Job controller made another spare"
        assert group.epochs() == (2, 1)
        assert group.broken() == []


async def test_a_spare_runs_nothing_of_the_worker(cluster: Cluster, third: Node) -> None:
    """Its one container has the agent's image, and the worker's image is a volume that nobody mounts."""
    async with running_group(cluster, "supervisor", pods=1, change=with_spare) as group:
        await group.until_runs(1)
        spare = await the_spare(group)
        (container,) = spare["spec"]["containers"]
        assert container["command"] == ["inplace-agent", "hold"]
        assert [volume["image"]["reference"] for volume in spare["spec"]["volumes"]] == [WORKER_IMAGE]
        assert group.epochs() == (1, 0)
