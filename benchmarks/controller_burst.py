"""Create many JobSets at once: time until all their Jobs exist, and the effect on another group's restart."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from benchmarks.controller_lab import NAMESPACE, ControllerProcess, Lab
from benchmarks.controller_pods import PlayedGroup, at_once, jobset
from benchmarks.controller_restart import MeasuredRestart, announce_all, form, watching
from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import JOBS, JOBSETS, SERVICES

BURST_S_MAX = 300.0  # five times the promise: a longer wait is a failure, not only a missed promise
SERVICE_S_MAX = 30.0
GROUP_PODS = 4  # small, so that the announcements take no time worth speaking of
JOBS_POLL_S, SERVICE_POLL_S = 0.1, 0.01


@dataclass(frozen=True, slots=True)
class Burst:
    """What a burst did.

    Args:
        seconds: from the first creation until every Job exists.
        restarts: of another JobSet, as many as fitted in.
        idle: the same before the burst; for comparison.
    """

    seconds: float
    restarts: list[MeasuredRestart]
    idle: list[MeasuredRestart]
    cpu_s: float


async def measure_burst(lab: Lab, process: ControllerProcess, jobsets: int, idle_restarts: int) -> Burst:
    """Create JobSets of one Job while another group restarts again and again."""
    group = PlayedGroup(lab.client, "victim")
    await group.create(GROUP_PODS)
    async with watching(lab.client, "victim") as watch:
        await form(group, watch)
        idle = [await announce_all(group, watch, kubelets=False) for _ in range(idle_restarts)]
        restarts: list[MeasuredRestart] = []
        before = await count_jobs(lab.client, NAMESPACE)
        began_s, began_cpu_s = time.monotonic(), process.cpu_s()
        creating = asyncio.create_task(_create(lab.client, jobsets))
        waiting = asyncio.create_task(_await_jobs(lab.client, before + jobsets))
        while not waiting.done():
            restarts.append(await announce_all(group, watch, kubelets=False))
        await creating
        seconds = await waiting - began_s
        return Burst(seconds, restarts, idle, process.cpu_s() - began_cpu_s)


async def measure_service(client: KubeClient, round_: int) -> tuple[float, float]:
    """Return the seconds until a new JobSet has its Service, and until a deleted Service is there again."""
    name = f"service-{round_}"
    await client.create(JOBSETS, NAMESPACE, jobset(name, 1))
    began_s = time.monotonic()  # not before: a server takes up to 2 s for the first write of a new CRD
    created_s = await _await_service(client, name) - began_s
    await asyncio.sleep(1.0)  # the passes of the creation are over
    began_s = time.monotonic()
    await client.delete(SERVICES, NAMESPACE, name)
    return created_s, await _await_service(client, name) - began_s


async def _create(client: KubeClient, jobsets: int) -> None:
    async def create(number: int) -> None:
        await client.create(JOBSETS, NAMESPACE, jobset(f"burst-{number}", 1))

    await at_once(create, range(jobsets))


async def _await_jobs(client: KubeClient, count: int) -> float:
    """Return when that many Jobs exist."""
    async with asyncio.timeout(BURST_S_MAX):
        while await count_jobs(client, NAMESPACE) < count:  # noqa: ASYNC110 - another process makes them
            await asyncio.sleep(JOBS_POLL_S)
    return time.monotonic()


async def count_jobs(client: KubeClient, namespace: str) -> int:
    """Return how many Jobs a namespace has."""
    page = await client.list(JOBS, namespace, query={"limit": "1"})
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


async def _await_service(client: KubeClient, name: str) -> float:
    """Return when the Service exists."""
    query = {"fieldSelector": f"metadata.name={name}"}
    async with asyncio.timeout(SERVICE_S_MAX):
        while not (await client.list(SERVICES, NAMESPACE, query=query))["items"]:  # noqa: ASYNC110 - as above
            await asyncio.sleep(SERVICE_POLL_S)
    return time.monotonic()
