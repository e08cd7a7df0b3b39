"""A node on which workers fail, or a check does: its Pod ends, and the replacement runs on another node."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from inplace.common.jobset.bad_nodes import AVOIDED, TAKEN_BACK
from inplace.common.kube.resources import EVENTS, KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire import unfit
from testbed.node import manifests
from testbed.node.cluster import Cluster
from testbed.node.evidence import lives
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.node.machine import Node
from testbed.waiting import until
from tests.cli.command import run

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

PODS = 2  # one on each node
FAILURES = 2
MODES = ("containers", "supervisor")
CHECK = "if read words < /evidence/broken-$NODE_NAME; then echo $words; exit 1; fi"
LEFT_S_MAX = 5.0  # from the verdict until the Pod on the bad node has ended
BACK_OFF_S = 10.0  # of the Job controller, before it replaces a Pod that failed; no setting shortens it
PLACED_S_MAX = 5.0  # from the verdict until the replacement has its node, less that
BEYOND_S_MAX = 1.0  # the group's restart, beyond what the new Pod takes until its worker's container runs


def policy(jobset: KubeObject) -> None:
    """Let two first failures make a node bad; of two nodes one is avoided."""
    manifests.avoid_bad_nodes(jobset, f"failures={FAILURES},percent=50")


def pod_on(node: Node, group: Group) -> KubeObject:
    """Return the group's one live Pod on a node."""
    (found,) = (pod for pod in group.live() if pod["spec"].get("nodeName") == node.name)
    return found


async def fail_on(node: Node, group: Group) -> KubeObject:
    """Let the worker on a node fail as often as makes it bad; return its Pod once the group has gone on."""
    victim = pod_on(node, group)
    for epoch in range(2, FAILURES + 2):
        if epoch == FAILURES + 1:
            group.expect_lost([victim])
        group.order(victim, "exit 3")
        await group.until_runs(epoch)
    return victim


async def reasons(group: Group) -> dict[str, str]:
    """Return the Events about the JobSet: reason to text."""
    events = (await group.cluster.client.list(EVENTS, group.namespace))["items"]
    return {event["reason"]: event["note"] for event in events if event["regarding"]["kind"] == "JobSet"}


async def until_told(group: Group, reason: str, words: str) -> None:
    """Return when an Event says so; they are sent behind all else."""

    async def holds() -> bool:
        return words in (await reasons(group)).get(reason, "")

    await until(holds, f"an Event {reason} with {words!r}", timeout_s=SETTLED_S_MAX, also=group.state)


def avoided(jobset: KubeObject) -> list[str]:
    """Return the nodes that the status says are bad."""
    records = (jobset.get("status") or {}).get(wire.NODE_FAILURES) or ()
    return [record["node"] for record in records if record.get("avoidedSince")]


def listed(group: Group) -> dict[str, int]:
    """Return the failures of each node that `inplace explain` says to be avoided."""
    where = ("--kubeconfig", str(group.cluster.plane.kubeconfig), "-n", group.namespace)
    done = run("explain", manifests.JOBSET, *where, "-o", "json")
    assert done.returncode == 0, done.stderr
    return {one["node"]: one["failures"] for one in json.loads(done.stdout)["avoidedNodes"]}


@dataclass(frozen=True, slots=True)
class Moments:
    """When what happened after the verdict, in seconds after it."""

    left: float
    created: float
    placed: float
    started: float
    together: float

    @classmethod
    def of(cls, group: Group, victim: KubeObject, epoch: int) -> Moments:
        """Read them from the versions that the API server showed, and from the workers' records."""
        history, uid = group.history, victim["metadata"]["uid"]
        (new,) = (pod["metadata"]["uid"] for pod in group.live() if pod["metadata"]["name"] not in known(group, epoch))
        verdict_s = history.first_s("JobSet", avoided)
        moments_s = (
            history.first_s("Pod", lambda pod: pod["metadata"]["uid"] == uid and pod["status"]["phase"] == "Failed"),
            history.first_s("Pod", lambda pod: pod["metadata"]["uid"] == new),
            history.first_s("Pod", lambda pod: pod["metadata"]["uid"] == new and pod["spec"].get("nodeName")),
            history.first_s("Pod", lambda pod: pod["metadata"]["uid"] == new and announced(pod)),
            max(life.born_s for life in lives(group.evidence) if life.epoch == epoch),
        )
        return cls(*(round(moment_s - verdict_s, 2) for moment_s in moments_s))

    def judge(self) -> None:
        """Check the bounds."""
        print(self)
        assert self.left <= LEFT_S_MAX, self
        assert self.placed - BACK_OFF_S <= PLACED_S_MAX, self
        assert self.together - self.started <= BEYOND_S_MAX, self


