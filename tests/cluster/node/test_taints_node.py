"""Kueue pins Pods to hosts: a bad node is tainted, and Kueue moves its Pod. Real Kueue, scheduler, kubelets, agents."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from images.build_once import MissingComponent
from inplace.common.jobset.escalation import LEAVES
from inplace.common.kube.resources import NODES, KubeObject
from inplace.common.wire import names as wire
from testbed.clients.apply import Applier
from testbed.clients.programs import Kueue
from testbed.go_programs import kueue
from testbed.node import manifests
from testbed.node.cluster import Cluster
from testbed.node.evidence import lives
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.node.machine import Node
from testbed.waiting import until
from tests.cluster.clients.queue import KUEUE, QUEUE_LABEL, cluster_queue, condition, flavor, local_queue
from tests.cluster.clients.test_topology import ANYWHERE, HOSTNAME, hosts_of
from tests.cluster.conftest import unavailable
from tests.cluster.node.test_bad_node import until_told
from tests.controller.queued import find_bad

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

PODS: Final = 2  # of three nodes, each of which takes one Pod
QUEUE: Final = "hosts"
TOPOLOGY: Final = {
    "apiVersion": KUEUE,
    "kind": "Topology",
    "metadata": {"name": QUEUE},
    "spec": {"levels": [{"nodeLabel": HOSTNAME}]},
}
FLAVOR: Final = flavor(QUEUE, nodeLabels={"kubernetes.io/os": "linux"}, topologyName=QUEUE)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def queued(cluster: Cluster, third: Node) -> AsyncIterator[Cluster]:
    """Give three nodes, Kueue with a queue of hosts, and a controller that may taint them."""
    assert third in cluster.nodes
    try:
        kueue()
    except MissingComponent as error:
        unavailable(error)
    async with Kueue(cluster.plane).running(), cluster.controller_with("--taint-bad-nodes=2/120"):
        for document in (TOPOLOGY, FLAVOR, cluster_queue(QUEUE, {QUEUE: 1000})):
            await apply(cluster, document)
        yield cluster


async def apply(cluster: Cluster, document: KubeObject) -> None:
    """Create an object of Kueue's."""
    async with cluster.plane.client() as client:
        await Applier(client).apply_one(document)


def pinned(jobset: KubeObject) -> None:
    """Queue the group, let each Pod fill a host that Kueue chooses, and one failure make a node bad."""
    jobset["metadata"].setdefault("labels", {})[QUEUE_LABEL] = QUEUE
    manifests.avoid_bad_nodes(jobset, "1")
    manifests.fill_nodes(jobset, os.cpu_count() or 1)
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"] |= ANYWHERE


async def workloads(group: Group) -> list[KubeObject]:
    """Return the Workloads of the group's namespace."""
    async with group.cluster.plane.client() as client:
        found: list[KubeObject] = (await client.get(f"/apis/{KUEUE}/namespaces/{group.namespace}/workloads"))["items"]
    return found


async def our_taint(cluster: Cluster, node: str) -> str | None:
    """Return the effect of the taint that our controller put on a node; None if there is none."""
    taints = (await cluster.client.get(NODES, None, node))["spec"].get("taints") or ()
    return next((str(one["effect"]) for one in taints if one["key"] == wire.BAD_NODE), None)


@pytest.mark.parametrize("mode", ["process", "supervisor"])
async def test_kueue_moves_the_pod_of_a_tainted_node(queued: Cluster, mode: str) -> None:
    """The replacement runs on the third node, the other Pod stays; the taint goes with the JobSet."""
    async with running_group(queued, mode, pods=PODS, change=pinned) as group:
        await apply(queued, local_queue(group.namespace, QUEUE, QUEUE))
        await group.until_runs(1)
        victim, staying = group.live()
        bad, other = victim["spec"]["nodeName"], staying["spec"]["nodeName"]
        assert HOSTNAME in victim["spec"]["nodeSelector"], "Kueue has pinned it"
        await find_bad(queued.client, await queued.plane.create_namespace("opinion"), bad)
        group.expect_lost([victim])
        group.order(victim, "exit 3")
        await group.until_runs(2)

        (moved,) = (pod for pod in group.live() if pod["metadata"]["uid"] != staying["metadata"]["uid"])
        assert moved["spec"]["nodeName"] not in (bad, other)
        assert group.epochs() == (2, 1)
        (workload,) = await workloads(group)
        assert condition(workload, "Evicted") == {}
        assert hosts_of(workload) == {other: 1, moved["spec"]["nodeName"]: 1}
        assert await our_taint(queued, bad) == "NoSchedule"
        await until_told(group, LEAVES, f"node {bad} is bad, and tainted")
        assert group.broken() == []
        _print_moments(group, moved)

    async def is_untainted() -> bool:
        return await our_taint(queued, bad) is None

    await until(is_untainted, "no taint is left behind", timeout_s=SETTLED_S_MAX)


def _print_moments(group: Group, moved: KubeObject) -> None:
    """Print seconds after the worker's end."""
    uid = moved["metadata"]["uid"]
    failed_s = max(life.alive_s for life in lives(group.evidence) if life.ended == "exit 3")
    moments = {
        "created": group.history.first_s("Pod", lambda pod: pod["metadata"]["uid"] == uid),
        "together": max(life.born_s for life in lives(group.evidence) if life.epoch == 2),
    }
    print({name: round(moment_s - failed_s, 2) for name, moment_s in moments.items()})
