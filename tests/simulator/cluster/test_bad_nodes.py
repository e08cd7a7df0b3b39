"""Bad nodes on the simulated cluster: real agents, the real controller, a scheduler."""

from __future__ import annotations

from copy import deepcopy

import pytest

from inplace.common.kube.resources import PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster, virtual_cluster
from tests.cli.scenes import documents, jobset_of, synced

PODS_OF_THE_GROUP = 3


def pod_on(cluster: Cluster, node: str) -> KubeObject | None:
    """Return the Pod on a node that has not ended."""
    live = [pod for pod in cluster.pods() if pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")]
    return next((pod for pod in live if pod["spec"].get("nodeName") == node), None)


@pytest.mark.virtual_time
@pytest.mark.parametrize("text", ["2", None])
async def test_a_pod_leaves_a_node_that_kills_its_worker(text: str | None) -> None:
    """With the annotation it is replaced on the spare node; a Pod that is deleted without it comes back to its node."""
    manifests = deepcopy(documents(PODS_OF_THE_GROUP))
    jobset_of(manifests)["metadata"]["annotations"] = {wire.NODES: text} if text else {}
    async with virtual_cluster(nodes=4, pods_per_node=1) as cluster:
        await cluster.apply(manifests)
        await synced(cluster, 1, PODS_OF_THE_GROUP)
        for epoch in (2, 3):
            pod = pod_on(cluster, "node-0")
            assert pod is not None
            cluster.kill_worker("default", pod["metadata"]["name"])
            await synced(cluster, epoch, PODS_OF_THE_GROUP)
        bad = [one["node"] for one in (cluster.jobset("train")["status"].get(wire.NODE_FAILURES) or ())]
        assert bad == (["node-0"] if text else [])
        pod = pod_on(cluster, "node-0")
        if text:
            assert pod is None
            assert pod_on(cluster, "node-3") is not None
            return
        assert pod is not None
        await cluster.client().delete(PODS, "default", pod["metadata"]["name"])
        await synced(cluster, 4, PODS_OF_THE_GROUP)
        assert pod_on(cluster, "node-0") is not None
