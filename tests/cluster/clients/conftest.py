"""One world for each process of the tests; a queue of its own for each scenario."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from images.build_once import MissingComponent
from testbed.binaries import Binaries
from testbed.clients.programs import Trainer
from testbed.go_programs import kueue, trainer
from tests.cluster.clients.queue import Object, Queue, open_queue
from tests.cluster.clients.trainjobs import TrainJobs, shipped_runtimes
from tests.cluster.clients.world import World, running_world
from tests.cluster.conftest import unavailable

OpenQueue = Callable[..., Awaitable[Queue]]


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> None:
    """Find or build Kueue and Trainer; the build's announcement goes to the terminal."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None, "pytest always registers its capture manager"
    with capture.global_and_fixture_disabled():
        try:
            kueue(), trainer()
        except MissingComponent as error:
            unavailable(error)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(binaries: Binaries, programs: None) -> AsyncIterator[World]:
    """Run the control plane, its Nodes, the JobSet controller and Kueue."""
    async with running_world(binaries) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def opened(world: World) -> AsyncIterator[OpenQueue]:
    """Open queues, and end what runs in them afterwards."""
    queues: list[Queue] = []

    async def open_one(quotas: dict[str, int | str] | None = None, **spec: Any) -> Queue:
        queues.append(await open_queue(world, quotas or {"any": 10}, **spec))
        return queues[-1]

    yield open_one
    for each in queues:
        await world.api.delete(f"/api/v1/namespaces/{each.namespace}")


@pytest_asyncio.fixture(loop_scope="session")
async def queue(opened: OpenQueue) -> Queue:
    """Give a queue with ten CPUs."""
    return await opened()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def runtimes(world: World) -> AsyncIterator[dict[str, Object]]:
    """Run Trainer with the runtimes that it ships, and give them by name."""
    async with Trainer(world.plane).running():
        yield await shipped_runtimes(world)


@pytest.fixture
def trainjobs(queue: Queue, runtimes: dict[str, Object]) -> TrainJobs:
    """Give a namespace for TrainJobs."""
    return TrainJobs(queue)
