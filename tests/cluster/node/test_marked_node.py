"""A worker fails on a node that somebody has marked: its Pod moves to the other node, the others restart in place."""

from __future__ import annotations

from typing import Final

import pytest

from inplace.common.jobset.escalation import LEAVES
from inplace.common.jobset.marked_nodes import STAYS
from inplace.common.kube.resources import NODES, KubeObject
from inplace.common.wire import names as wire
from testbed.node import manifests
from testbed.node.cluster import Cluster
from testbed.node.evidence import lives
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.node.machine import Node
from testbed.waiting import until
from tests.cli.command import run
from tests.cluster.node.test_bad_node import announced, pod_on, reasons, until_told

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

PODS = 2  # one on each node
BACK_OFF_S: Final = 10.0  # of the Job controller, before it replaces a Pod that failed
LEFT_S_MAX: Final = 5.0  # from the failure until the Pod on the marked node has ended
BEYOND_S_MAX: Final = 1.0  # the group's restart, beyond what the new Pod takes until it announces
TAINT: Final = {"key": "broken", "value": "gpu", "effect": "NoSchedule"}


def one_a_node(jobset: KubeObject) -> None:
    """Let no two Pods of the group share a node."""
    ours = {"matchLabels": {wire.JOBSET_NAME: jobset["metadata"]["name"]}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": ours}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    pods(jobset)["affinity"] = {"podAntiAffinity": required}


def tolerating(jobset: KubeObject) -> None:
    """Let the Pods tolerate the taint."""
    pods(jobset)["tolerations"] = [{"key": TAINT["key"], "operator": "Exists"}]


def pods(jobset: KubeObject) -> KubeObject:
    """Return the template of the Pods."""
    found: KubeObject = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return found


async def taint(cluster: Cluster, node: Node, *, on: bool) -> None:
    """Taint a node, or take the taint away."""
    await cluster.client.patch(NODES, None, node.name, {"spec": {"taints": [TAINT] if on else None}})


def condition(group: Group, kind: str) -> str:
    """Return the words of a condition that holds; "" if it does not."""
    conditions = (group.history.jobset().get("status") or {}).get("conditions") or ()
    return next((one["message"] for one in conditions if (one["type"], one["status"]) == (kind, "True")), "")


def judge_moments(group: Group, victim: KubeObject) -> None:
    """Print what followed the failure, in seconds after D, and check the bounds."""
    history, uid = group.history, victim["metadata"]["uid"]
    (new,) = {pod["metadata"]["uid"] for pod in group.live()} - {
        life.uid for life in lives(group.evidence) if life.epoch == 1
    }
    failed_s = history.first_s("JobSet", lambda jobset: wire.epochs_of_status(jobset.get("status") or {}) == (1, 1))
    moments = {
        "decided": history.first_s("JobSet", lambda jobset: wire.ESCALATION_USES in (jobset.get("status") or {})),
        "ended": history.first_s(
            "Pod", lambda pod: pod["metadata"]["uid"] == uid and pod["status"]["phase"] == "Failed"
        ),
        "created": history.first_s("Pod", lambda pod: pod["metadata"]["uid"] == new),
        "announced": history.first_s("Pod", lambda pod: pod["metadata"]["uid"] == new and announced(pod)),
        "together": max(life.born_s for life in lives(group.evidence) if life.epoch == 2),
    }
    after_s = {name: round(moment_s - failed_s, 2) for name, moment_s in moments.items()}
    print(after_s)
    assert after_s["ended"] <= LEFT_S_MAX, after_s
    assert after_s["together"] - after_s["announced"] <= BEYOND_S_MAX, after_s
    assert after_s["created"] >= BACK_OFF_S - 1.0, "the Job controller waits: the page says so"


@pytest.mark.parametrize("mode", ["containers", "process", "supervisor"])
async def test_a_cordoned_node_is_left(cluster: Cluster, second: Node, mode: str) -> None:
    """The replacement runs on the other node, whose Pod stays; one restart, and Event and `explain` say why."""
    async with running_group(cluster, mode, pods=PODS) as group:
        await group.until_runs(1)
        victim, staying = pod_on(second, group), pod_on(cluster.nodes[0], group)
        await cluster.cordon(second, on=True)
        try:
            group.expect_lost([victim])
            group.order(victim, "exit 3")
            await group.until_runs(2)
        finally:
            await cluster.cordon(second, on=False)

        assert {pod["spec"]["nodeName"] for pod in group.live()} == {cluster.nodes[0].name}
        assert staying["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in group.live()}
        assert group.epochs() == (2, 1)
        judge_moments(group, victim)
        await until_told(group, LEAVES, f"node {second.name}: cordoned")
        where = ("--kubeconfig", str(cluster.plane.kubeconfig), "-n", group.namespace)
        assert (
            f"{LEAVES}: pod {victim['metadata']['name']} is replaced" in run("explain", manifests.JOBSET, *where).stdout
        )
        assert group.broken() == []


async def test_a_taint_counts_unless_the_pods_tolerate_it(cluster: Cluster, second: Node) -> None:
    """Of two groups with a Pod on the node the one that tolerates its taint restarts in place."""
    async with (
        running_group(cluster, "supervisor", pods=PODS) as leaving,
        running_group(cluster, "supervisor", pods=PODS, change=tolerating) as staying,
    ):
        for group in (leaving, staying):
            await group.until_runs(1)
        await taint(cluster, second, on=True)
        try:
            before = staying.uids()
            victim = pod_on(second, leaving)
            leaving.expect_lost([victim])
            leaving.order(victim, "exit 3")
            staying.order(pod_on(second, staying), "exit 3")
            await staying.until_runs(2)
            await leaving.until_runs(2)
        finally:
            await taint(cluster, second, on=False)

        assert staying.uids() == before
        assert {pod["spec"]["nodeName"] for pod in leaving.live()} == {cluster.nodes[0].name}
        await until_told(leaving, LEAVES, f"node {second.name}: tainted broken=gpu:NoSchedule")
        assert LEAVES not in await reasons(staying)
        assert [*leaving.broken(), *staying.broken()] == []


async def test_where_all_nodes_are_cordoned_all_restart_in_place(cluster: Cluster, second: Node) -> None:
    """No Pod is replaced, and an Event says why."""
    async with running_group(cluster, "process", pods=PODS) as group:
        await group.until_runs(1)
        before = group.uids()
        for node in (cluster.nodes[0], second):
            await cluster.cordon(node, on=True)
        try:
            group.order(pod_on(second, group), "exit 3")
            await group.until_runs(2)
        finally:
            for node in (cluster.nodes[0], second):
                await cluster.cordon(node, on=False)

        assert group.uids() == before
        await until_told(group, STAYS, f"{cluster.nodes[0].name} of its group are marked as well")
        assert group.broken() == []


async def test_without_a_spare_node_the_group_waits_for_one(cluster: Cluster, second: Node) -> None:
    """The condition has the scheduler's words; when the mark is taken away the group goes on, on the same node."""
    async with running_group(cluster, "supervisor", pods=PODS, change=one_a_node) as group:
        await group.until_runs(1)
        victim = pod_on(second, group)
        await cluster.cordon(second, on=True)
        try:
            group.expect_lost([victim])
            group.order(victim, "exit 3")
            await until(
                lambda: "unschedulable" in condition(group, "BarrierWaiting"),
                "the condition says that no node takes the Pod",
                timeout_s=SETTLED_S_MAX,
                also=group.state,
            )
            print(condition(group, "BarrierWaiting"))
            await until_told(group, LEAVES, f"node {second.name}: cordoned; the group waits until another node takes")
            assert group.epochs() == (1, 1)
        finally:
            await cluster.cordon(second, on=False)
        await group.until_runs(2)

        assert pod_on(second, group)["metadata"]["uid"] != victim["metadata"]["uid"]
        assert group.broken() == []
