"""Kueue's waitForPodsReady beside restarts in place: it evicts a group that stays at its barrier, and no other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from testbed.waiting import until
from tests.cluster.clients.conftest import OpenQueue
from tests.cluster.clients.manifests import jobset, replicated_job
from tests.cluster.clients.queue import Object, Queue, condition, is_true
from tests.cluster.clients.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATIENT = "120s"  # a restart in place is over well before, also on a busy machine
WAITING = {
    "timeout": "25s",
    "recoveryTimeout": "25s",
    "blockAdmission": False,
    "requeuingStrategy": {"backoffBaseSeconds": 1, "backoffMaxSeconds": 1},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def waiting(world: World) -> AsyncIterator[None]:
    """Run Kueue with waitForPodsReady for this module."""
    await world.kueue.run(waitForPodsReady=WAITING)
    yield
    await world.kueue.run()


def split(label: str) -> Object:
    """Return a group of two Pods, of which one finds no Node before a Node has the label."""
    late = replicated_job("late", pods=1)
    late["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"late": label}
    return jobset(replicated_job("early", pods=1), late)


async def evicted(queue: Queue) -> Object:
    """Wait until the group's Workload is evicted, and return it."""
    return await queue.workload_is("Evicted")


async def test_a_group_that_waits_at_its_barrier(queue: Queue) -> None:
    """A group that lacks a Pod is evicted by the time-out; when a Node is there, it is admitted again and runs."""
    await queue.in_place(split(queue.namespace))
    found = await evicted(queue)
    assert condition(found, "Evicted")["reason"] == "PodsReadyTimeout"
    await queue.world.api.patch("/api/v1/nodes/rack-a-0", {"metadata": {"labels": {"late": queue.namespace}}})

    async def is_ready() -> bool:
        return is_true(await queue.workload(), "PodsReady")

    await until(is_ready, "a Workload with PodsReady")
    assert {pod.lifts[-1] for pod in queue.played()} <= {1, 2, 3}


async def test_a_replaced_pod_that_does_not_come(opened: OpenQueue) -> None:
    """A replaced Pod that finds no Node for longer than recoveryTimeout costs the group its admission."""
    queue = await opened()
    await queue.world.api.patch("/api/v1/nodes/rack-b-0", {"metadata": {"labels": {"late": queue.namespace}}})
    await queue.in_place(split(queue.namespace))
    await queue.lifted(1)
    await queue.workload_is("PodsReady")
    await queue.world.api.patch("/api/v1/nodes/rack-b-0", {"metadata": {"labels": {"late": None}}})
    (late,) = (pod for pod in queue.played() if "train-late-" in pod.path)
    await queue.world.api.delete(late.path)
    assert condition(await evicted(queue), "Evicted")["reason"] == "PodsReadyTimeout"


async def test_a_restart_within_the_recovery(queue: Queue) -> None:
    """A restart in place is over before recoveryTimeout: the Workload loses PodsReady, has it again, and stays."""
    await queue.world.kueue.run(waitForPodsReady=WAITING | {"timeout": PATIENT, "recoveryTimeout": PATIENT})
    await queue.in_place(jobset())
    pods = await queue.lifted(1)
    first = await queue.workload_is("PodsReady")
    pods[0].restart_containers()
    await queue.lifted(2)
    again = await queue.workload_is("PodsReady")
    assert (again["metadata"]["uid"], condition(again, "Evicted")) == (first["metadata"]["uid"], {})
    assert condition(again, "PodsReady")["reason"] in ("Started", "Recovered")
