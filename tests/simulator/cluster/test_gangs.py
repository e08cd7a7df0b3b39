"""The scheduler places a gang whole or not at all, and lets a replaced Pod join it."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.resources import NODES, POD_GROUPS, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster, virtual_cluster
from inplace.simulator.cluster.manifests import with_pods

pytestmark = pytest.mark.virtual_time

TIMEOUT_S = 120.0


def gang(example: list[KubeObject], pods: int) -> list[KubeObject]:
    """Return the example as a gang of so many Pods."""
    documents = with_pods(example, pods)
    documents[-1]["spec"]["scheduling"] = {"schedulingPolicy": {"gang": {}}}
    return documents


def bound(cluster: Cluster) -> int:
    """Return how many Pods have a node."""
    return sum("nodeName" in pod["spec"] for pod in cluster.pods())


def synced(cluster: Cluster) -> int:
    """Return S."""
    return wire.epochs_of_status(cluster.jobset("train").get("status") or {})[0]


async def test_a_gang_is_placed_whole_or_not_at_all(example: list[dict[str, Any]]) -> None:
    """Three places bind none of four Pods; a fourth place binds all, and the group trains."""
    async with virtual_cluster(nodes=4, pods_per_node=1, serves_gangs=True) as cluster:
        await cluster.client("admin").patch(NODES, None, "node-3", {"spec": {"unschedulable": True}})
        await cluster.apply(gang(example, 4))
        await cluster.until(lambda: len(cluster.pods()) == 4, timeout_s=TIMEOUT_S)
        await cluster.clock.sleep(60)
        assert bound(cluster) == 0
        await cluster.client("admin").patch(NODES, None, "node-3", {"spec": {"unschedulable": None}})
        await cluster.until(lambda: synced(cluster) == 1, timeout_s=TIMEOUT_S)
        assert bound(cluster) == 4


async def test_a_replaced_pod_joins_its_gang(example: list[dict[str, Any]]) -> None:
    """A Pod that was deleted is replaced, and its replacement finds the place of the old one in the gang."""
    async with virtual_cluster(nodes=3, pods_per_node=1, serves_gangs=True) as cluster:
        await cluster.apply(gang(example, 3))
        await cluster.until(lambda: synced(cluster) == 1, timeout_s=TIMEOUT_S)
        lost = cluster.pods()[0]["metadata"]
        await cluster.client("admin").delete(PODS, "default", lost["name"])
        await cluster.until(lambda: synced(cluster) == 2, timeout_s=1000)
        alive = [pod for pod in cluster.pods() if pod["status"].get("phase") == "Running"]
        assert lost["uid"] not in {pod["metadata"]["uid"] for pod in alive}
        (group,) = (await cluster.client("admin").list(POD_GROUPS))["items"]
        assert [pod["spec"]["schedulingGroup"]["podGroupName"] for pod in alive] == [group["metadata"]["name"]] * 3


async def test_without_the_api_pods_are_placed_one_by_one(example: list[dict[str, Any]]) -> None:
    """A server that serves no gangs drops the Pods' group, and each Pod that fits is bound."""
    async with virtual_cluster(nodes=3, pods_per_node=1) as cluster:
        documents = with_pods(example, 4)
        documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["schedulingGroup"] = {
            "podGroupName": "own"
        }
        await cluster.apply(documents)
        await cluster.until(lambda: bound(cluster) == 3, timeout_s=TIMEOUT_S)
        assert not any("schedulingGroup" in pod["spec"] for pod in cluster.pods())
