"""Upstream's controller still runs beside ours: both act, so neither may undo what the other wrote."""

from __future__ import annotations

import asyncio
import time

import pytest

from testbed.upstream.controller import upstream_controller
from testbed.waiting import until
from tests.cluster.clients.manifests import jobset
from tests.cluster.clients.queue import Queue, is_true
from tests.cluster.clients.world import CONTROLLER

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(CONTROLLER != "ours", reason="the two are ours and upstream's"),
]

WRITES_MAX = 5  # what is under way when we begin to count; a fight is hundreds
COUNTED_S = 3.0


async def writes_in(queue: Queue, seconds: float) -> int:
    """Count the changes of the JobSets of a namespace for some seconds."""
    version = (await queue.world.api.get(queue.jobsets))["metadata"]["resourceVersion"]
    count, until_s = 0, time.monotonic() + seconds
    try:
        async with asyncio.timeout(seconds):
            async for _ in queue.world.api.watch(queue.jobsets, resourceVersion=version):
                count += 1
    except TimeoutError:
        assert time.monotonic() >= until_s - 0.1
    return count


async def test_two_controllers(queue: Queue) -> None:
    """A group runs, restarts in place and completes under both controllers, and no write is undone for ever."""
    async with upstream_controller(queue.world.plane):
        await queue.in_place(jobset())
        pods = await queue.lifted(1)
        assert await writes_in(queue, COUNTED_S) <= WRITES_MAX
        pods[0].restart_containers()
        for pod in await queue.lifted(2):
            await queue.world.nodes.succeed(pod)

        async def is_completed() -> bool:
            return is_true(await queue.jobset(), "Completed")

        await until(is_completed, "the JobSet Completed")
        assert await writes_in(queue, COUNTED_S) <= WRITES_MAX
