"""Spares in the simulated cluster: real controller, its Job controller and scheduler, modelled containers."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.errors import Forbidden
from inplace.common.kube.resources import JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster, virtual_cluster
from inplace.simulator.cluster.manifests import custom_resource_definitions, with_pods

TIMEOUT_S = 120.0
POD = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
Documents = list[dict[str, Any]]


def with_spares(example: Documents, pods: int, spares: int) -> Documents:
    """Return the example with so many Pods and spares."""
    documents = with_pods(example, pods)
    documents[-1]["metadata"].setdefault("annotations", {})[wire.SPARES] = str(spares)
    return documents


def model_cluster(**options: Any) -> Cluster:
    """Return a cluster of timed models whose controller has an agent's image."""
    return virtual_cluster(adds_agent=True, **options)


def parted(cluster: Cluster) -> tuple[list[KubeObject], list[KubeObject]]:
    """Return the group's Pods and the spares, without those that have ended."""
    alive = [pod for pod in cluster.pods() if pod["status"].get("phase") not in ("Failed", "Succeeded")]
    spares = [pod for pod in alive if wire.SPARE_OF in (pod["metadata"].get("labels") or {})]
    return [pod for pod in alive if pod not in spares], spares


def runs(cluster: Cluster, epoch: int) -> bool:
    """Say whether S is this epoch."""
    return wire.epochs_of_status(cluster.jobset("train").get("status") or {})[0] == epoch


@pytest.mark.virtual_time
async def test_a_replacement_takes_the_place_of_a_spare(example: Documents) -> None:
    """Three nodes with room for one Pod each: the spare is on the third, and its node takes the Pod of the lost one."""
    async with model_cluster(nodes=3, pods_per_node=1) as cluster:
        await cluster.apply(with_spares(example, 2, 1))
        await cluster.until(lambda: runs(cluster, 1) and len(parted(cluster)[1]) == 1, timeout_s=TIMEOUT_S)
        await cluster.until(lambda: parted(cluster)[1][0]["status"].get("phase") == "Running", timeout_s=TIMEOUT_S)
        group, (spare,) = parted(cluster)
        assert spare["spec"]["priority"] < 0
        held = spare["spec"]["nodeName"]
        assert held not in {pod["spec"]["nodeName"] for pod in group}
        cluster.lose_node(group[0]["spec"]["nodeName"])
        await cluster.until(lambda: runs(cluster, 2), timeout_s=1000)
        moved, spares = parted(cluster)
        assert held in {pod["spec"]["nodeName"] for pod in moved}
        assert spare["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in spares}
        status = cluster.jobset("train")["status"]
    assert status["replicatedJobsStatus"][0]["active"] == 1
    assert wire.epochs_of_status(status) == (2, 1), "the spare's end restarts nobody"


@pytest.mark.virtual_time
async def test_a_spare_goes_where_nothing_of_the_group_is(example: Documents) -> None:
    """Although the first node has room."""
    async with model_cluster(nodes=2, pods_per_node=10) as cluster:
        await cluster.apply(with_spares(example, 2, 1))
        await cluster.until(
            lambda: [p for p in parted(cluster)[1] if "nodeName" in p["spec"]] != [], timeout_s=TIMEOUT_S
        )
        group, (spare,) = parted(cluster)
    assert {pod["spec"]["nodeName"] for pod in group} == {"node-0"}
    assert spare["spec"]["nodeName"] == "node-1"


@pytest.mark.virtual_time
async def test_spares_go_with_the_jobset(example: Documents) -> None:
    """The garbage collector deletes their Job."""
    async with model_cluster(nodes=2) as cluster:
        await cluster.apply(with_spares(example, 2, 2))
        await cluster.until(lambda: len(parted(cluster)[1]) == 2, timeout_s=TIMEOUT_S)
        await cluster.client("user").delete(JOBSETS, "default", "train")
        await cluster.until(lambda: cluster.pods() == [], timeout_s=TIMEOUT_S)


@pytest.mark.virtual_time
async def test_nobody_is_preempted_by_a_spare_or_by_an_equal() -> None:
    """Of the Pods that wait, the one with the higher priority comes first."""
    async with model_cluster(nodes=1, pods_per_node=1, controller="none") as cluster:
        client = cluster.client("job-controller")  # who may make a spare
        for name, spec in (
            ("first", POD),
            ("equal", POD),
            ("spare", POD | {"priorityClassName": wire.SPARE_PRIORITY_CLASS}),
        ):
            await client.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})
            await cluster.clock.sleep(5)
        nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in cluster.pods()}
        assert nodes == {"first": "node-0", "equal": None, "spare": None}
        await client.delete(PODS, "default", "first")
        await cluster.clock.sleep(60)
        nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in cluster.pods()}
    assert nodes == {"equal": "node-0", "spare": None}


@pytest.mark.virtual_time
async def test_without_the_priority_class_no_spare_is_made(example: Documents) -> None:
    """The group runs all the same."""
    async with model_cluster(nodes=2, crds=custom_resource_definitions()) as cluster:
        await cluster.apply(with_spares(example, 2, 1))
        await cluster.until(lambda: runs(cluster, 1), timeout_s=TIMEOUT_S)
        await cluster.clock.sleep(60)
        assert parted(cluster)[1] == []
        pod = {"metadata": {"name": "p"}, "spec": POD | {"priorityClassName": wire.SPARE_PRIORITY_CLASS}}
        with pytest.raises(Forbidden, match="no PriorityClass with name inplace-spare was found"):
            await cluster.client("user").create(PODS, "default", pod)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_spare_runs_as_a_process_and_its_job_makes_another_one(example: Documents) -> None:
    """As in `inplace demo`: the agent's program waits, and a spare that is deleted ends with 128 + 15."""
    async with Cluster(nodes=2, adds_agent=True) as cluster:
        await cluster.apply(with_spares(example, 2, 1))

        def runs_one() -> bool:
            return [pod["status"].get("phase") for pod in parted(cluster)[1]] == ["Running"]

        await cluster.until(runs_one, timeout_s=TIMEOUT_S)
        (spare,) = parted(cluster)[1]
        await cluster.client("user").delete(PODS, "default", spare["metadata"]["name"])
        await cluster.until(
            lambda: runs_one() and parted(cluster)[1][0]["metadata"]["uid"] != spare["metadata"]["uid"],
            timeout_s=TIMEOUT_S,
        )
        assert wire.epochs_of_status(cluster.jobset("train")["status"]) == (1, 0)
