"""A node that dies, or is cut off while its workers live, under leases of workers (docs/adr/0072).

Kubernetes gives a node up after 8 s here, not after 50 s: earlier than a lease ends, so that the replacement of a Pod
is there while the old worker still runs.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio

from inplace.common.kube.resources import NODES, KubeObject
from inplace.common.protocol.lease import promised_s
from testbed.node import manifests
from testbed.node.cluster import Cluster, quick_verdicts, until_given_up
from testbed.node.evidence import WorkerRecord, lives
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.node.machine import Node
from testbed.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

PODS = 2  # one on each node
LENGTH_S = 30
NOTICED_S_MAX = 2.0  # the agent looks once a second
BACK_OFF_S = 10.0  # of the Job controller, from the verdict on; no setting shortens it
CREATED_S_MAX = 5.0  # from Kubernetes' verdict to the replacement, less that
START_S_MAX = 5.0  # of the group, once nobody waits for the ghost
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def quick(cluster: Cluster, second: Node) -> AsyncIterator[None]:
    """Let Kubernetes give up a node after seconds."""
    async with quick_verdicts(cluster):
        yield


def leased(jobset: KubeObject) -> None:
    """Give the workers leases."""
    manifests.fence_after(jobset, LENGTH_S)


@dataclass(frozen=True, slots=True)
class Halved:
    """A group, and its Pod on the node that is lost."""

    group: Group
    ghost: KubeObject

    @property
    def uid(self) -> str:
        """Return the uid of the lost Pod."""
        return str(self.ghost["metadata"]["uid"])

    def is_left(self) -> bool:
        """Say whether the lost Pod's object is still there."""
        return self.uid in self.group.history.pods()

    def created_s(self) -> float:
        """Return when the lost Pod's replacement was seen first."""
        known = {life.uid for life in lives(self.group.evidence) if life.epoch == 1}
        return self.group.history.first_s("Pod", lambda pod: pod["metadata"]["uid"] not in known)

    def has_replacement(self) -> bool:
        """Say whether there is one."""
        return len(self.group.live()) == PODS and self.uid not in {pod["metadata"]["uid"] for pod in self.group.live()}

    def over_s(self) -> float:
        """Return when D was seen."""
        return self.group.history.first_s(
            "JobSet", lambda jobset: bool((jobset.get("status") or {}).get("deprecatedEpoch"))
        )

    def old(self) -> WorkerRecord:
        """Return the record of the worker on the lost node."""
        (life,) = (life for life in lives(self.group.evidence) if life.uid == self.uid)
        return life

    def begun_s(self) -> float:
        """Return when the first worker of the next epoch was born."""
        return min(life.born_s for life in lives(self.group.evidence) if life.epoch == 2)


@asynccontextmanager
async def halved(cluster: Cluster, second: Node) -> AsyncIterator[Sequence[Halved]]:
    """Run two groups, with both kinds of agents that keep leases, each with one Pod on either node."""
    async with (
        running_group(cluster, "process", pods=PODS, change=leased) as beside,
        running_group(cluster, "supervisor", pods=PODS, change=leased) as within,
    ):
        found = []
        for group in (beside, within):
            await group.until_runs(1)
            (ghost,) = (pod for pod in group.pods() if pod["spec"].get("nodeName") == second.name)
            group.expect_lost([ghost])
            found.append(Halved(group, ghost))
        yield found


async def until_gone(groups: Sequence[Halved]) -> None:
    """Return when the objects of the lost Pods are gone."""

    def holds() -> bool:
        return not any(each.is_left() for each in groups)

    await until(holds, "the ghosts are gone", timeout_s=SETTLED_S_MAX, also=lambda: [e.group.state() for e in groups])


async def until_healed(cluster: Cluster, node: Node, groups: Sequence[Halved]) -> None:
    """Return when the node is back and the ghosts are gone; nothing else has changed."""
    await until_gone(groups)
    await cluster.until_ready(node)
    for each in groups:
        assert each.group.epoch == 2
        assert each.group.broken() == []


def judge(each: Halved, cut_s: float, verdict_s: float) -> None:
    """Check what holds whether the lost node lives or not."""
    created_s, over_s, ended_s, begun_s = each.created_s(), each.over_s(), each.old().alive_s, each.begun_s()
    moments = {"verdict": verdict_s, "created": created_s, "D": over_s, "ended": ended_s, "begun": begun_s}
    print(*(f"{name} {moment_s - cut_s:.1f} s" for name, moment_s in moments.items()), sep=", ")
    assert created_s - verdict_s - BACK_OFF_S <= CREATED_S_MAX
    assert ended_s - cut_s <= LENGTH_S + NOTICED_S_MAX
    assert ended_s < begun_s, "the old worker lived beside the new ones"
    assert begun_s - over_s <= promised_s(LENGTH_S) + START_S_MAX
    assert each.group.broken() == []


async def test_a_worker_that_is_cut_off_ends_before_the_group_starts_without_it(cluster: Cluster, second: Node) -> None:
    """The old worker lives when its replacement is there; it ends by itself, and only then the next epoch begins.

    The node comes back afterwards, and the ghost goes.
    """
    async with halved(cluster, second) as groups:
        cut_s = time.monotonic()
        with second.cut_off():
            verdict_s = await until_given_up(cluster, second)
            for each in groups:
                await each.group.until_runs(2)
            for each in groups:
                judge(each, cut_s, verdict_s)
                assert each.old().alive_s > each.created_s()
                assert each.begun_s() - each.over_s() >= promised_s(LENGTH_S) - 1.0, "nobody could know that it ended"
                assert each.is_left()
        await until_healed(cluster, second, groups)


async def test_a_node_that_comes_back_early_ends_its_ghosts(cluster: Cluster, second: Node) -> None:
    """It comes back while the old worker lives beside its replacement: the group need not wait for the lease."""
    async with halved(cluster, second) as groups:
        cut_s = time.monotonic()
        with second.cut_off():
            verdict_s = await until_given_up(cluster, second)
            for each in groups:
                await until(each.has_replacement, "a replacement", timeout_s=SETTLED_S_MAX, also=each.group.state)
        for each in groups:
            await each.group.until_runs(2)
            judge(each, cut_s, verdict_s)
            assert each.begun_s() - each.over_s() < promised_s(LENGTH_S) / 2
        await until_healed(cluster, second, groups)


async def test_a_dead_node_is_replaced_in_seconds(cluster: Cluster, second: Node) -> None:
    """The group trains on the other node while the dead Pods' objects are there, until a person says that it is off."""
    async with halved(cluster, second) as groups:
        cut_s = time.monotonic()
        await second.power_off()
        verdict_s = await until_given_up(cluster, second)
        for each in groups:
            await each.group.until_runs(2)
        for each in groups:
            judge(each, cut_s, verdict_s)
            assert each.is_left()
        taints = (await cluster.client.get(NODES, None, second.name))["spec"]["taints"]
        await cluster.client.patch(NODES, None, second.name, {"spec": {"taints": [*taints, OUT_OF_SERVICE]}})
        await until_gone(groups)
        for each in groups:
            assert each.group.epoch == 2
            assert each.group.broken() == []