def announced(pod: KubeObject) -> int | None:
    """Return the epoch that a Pod announced."""
    return wire.epoch_of_pod(pod["metadata"].get("annotations") or {})


def known(group: Group, epoch: int) -> set[str]:
    """Return the names of the Pods that ran before an epoch."""
    return {life.pod for life in lives(group.evidence) if life.epoch < epoch}


@pytest.mark.parametrize("mode", MODES)
async def test_a_bad_node_is_left(cluster: Cluster, second: Node, mode: str) -> None:
    """After its second failure a Pod runs on the other node; the other Pod stays; status, Event and CLI say so."""
    async with running_group(cluster, mode, pods=PODS, change=policy) as group:
        await group.until_runs(1)
        staying = pod_on(cluster.nodes[0], group)
        victim = await fail_on(second, group)

        assert {pod["spec"]["nodeName"] for pod in group.live()} == {cluster.nodes[0].name}
        assert staying["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in group.live()}
        Moments.of(group, victim, FAILURES + 1).judge()
        assert avoided(group.history.jobset()) == [second.name]
        assert listed(group) == {second.name: FAILURES}
        await until_told(group, AVOIDED, second.name)
        assert group.broken() == []


async def test_where_no_other_node_is_free_the_verdict_is_taken_back(cluster: Cluster, second: Node) -> None:
    """The replacement returns to the bad node at once, the group trains, and an Event says so."""
    async with running_group(cluster, "supervisor", pods=PODS, change=policy) as group:
        await group.until_runs(1)
        await cluster.cordon(cluster.nodes[0], on=True)
        try:
            victim = await fail_on(second, group)
        finally:
            await cluster.cordon(cluster.nodes[0], on=False)

        assert pod_on(second, group)["metadata"]["uid"] != victim["metadata"]["uid"]
        await until_told(group, TAKEN_BACK, second.name)
        await until(lambda: not avoided(group.history.jobset()), "no node is avoided", timeout_s=SETTLED_S_MAX)
        assert listed(group) == {}
        assert group.broken() == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_pod_whose_check_fails_trains_elsewhere(cluster: Cluster, second: Node, mode: str) -> None:
    """A node breaks while the group trains: at the next restart its Pod ends with code 6, and one check is enough."""

    def checked(jobset: KubeObject) -> None:
        policy(jobset)
        manifests.check_before_announcing(jobset, CHECK)

    async with running_group(cluster, mode, pods=PODS, change=checked) as group:
        await group.until_runs(1)
        victim, staying = pod_on(second, group), pod_on(cluster.nodes[0], group)
        (group.evidence / f"broken-{second.name}").write_text("GPU 3 is broken\n")
        group.expect_lost([victim])
        group.order(staying, "exit 3")
        await group.until_runs(2)

        (ended,) = (pod for pod in group.pods() if pod["metadata"]["uid"] == victim["metadata"]["uid"])
        assert ended["status"]["phase"] == "Failed"
        (worker,) = (each["state"]["terminated"] for each in ended["status"]["containerStatuses"])
        assert worker["exitCode"] == unfit.CHECK_FAILED_EXIT_CODE
        assert "GPU 3 is broken" in worker["message"]
        assert {pod["spec"]["nodeName"] for pod in group.live()} == {cluster.nodes[0].name}
        assert staying["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in group.live()}
        Moments.of(group, victim, 2).judge()
        assert listed(group)[second.name] == 0
        await until_told(group, AVOIDED, "GPU 3 is broken")
        assert group.broken() == []
