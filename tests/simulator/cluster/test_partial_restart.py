"""Two replicatedJobs that restart by themselves: whole agents and the whole controller, in both modes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest

from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster, virtual_cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
TIMEOUT_S: Final = 90.0
LOOK_S: Final = 0.05


def divided(name: str) -> list[dict[str, Any]]:
    """Return an example with its replicatedJob twice, workers and others, each of two Pods and a scope of its own."""
    documents = read_manifests(EXAMPLES / name)
    (jobset,) = [document for document in documents if document["kind"] == "JobSet"]
    jobset["metadata"]["annotations"] = {wire.RESTART_SCOPE: "ReplicatedJob"}
    (workers,) = jobset["spec"]["replicatedJobs"]
    pod = workers["template"]["spec"]["template"]["spec"]
    (agent,) = [
        container
        for container in [*pod.get("initContainers", ()), *pod["containers"]]
        if any(entry["name"] == "PREVIOUS_EPOCH" for entry in container.get("env", ()))
    ]
    if "run" in agent.get("command", ()):
        agent["command"] = ["inplace-agent", "run", "--", "sleep", "600"]
    jobset["spec"]["replicatedJobs"].append(deepcopy(workers) | {"name": "others"})
    return with_pods(documents, 4)


def epochs(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """Return (S, D) by scope."""
    entries = (cluster.jobset("train").get("status") or {}).get(wire.SCOPED_EPOCHS) or ()
    return {entry["name"]: (entry[wire.SYNCED_EPOCH], entry[wire.DEPRECATED_EPOCH]) for entry in entries}


def works(pod: dict[str, Any]) -> bool:
    """Return whether the worker of a Pod runs."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return bool(statuses) and all("running" in status["state"] for status in statuses)


async def kill_one(cluster: Cluster, pod: str, *, supervised: bool) -> None:
    """Kill the worker of a Pod; a supervisor starts it a moment after the sync, and nobody is told."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with suppress(LookupError):
                return cluster.kill_worker("default", pod, supervised=supervised)
            await asyncio.sleep(LOOK_S)


async def restart_one_scope(
    cluster: Cluster, documents: list[dict[str, Any]], *, supervised: bool
) -> tuple[dict[str, str], list[int]]:
    """Kill a worker; return what each Pod announced in the end, and how often others' containers restarted."""
    await cluster.apply(documents)
    both = {"workers": (1, 0), "others": (1, 0)}
    await cluster.until(lambda: epochs(cluster) == both and all(map(works, cluster.pods())), timeout_s=TIMEOUT_S)
    names = sorted(pod["metadata"]["name"] for pod in cluster.pods())
    await kill_one(cluster, next(name for name in names if "-workers-" in name), supervised=supervised)
    await cluster.until(lambda: epochs(cluster) == both | {"workers": (2, 1)}, timeout_s=TIMEOUT_S)
    await cluster.until(lambda: all(map(works, cluster.pods())), timeout_s=TIMEOUT_S)
    assert sorted(pod["metadata"]["name"] for pod in cluster.pods()) == names
    announced = {pod["metadata"]["name"][:-6]: pod["metadata"]["annotations"][wire.EPOCH] for pod in cluster.pods()}
    others = [pod for pod in cluster.pods() if "-others-" in pod["metadata"]["name"]]
    return announced, [status["restartCount"] for pod in others for status in pod["status"]["containerStatuses"]]


EXPECTED: Final = (
    {"train-workers-0-0": "2", "train-workers-0-1": "2", "train-others-0-0": "1", "train-others-0-1": "1"},
    [0, 0],
)


@pytest.mark.virtual_time
async def test_a_killed_worker_restarts_its_replicated_job_and_no_other() -> None:
    """Sidecars: the scope of the dead worker is at epoch 2, the other's containers were never touched."""
    async with virtual_cluster(nodes=4) as cluster:
        assert await restart_one_scope(cluster, divided("train.yaml"), supervised=False) == EXPECTED


@pytest.mark.asyncio
async def test_a_supervisor_restarts_its_replicated_job_and_no_other() -> None:
    """Supervisors, real processes: the same, and no container of any Pod was restarted."""
    async with Cluster(nodes=2) as cluster:
        assert await restart_one_scope(cluster, divided("train-supervisor.yaml"), supervised=True) == EXPECTED
        statuses = [status for pod in cluster.pods() for status in pod["status"]["containerStatuses"]]
        assert [status["restartCount"] for status in statuses] == [0] * 4
