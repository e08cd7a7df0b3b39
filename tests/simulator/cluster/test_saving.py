"""Real agents, guards, a controller and workers as processes: a restart on request and a drain lose no step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from inplace.common import wire
from inplace.common.kube.resources import JOBSETS, PODS
from inplace.controller.spec.requests import RestartRequest
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods

EXAMPLES = Path(__file__).parents[3] / "examples"
TIMEOUT_S = 60.0
PODS_COUNT = 3
SAVE_S = 30
STEPS_BEFORE = 8
DEPTHS = {"supervisor": "train-supervisor.yaml", "containers": "train-guarded.yaml", "process": "train-guarded.yaml"}


def documents(depth: str) -> list[dict[str, Any]]:
    """Return an example whose workers save before a planned stop, and at no other time."""
    found = with_pods(read_manifests(EXAMPLES / DEPTHS[depth]), PODS_COUNT)
    pod = next(one for one in found if one["kind"] == "JobSet")["spec"]["replicatedJobs"][0]["template"]["spec"][
        "template"
    ]
    spec = pod["spec"]
    spec["terminationGracePeriodSeconds"] = 2 * SAVE_S
    worker = spec["containers"][0]
    verb = next(place for place, word in enumerate(worker["command"]) if word in ("run", "guard"))
    worker["command"][verb + 1 : verb + 1] = ["--save-within", str(SAVE_S)]
    for entry in worker["env"]:
        if entry["name"] == "CHECKPOINT_EVERY":
            entry["value"] = "1000000"
    for agent in spec.get("initContainers") or ():
        agent["env"] += [
            {"name": "SAVE_WITHIN_S", "value": str(SAVE_S)},
            {"name": "RESTART_DEPTH", "value": depth},
        ]
    return found


def text_of(cluster: Cluster) -> str:
    """Return what all workers of all Pods that are there have printed."""
    files = sorted((cluster.folder / "pods").glob("*/logs/worker/*.log"))
    return "".join(path.read_text() for path in files)


def steps(cluster: Cluster, epoch: int) -> list[int]:
    """Return the steps that were made in an epoch, in any order."""
    return [int(step) for step in re.findall(rf"^step=(\d+) .* epoch={epoch} ", text_of(cluster), re.MULTILINE)]


async def trains(cluster: Cluster, epoch: int) -> None:
    """Wait until the group has made some steps in an epoch."""
    async with cluster.clock.timeout(TIMEOUT_S):
        while len(steps(cluster, epoch)) < STEPS_BEFORE * PODS_COUNT:
            await cluster.clock.sleep(0.1)


def went_on(cluster: Cluster, epoch: int) -> tuple[int, set[int]]:
    """Return the last step of the epoch before, and from which steps the workers of this one went on."""
    begun = re.findall(rf"epoch={epoch} goes on from step (\d+)$", text_of(cluster), re.MULTILINE)
    return max(steps(cluster, epoch - 1)), {int(step) for step in begun}


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("depth", DEPTHS)
async def test_planned_stops_lose_no_step(depth: str) -> None:
    """All workers go on from the last step that any of them made; the request is not counted, and no Pod is made anew."""
    async with Cluster(nodes=2) as cluster:
        await cluster.apply(documents(depth))
        await trains(cluster, 1)
        uids = {pod["metadata"]["uid"] for pod in cluster.pods()}
        annotations = {wire.RESTART_REQUESTED: str(RestartRequest("by-hand", SAVE_S))}
        await cluster.client().patch(JOBSETS, "default", "train", {"metadata": {"annotations": annotations}})
        await trains(cluster, 2)
        last, begun = went_on(cluster, 2)
        assert begun == {last}
        assert {pod["metadata"]["uid"] for pod in cluster.pods()} == uids
        status = cluster.jobset("train")["status"]
        assert (status[wire.LAST_GROUP_RESTART]["trigger"], status[wire.EXEMPT_EPOCHS]) == ("manual", 1)

        drained = cluster.pods()[1]["metadata"]
        await cluster.client().delete(PODS, "default", drained["name"])
        await trains(cluster, 3)
        last, begun = went_on(cluster, 3)
        assert begun == {last}
        assert drained["uid"] not in {pod["metadata"]["uid"] for pod in cluster.pods()}
