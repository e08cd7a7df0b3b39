"""A Job whose domain has a bad node and no other one leaves it, on real nodes; the other Job restarts in place."""

from __future__ import annotations

from typing import Final

import pytest

from inplace.common.kube.resources import NODES, KubeObject
from inplace.common.wire import names as wire
from testbed.node import manifests
from testbed.node.cluster import Cluster
from testbed.node.evidence import lives
from testbed.node.group import Group, running_group
from testbed.node.machine import Node
from tests.cluster.node.test_bad_node import until_told

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

POOL: Final = "pool"  # a node label: each node is a pool of its own
JOBS: Final = 2
PODS: Final = 2  # of each Job


def in_pools(jobset: KubeObject) -> None:
    """Let each Job have a pool for itself, and one failure make a node bad."""
    manifests.avoid_bad_nodes(jobset, "1")
    jobset["metadata"]["annotations"][wire.EXCLUSIVE_TOPOLOGY] = POOL
    jobset["spec"]["replicatedJobs"][0]["replicas"] = JOBS


def of_job(group: Group, index: int) -> list[KubeObject]:
    """Return the live Pods of a Job."""
    return [pod for pod in group.live() if pod["metadata"]["labels"][wire.JOB_INDEX] == str(index)]


def node_of(pods: list[KubeObject]) -> str:
    """Return the one node of a Job's Pods."""
    assert len(pods) == PODS
    (node,) = {pod["spec"]["nodeName"] for pod in pods}
    return str(node)


@pytest.mark.parametrize("mode", ["process", "supervisor"])
async def test_a_pool_without_another_node_is_left(cluster: Cluster, third: Node, mode: str) -> None:
    """The replacement comes back to the bad node, so its Job goes to the third pool: counted once, one restart."""
    assert third in cluster.nodes
    for node in cluster.nodes:
        if node.is_on:
            await cluster.client.patch(NODES, None, node.name, {"metadata": {"labels": {POOL: node.name}}})
    async with running_group(cluster, mode, pods=PODS, change=in_pools) as group:
        group.sizes = {1: JOBS * PODS}
        await group.until_runs(1)
        leaving, staying = of_job(group, 0), of_job(group, 1)
        bad, other = node_of(leaving), node_of(staying)
        group.order(leaving[1], "exit 3")
        await group.until_runs(2)

        assert node_of(of_job(group, 0)) not in (bad, other)
        assert node_of(of_job(group, 1)) == other
        assert _uids(of_job(group, 1)) == _uids(staying)
        assert _uids(of_job(group, 0)).isdisjoint(_uids(leaving))
        assert group.epochs() == (2, 1)
        status = group.history.jobset()["status"]
        (counters,) = status["replicatedJobsStatus"]
        assert (counters["jobRestarts"], counters["jobRestartsCountTowardsMax"]) == ([1, 0], [1, 0])
        assert (status[wire.EXEMPT_EPOCHS], status[wire.LAST_GROUP_RESTART]["escalationStep"]) == (1, "LeaveDomain")
        await until_told(group, "JobLeavesDomain", f"has no other node than {bad}, which is bad")
        gone = {uid for uid, name in group.history.deleted().items() if name.startswith("train-workers-0-")}
        group.expect_lost({"metadata": {"uid": uid}} for uid in gone)
        assert group.broken() == []
        _print_moments(group)


def _uids(pods: list[KubeObject]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def _print_moments(group: Group) -> None:
    """Print seconds after the worker's end."""
    history = group.history
    failed_s = max(life.alive_s for life in lives(group.evidence) if life.ended == "exit 3")
    moments = {
        "decided": history.first_s("JobSet", lambda jobset: (jobset.get("status") or {}).get(wire.EXEMPT_EPOCHS) == 1),
        "together": max(life.born_s for life in lives(group.evidence) if life.epoch == 2),
    }
    print({name: round(moment_s - failed_s, 2) for name, moment_s in moments.items()})
