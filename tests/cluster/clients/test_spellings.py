"""Kueue compares a JobSet with its own copy: every spelling is admitted once, and not made anew for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import pytest_asyncio
import yaml

from testbed.waiting import until
from tests.cluster.clients.queue import Object, Queue, flavor, open_queue
from tests.cluster.clients.spellings import spelled
from tests.cluster.clients.world import World
from tests.cluster.typedclient.build import SPELLINGS
from tests.examples.test_manifests import MANIFESTS, documents

pytestmark = pytest.mark.asyncio(loop_scope="session")

CASES: Final = dict(spelled()) | {"spellings.yaml": yaml.safe_load(SPELLINGS.read_text())}
NOWHERE: Final = flavor("nowhere", nodeLabels={"capacity": "nowhere"})  # so that no Pod runs, and no agent


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def queue(world: World) -> AsyncIterator[Queue]:
    """Give a queue with room for everything, whose Pods find no Node."""
    await world.applier.apply_one(NOWHERE)
    opened = await open_queue(world, {"nowhere": 10000})
    yield opened
    await world.api.delete(f"/api/v1/namespaces/{opened.namespace}")


@asynccontextmanager
async def workloads_made(queue: Queue) -> AsyncIterator[set[str]]:
    """Collect the UIDs of all Workloads that are made in the namespace, also of those that go at once."""
    made: set[str] = set()

    async def collect(version: str) -> None:
        async for event in queue.world.api.watch(queue.workloads_path, resourceVersion=version):
            made.add(event["object"]["metadata"]["uid"])

    version = (await queue.world.api.get(queue.workloads_path))["metadata"]["resourceVersion"]
    collecting = asyncio.create_task(collect(version))
    try:
        yield made
    finally:
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)


async def admitted_once(queue: Queue, manifest: Object) -> Object:
    """Submit a JobSet; check that one Workload is admitted in time and the JobSet resumed; leave nothing, return it."""
    name = manifest["metadata"]["name"]

    async def is_resumed() -> bool:
        return not (await queue.jobset(name))["spec"].get("suspend")

    async def nothing_is_left() -> bool:
        return not await queue.workloads()

    async with workloads_made(queue) as made:
        await queue.submit(manifest)
        try:
            await queue.admitted(name)
            await until(is_resumed, f"{name} resumed")
            await until(lambda: made, "an event of its Workload")  # the watch may lag behind the admission
            assert len(made) == 1
            return await queue.jobset(name)
        finally:
            await queue.delete(name)
            await until(nothing_is_left, "no Workload")


@pytest.mark.parametrize("case", CASES)
async def test_a_spelling(queue: Queue, case: str) -> None:
    """A JobSet that leaves a default out is admitted within seconds, by exactly one Workload."""
    await admitted_once(queue, CASES[case])


@pytest.mark.parametrize("name", MANIFESTS)
async def test_an_example(queue: Queue, name: str) -> None:
    """Every manifest of examples/ with a queue's label is admitted within seconds, by one Workload; none is left."""
    for manifest in documents(name):
        await admitted_once(queue, manifest)


async def test_a_gang(queue: Queue) -> None:
    """The Pods' schedulingGroup, which Kueue's types do not know, survives Kueue's writes."""
    (manifest,) = documents("gang-scheduling.yaml")
    stored = await admitted_once(queue, manifest)
    groups = [
        [job["template"]["spec"]["template"]["spec"].get("schedulingGroup") for job in each["spec"]["replicatedJobs"]]
        for each in (manifest, stored)
    ]
    assert any(groups[0])
    assert groups[0] == groups[1]
