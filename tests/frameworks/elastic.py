"""A framework's elastic example loses a Pod for which there is no room, trains on with fewer, and gets it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.systems import PODS, in_pods
from inplace.common.kube.resources import PODS as OF_PODS
from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster
from testbed.frameworks.kills import reference
from testbed.frameworks.worker_lines import Findings, WorkerLines

MICRO_BATCHES = 8  # as the examples have it
STEPS = 15  # of each size
SIZE_S_MAX = 240.0  # eight processes import a framework on two busy cores
ROUNDING = 1e-5  # sums have another order with fewer ranks


async def shrink_and_grow(folder: Path, framework: str, most: int, least: int) -> None:
    """Delete rank 0's Pod while others have taken all room, then give the room back.

    By itself the group trains with `least` ranks, later with `most` again. Each step has the loss that it has in a run
    of `most` ranks that nothing disturbs, and each run goes on from the newest checkpoint. No Job is recreated.
    """
    sizes = {wire.MEMBERS: f"max={most},min={least},step={most - least},wait=2"}
    example = f"elastic-{framework}"
    async with in_pods(folder, framework=framework, example=example, annotations=sizes, pods=most) as group:
        cluster, lines = group.cluster, WorkerLines(folder / "pods", "worker", ROUNDING)
        assert cluster is not None
        await _trains(cluster, lines, most)
        async with _no_room(cluster, 2 * most):
            (first,) = [name for name in _names(cluster) if "-workers-0-0-" in name]
            await cluster.client().delete(OF_PODS, "default", first)
            await _trains(cluster, lines, least)
        await _trains(cluster, lines, most)
        status = cluster.jobset(example)["status"]
    expected = await asyncio.to_thread(reference, framework, most, lines.last_step, folder, MICRO_BATCHES)
    findings = Findings.of(lines, expected)
    assert findings.are_clean, findings.as_json()
    assert list(lines.worlds.values()) == [most, least, most]
    assert status["restarts"] == 0


async def end_with_a_spare(folder: Path, framework: str) -> None:
    """Delete a rank's Pod beside a spare: all ranks go on in one restart, and after the last step it is Completed.

    The spare never trained, and has imported the framework BEFORE it is needed.
    """
    sizes, example = {wire.MEMBERS: f"max={PODS}"}, f"elastic-{framework}"
    steps = 400  # it trains on until the spare has imported the framework, in a quarter of the time
    async with in_pods(
        folder, framework=framework, example=example, annotations=sizes, pods=PODS + 1, steps=steps
    ) as group:
        cluster, lines = group.cluster, WorkerLines(folder / "pods", "worker", ROUNDING)
        assert cluster is not None
        await _trains(cluster, lines, PODS)
        spare = await group.await_spare()
        await group.delete_pod(Random(1))
        await cluster.until(lambda: bool(cluster.jobset(example)["status"].get("terminalState")), timeout_s=SIZE_S_MAX)
        lines.read()
        status, said = cluster.jobset(example)["status"], spare.read_text()
    assert (status["terminalState"], status["restarts"], lines.last_step) == ("Completed", 0, steps)
    assert lines.worlds == {1: PODS, 2: PODS}
    assert (lines.mixed, lines.differing) == ([], [])
    assert "standby_released" in said


async def _trains(cluster: Cluster, lines: WorkerLines, world: int) -> None:
    """Wait until so many ranks have made STEPS steps, in the newest epoch."""

    def has_trained() -> bool:
        lines.read()
        epoch = max(lines.resumed, default=0)
        return lines.worlds.get(epoch) == world and lines.reached[epoch] >= min(lines.resumed[epoch]) + STEPS

    try:
        async with asyncio.timeout(SIZE_S_MAX):
            while not has_trained():
                await cluster.clock.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"expected {world} ranks that train, saw {lines.worlds}\n{lines.tails()}") from None


@asynccontextmanager
async def _no_room(cluster: Cluster, room: int) -> AsyncIterator[None]:
    """Let Pods of somebody else take what is free now, and the first place that gets free."""
    others = [_other(number) for number in range(room - len(_names(cluster)) + 1)]
    await cluster.apply(others)
    yield
    for other in others:
        await cluster.client().delete(OF_PODS, "default", other["metadata"]["name"])


def _other(number: int) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["sleep", "600"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    meta = {"name": f"other-{number}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _names(cluster: Cluster) -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.pods()]
