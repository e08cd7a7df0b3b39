"""Processes inside one event loop end as SIGKILL ends them."""

from __future__ import annotations

import asyncio
import gc

import pytest
from anyio import create_task_group

from inplace.simulator.campaign.process import Process, drive
from inplace.simulator.cluster.virtual_time import VirtualTimeLoop

pytestmark = pytest.mark.virtual_time


async def test_a_killed_process_leaves_no_coroutine_behind() -> None:
    """A killed process's unstarted task takes no step, and the coroutine inside anyio's wrapper is closed."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    steps: list[str] = []
    process = Process("program")

    async def child() -> None:
        steps.append("child")

    async def main() -> None:
        async with create_task_group() as group:
            group.start_soon(child)
            process.kill()
            await asyncio.sleep(1)

    loop.drive = drive
    running = process.start(main())
    await asyncio.wait([running])
    loop.drive = None
    assert running.cancelled()
    assert steps == []
    gc.collect()  # an unawaited coroutine would warn, and a warning is an error here
