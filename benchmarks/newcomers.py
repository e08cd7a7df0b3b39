"""Measure how long a new JobSet waits for its Job, again and again, while others keep the controller busy."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import msgspec

from benchmarks.controller_pods import jobset
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import JOBS, JOBSETS
from inplace.common.kube.watch import watch_lines

NAMESPACE: Final = "newcomers"
PERIOD_S: Final = 0.25  # between two; none waits for the one before it
WAIT_S_MAX: Final = 120.0
WATCH_S: Final = 7_200


@asynccontextmanager
async def newcomers(client: KubeClient) -> AsyncIterator[list[float]]:
    """Create a JobSet of one Job each PERIOD_S; at the end the list holds for how many seconds each waited."""
    waits_s: list[float] = []
    made = _Made()
    async with asyncio.TaskGroup() as watching:
        following = watching.create_task(made.follow(client))
        async with asyncio.TaskGroup() as waiting:

            async def come(name: str) -> None:
                await client.create(JOBSETS, NAMESPACE, jobset(name, 1) | {"metadata": {"name": name}})
                began_s = time.monotonic()
                async with asyncio.timeout(WAIT_S_MAX):
                    waits_s.append(await made.when(f"{name}-workers-0") - began_s)

            async def come_again_and_again() -> None:
                while True:
                    waiting.create_task(come(f"newcomer-{time.monotonic_ns()}"))
                    await asyncio.sleep(PERIOD_S)

            coming = waiting.create_task(come_again_and_again())
            yield waits_s
            coming.cancel()
        following.cancel()


class _Made:
    """When each Job was first seen by a watch of this process; monotonic seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, asyncio.Future[float]] = {}

    async def when(self, job: str) -> float:
        return await self._of(job)

    async def follow(self, client: KubeClient) -> None:
        query = {"watch": "true", "timeoutSeconds": str(WATCH_S)}
        request = Request("GET", JOBS.path(NAMESPACE, query=query), client.headers)
        lines = watch_lines(client.transport, request, clock=LoopClock(), inactivity_s=WATCH_S)
        async with aclosing(lines):
            async for line in lines:
                at_s = time.monotonic()
                event: dict[str, Any] = msgspec.json.decode(line)
                seen = self._of(event["object"]["metadata"]["name"])
                if not seen.done():
                    seen.set_result(at_s)

    def _of(self, job: str) -> asyncio.Future[float]:
        return self._seen.setdefault(job, asyncio.get_running_loop().create_future())


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that so many percent of the values do not exceed (nearest rank)."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]
