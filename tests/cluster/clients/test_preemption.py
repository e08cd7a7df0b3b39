"""Kueue evicts a group for a more important one, and admits it again."""

from __future__ import annotations

import pytest

from testbed.waiting import until
from tests.cluster.clients.conftest import OpenQueue
from tests.cluster.clients.manifests import jobset
from tests.cluster.clients.queue import Object, Queue, condition, is_true, priority_class
from tests.cluster.clients.world import RESERVED

pytestmark = pytest.mark.asyncio(loop_scope="session")

PREEMPTION = {"withinClusterQueue": "LowerPriority"}


async def preempted(opened: OpenQueue, restarts_max: int) -> tuple[Queue, Object]:
    """Return a queue in which a running group was evicted for `high`, and the group's spec as it was submitted."""
    queue = await opened({RESERVED: 3}, preemption=PREEMPTION)
    for name, value in (("low", 1), ("high", 100)):
        await queue.world.applier.apply_one(priority_class(name, value))
    policy = {"maxRestarts": restarts_max, "restartStrategy": "InPlaceRestart"}
    submitted = await queue.in_place(jobset(failurePolicy=policy), priority="low")
    await queue.lifted(1)
    await queue.submit(jobset(name="high"), priority="high")
    return queue, submitted["spec"]


async def test_a_preempted_group(opened: OpenQueue) -> None:
    """An evicted group is suspended, its Pods go, its template is what was submitted, and the other one runs."""
    queue, submitted = await preempted(opened, 3)
    evicted = await queue.workload_is("Preempted")
    assert condition(evicted, "Evicted")["reason"] == "Preempted"
    await queue.workload_is("Admitted", "high")
    await queue.pods_are_ready(2)

    async def is_restored() -> bool:
        return bool((await queue.jobset())["spec"] == submitted)

    await until(is_restored, "the spec as it was submitted")


async def test_readmitted_without_a_restart(opened: OpenQueue) -> None:
    """A group that may not restart at all runs again after its eviction: a resume is no restart."""
    queue, _ = await preempted(opened, 0)
    await queue.workload_is("Preempted")
    await queue.pods_are_ready(2)
    await queue.delete("high")
    await queue.workload_is("Admitted")
    await until(lambda: _runs(queue), "two Pods whose barrier lifted")
    jobset_now = await queue.jobset()
    assert not is_true(jobset_now, "Failed")
    template = (await queue.jobs())["train-workers-0"]["spec"]["template"]["spec"]
    assert template["nodeSelector"] == {"capacity": RESERVED}
    assert await queue.workloads_so_far() == 2


async def _runs(queue: Queue) -> bool:
    found = queue.played()
    return len(found) == 2 and all(is_true(pod.stored, "Ready") for pod in found)
