"""Spares under Kueue: its quota stays what the JobSet's spec says, and it holds no spare back."""

from __future__ import annotations

import pytest

from inplace.common.jobset.spares import spares_name
from inplace.common.wire import names as wire
from testbed.waiting import eventually, until
from tests.cluster.clients.conftest import OpenQueue
from tests.cluster.clients.manifests import jobset
from tests.cluster.clients.queue import Object, Queue, condition, is_true
from tests.cluster.clients.world import RESERVED

pytestmark = pytest.mark.asyncio(loop_scope="session")

SPARES = 2


async def spares(queue: Queue) -> list[Object]:
    """Return the spares that run, if they are as many as asked for."""
    found = [pod for pod in (await queue.pods()).values() if wire.SPARE_OF in pod["metadata"]["labels"]]
    running = [pod for pod in found if is_true(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]]
    return running if len(running) == SPARES else []


async def test_spares_use_no_quota_and_go_with_the_admission(opened: OpenQueue) -> None:
    """The quota has room for the group alone; spares run all the same, and end when Kueue takes the admission back."""
    queue = await opened({RESERVED: 3})
    manifest = jobset()
    manifest["metadata"]["annotations"] = {wire.SPARES: str(SPARES)}
    await queue.in_place(manifest)
    await queue.workload_is("Admitted")
    found: list[Object] = await until(lambda: spares(queue), "two spares that run")
    for pod in found:
        assert not pod["spec"].get("schedulingGates")
        assert not [label for label in pod["metadata"]["labels"] if "kueue" in label]
        assert pod["spec"]["nodeSelector"] == {"capacity": RESERVED}, "the flavor that Kueue gave the group"
    await eventually(queue.usage, {RESERVED: "2020m"})  # Kueue counts it a moment later
    assert await queue.workloads_so_far() == 1
    workload = await queue.workload()
    assert condition(workload, "Evicted") == {}

    path = f"{queue.workloads_path}/{workload['metadata']['name']}"
    await queue.world.api.patch(path, {"spec": {"active": False}})

    async def holds_nothing() -> bool:
        return spares_name("train") not in await queue.jobs() and not await queue.pods()

    await until(holds_nothing, "no Pod and no Job of spares: the JobSet is suspended")
    assert (await queue.jobset())["spec"]["suspend"] is True
