"""`inplace nodes`, and bad nodes on the simulated cluster: real agents, the real controller, a scheduler."""

from __future__ import annotations

import time
from copy import deepcopy

import pytest

from inplace.cli.status.nodes import nodes_data, nodes_picture
from inplace.cli.terminal.console import VisibleConsole
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
@pytest.mark.parametrize("text", ["2/3600", None])
async def test_a_pod_leaves_a_node_that_kills_its_worker(text: str | None) -> None:
    """With the annotation it is replaced on the spare node; a Pod that is deleted without it comes back to its node."""
    manifests = deepcopy(documents(PODS_OF_THE_GROUP))
    jobset_of(manifests)["metadata"]["annotations"] = {wire.BAD_NODES: text} if text else {}
    async with virtual_cluster(nodes=4, pods_per_node=1) as cluster:
        await cluster.apply(manifests)
        await synced(cluster, 1, PODS_OF_THE_GROUP)
        for epoch in (2, 3):
            pod = pod_on(cluster, "node-0")
            assert pod is not None
            cluster.kill_worker("default", pod["metadata"]["name"])
            await synced(cluster, epoch, PODS_OF_THE_GROUP)
        bad = [row["node"] for row in nodes_data(cluster.jobset("train"), cluster.clock.wall_s())["nodes"]]
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


def jobset(text: str | None) -> KubeObject:
    """Return a JobSet that remembers three nodes."""
    entries = [
        {"node": "old", "failedAt": ["2026-01-01T00:00:00Z"]},
        {"node": "n1", "failedAt": ["2026-01-01T02:00:00Z"], "pod": "p1", "why": "pod p1: exited with 1"},
        {"node": "n2", "failedAt": [], "avoidedSince": "2026-01-01T02:10:00Z", "pod": "p2", "why": "GPU 3"},
    ]
    annotations = {} if text is None else {wire.BAD_NODES: text}
    return {"metadata": {"name": "train", "annotations": annotations}, "status": {wire.NODE_FAILURES: entries}}


def test_the_nodes_are_listed_with_why() -> None:
    """Those that are avoided first, with the time that is left; what is forgotten is not shown."""
    now_s = 1_767_234_000.0  # 02:20
    data = nodes_data(jobset("2/3600"), now_s)
    assert "avoided by replaced pods for 3600 s" in data["policy"]
    assert data["nodes"] == [
        {"node": "n2", "failures": 0, "avoidedSeconds": 3000.0, "pod": "p2", "why": "GPU 3"},
        {"node": "n1", "failures": 1, "avoidedSeconds": None, "pod": "p1", "why": "pod p1: exited with 1"},
    ]
    console = VisibleConsole(width=80)
    with console.capture() as captured:
        console.print(nodes_picture(data["nodes"]))
    assert [line.split() for line in captured.get().splitlines()][1] == ["n2", "0", "50m00s", "GPU", "3"]


@pytest.mark.parametrize(("text", "words"), [(None, "has no annotation"), ("2", "expected FAILURES/SECONDS")])
def test_without_a_policy_no_node_is_listed(text: str | None, words: str) -> None:
    """The first line says so."""
    data = nodes_data(jobset(text), time.time())
    assert words in data["policy"]
    assert data["nodes"] == []
