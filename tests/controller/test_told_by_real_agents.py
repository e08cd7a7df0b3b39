"""Reports of group restarts when real agents run beside modelled containers: causes, waits, requests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from inplace.common.kube.resources import JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.cluster import Cluster, virtual_cluster
from inplace.simulator.cluster.manifests import held_by_probe, read_manifests, with_pods

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
PODS_COUNT: Final = 4
TIMEOUT_S: Final = 900.0  # virtual seconds; a lost node is given up after 340 s


def status(cluster: Cluster) -> dict[str, Any]:
    """Return the JobSet's status."""
    found: dict[str, Any] = cluster.jobset("train").get("status") or {}
    return found


def synced(cluster: Cluster, epoch: int) -> Callable[[], bool]:
    """Return a condition: the group is at this epoch."""
    return lambda: status(cluster).get(wire.SYNCED_EPOCH) == epoch


def restarted(
    disturb: Callable[[Cluster, str], Coroutine[Any, Any, None]],
    *,
    example: str = "train.yaml",
    change: Callable[[KubeObject], KubeObject] = lambda jobset: jobset,
    nodes: int = 5,
) -> tuple[str, dict[str, Any]]:
    """Disturb the first Pod of a running group; return its name and the status' report of the finished restart."""

    async def main() -> tuple[str, dict[str, Any]]:
        async with virtual_cluster(nodes=nodes, pods_per_node=1) as cluster:
            *others, jobset = with_pods(read_manifests(EXAMPLES / example), PODS_COUNT)
            await cluster.apply([*others, change(jobset)])
            await cluster.until(synced(cluster, 1), timeout_s=TIMEOUT_S)
            await cluster.clock.sleep(10.0)
            victim = cluster.pods()[0]["metadata"]["name"]
            await disturb(cluster, victim)
            await cluster.until(synced(cluster, 2), timeout_s=TIMEOUT_S)
            await cluster.clock.sleep(30.0)
            assert synced(cluster, 2)(), "one disturbance, one restart"
            return victim, status(cluster)[wire.LAST_GROUP_RESTART]

    return virtual_time.run(main())


async def kill(cluster: Cluster, pod: str) -> None:
    """End a worker."""
    cluster.kill_worker("default", pod)


async def delete(cluster: Cluster, pod: str) -> None:
    """Delete a Pod."""
    await cluster.client("user").delete(PODS, "default", pod)


async def lose(cluster: Cluster, pod: str) -> None:
    """Lose a Pod's node."""
    found = next(one for one in cluster.pods() if one["metadata"]["name"] == pod)
    cluster.lose_node(found["spec"]["nodeName"])


async def request(cluster: Cluster, pod: str) -> None:
    """Ask for a restart."""
    patch = {"metadata": {"annotations": {wire.RESTART_REQUESTED: "please"}}}
    await cluster.client("user").patch(JOBSETS, "default", "train", patch)


def test_a_worker_that_dies_beside_its_agent() -> None:
    """A worker's exit code is reported: the controller sees it BEFORE kubelet removes the container."""
    victim, told = restarted(kill, change=held_by_probe)
    assert (told["trigger"], told["epoch"]) == ("worker_exit", 2)
    failure = told["firstFailure"]
    assert (failure["pod"], failure["container"]) == (victim, "worker")
    assert failure["exitCode"] != 0
    assert failure["node"].startswith("node-")


def test_an_agent_that_dies_with_its_worker() -> None:
    """An agent that dies with its worker fails its Pod: the cause is an exit, not a lost Pod."""
    victim, told = restarted(kill, example="train-supervisor.yaml")
    assert (told["trigger"], told["firstFailure"]["pod"]) == ("worker_exit", victim)
    assert told["firstFailure"]["exitCode"] == 137


@pytest.mark.parametrize(
    ("disturb", "trigger"), [(delete, "pod_lost"), (lose, "disrupted")], ids=["deleted", "node_lost"]
)
def test_a_pod_that_is_lost(disturb: Callable[[Cluster, str], Coroutine[Any, Any, None]], trigger: str) -> None:
    """The cause is the lost Pod, not its replacement."""
    victim, told = restarted(disturb)
    assert (told["trigger"], told["firstFailure"]["pod"]) == (trigger, victim)


def test_a_request() -> None:
    """A request restarts all Pods, and no failure is reported."""
    _, told = restarted(request)
    assert (told["trigger"], told["request"], "firstFailure" in told) == ("manual", "please", False)


@pytest.mark.virtual_time
async def test_a_node_too_few() -> None:
    """With a node too few the condition names the waiting Pod, with the scheduler's message."""
    async with virtual_cluster(nodes=3, pods_per_node=1) as cluster:
        await cluster.apply(with_pods(read_manifests(EXAMPLES / "train.yaml"), PODS_COUNT))

        def told() -> str:
            conditions = status(cluster).get("conditions") or ()
            return next((one["message"] for one in conditions if one["type"] == "BarrierWaiting"), "")

        await cluster.until(lambda: "3/4" in told(), timeout_s=TIMEOUT_S)
        message = told()
    assert message.startswith("3/4 at epoch 1; waiting for train-")
    assert "(Pending: " in message
