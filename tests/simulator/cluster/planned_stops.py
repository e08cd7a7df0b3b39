"""A group of real processes whose workers save before planned stops: a restart on request, then a drain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inplace.common.jobset.requests import RestartRequest
from inplace.common.kube.resources import JOBSETS, PODS
from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods

EXAMPLES = Path(__file__).parents[3] / "examples"
TIMEOUT_S = 120.0
PODS_COUNT = 3
SAVE_S = 30
STEPS_BEFORE = 8


async def stop_twice(example: str, depth: str = "", programs: Sequence[Path] = ()) -> None:
    """Restart a group on request, then drain a Pod: each time all go on from the last step that any worker made.

    The request is not counted, and no Pod is made anew for it.

    Args:
        example: a manifest of examples/.
        depth: of a restart below a guard.
        programs: folders that the workers find their programs in first.
    """
    documents = saving_documents(example, depth)
    name = documents[-1]["metadata"]["name"]
    async with Cluster(nodes=2, programs=programs) as cluster:
        await cluster.apply(documents)
        await _trains(cluster, 1)
        uids = {pod["metadata"]["uid"] for pod in cluster.pods()}
        annotations = {wire.RESTART_REQUESTED: str(RestartRequest("by-hand", SAVE_S))}
        await cluster.client().patch(JOBSETS, "default", name, {"metadata": {"annotations": annotations}})
        await _trains(cluster, 2)
        last, begun = _went_on(cluster, 2)
        assert begun == {last}
        assert {pod["metadata"]["uid"] for pod in cluster.pods()} == uids
        status = cluster.jobset(name)["status"]
        assert (status[wire.LAST_GROUP_RESTART]["trigger"], status[wire.EXEMPT_EPOCHS]) == ("manual", 1)

        drained = cluster.pods()[1]["metadata"]
        await cluster.client().delete(PODS, "default", drained["name"])
        await _trains(cluster, 3)
        last, begun = _went_on(cluster, 3)
        assert begun == {last}
        assert drained["uid"] not in {pod["metadata"]["uid"] for pod in cluster.pods()}


def saving_documents(example: str, depth: str) -> list[dict[str, Any]]:
    """Return an example whose workers save before a planned stop, and at no other time."""
    found = with_pods(read_manifests(EXAMPLES / example), PODS_COUNT)
    spec = found[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 2 * SAVE_S
    for entry in spec["containers"][0]["env"]:
        if entry["name"] == "CHECKPOINT_EVERY":
            entry["value"] = "1000000"
    how = f"save-within={SAVE_S}{depth and f',depth={depth}'}"
    found[-1]["metadata"]["annotations"] = {wire.RESTART: how}
    return found


def _text(cluster: Cluster) -> str:
    """Return what the workers of all Pods that are there have printed."""
    files = sorted((cluster.folder / "pods").glob("*/logs/worker/*.log"))
    return "".join(path.read_text() for path in files)


def _steps(cluster: Cluster, epoch: int) -> list[int]:
    """Return the steps that were made in an epoch, in any order."""
    return [int(step) for step in re.findall(rf"^step=(\d+) .* epoch={epoch} ", _text(cluster), re.MULTILINE)]


async def _trains(cluster: Cluster, epoch: int) -> None:
    """Wait until the group has made some steps in an epoch."""
    try:
        async with cluster.clock.timeout(TIMEOUT_S):
            while len(_steps(cluster, epoch)) < STEPS_BEFORE * PODS_COUNT:
                await cluster.clock.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"expected steps in epoch {epoch}, saw {_text(cluster)[-2000:]}") from None


def _went_on(cluster: Cluster, epoch: int) -> tuple[int, set[int]]:
    """Return the last step of the epoch before, and from which steps the workers of this one went on."""
    begun = re.findall(rf"epoch={epoch} goes on from step (\d+)$", _text(cluster), re.MULTILINE)
    return max(_steps(cluster, epoch - 1)), {int(step) for step in begun}
