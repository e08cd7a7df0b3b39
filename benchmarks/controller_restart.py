"""Measure one group restart: the controller's CPU, and when its two status writes are seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from benchmarks.controller_lab import NAMESPACE, ControllerProcess
from benchmarks.controller_pods import PlayedGroup
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import JOBSETS
from inplace.common.kube.watch import watch_lines
from inplace.common.wire import names as wire

SEEN_S_MAX = 60.0  # a controller that needs a minute for one status write does not work
WATCH_S = 7_200  # longer than any run; 5,000 announcements on a busy machine take minutes without a status write
TAIL_S = 2.0  # a restart's later work (counters, Events) counts as its cost


@dataclass(slots=True)
class StatusWatch:
    """When each (S, D) of one JobSet was first seen by a watch of this process; monotonic seconds."""

    seen: dict[tuple[int, int], float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def when(self, *, synced: int = 0, deprecated: int = 0) -> float:
        """Return when S and D were first at least these."""
        async with asyncio.timeout(SEEN_S_MAX):
            while True:
                for (s, d), at_s in self.seen.items():
                    if s >= synced and d >= deprecated:
                        return at_s
                self.changed.clear()
                await self.changed.wait()

    def note(self, line: bytes) -> None:
        """Take in one line of the watch."""
        at_s = time.monotonic()
        event: dict[str, Any] = msgspec.json.decode(line)
        status = event["object"].get("status") or {}
        (own,) = status.get(wire.SCOPED_EPOCHS) or (status,)  # a group with spares is a scope
        self.seen.setdefault(wire.epochs_of_status(own), at_s)
        self.changed.set()


@asynccontextmanager
async def watching(client: KubeClient, name: str) -> AsyncIterator[StatusWatch]:
    """Watch one JobSet."""
    watch = StatusWatch()
    query = {"watch": "true", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": str(WATCH_S)}
    request = Request("GET", JOBSETS.path(NAMESPACE, query=query), client.headers)

    async def follow() -> None:
        lines = watch_lines(client.transport, request, clock=LoopClock(), inactivity_s=WATCH_S)
        async with aclosing(lines):
            async for line in lines:
                watch.note(line)
        raise AssertionError(f"the watch of {name} ended within {WATCH_S} s")

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        yield watch
        following.cancel()


@dataclass(frozen=True, slots=True)
class MeasuredRestart:
    """One group restart.

    Args:
        deprecate_s: from sending the first announcement to seeing D.
        sync_s: from sending the last announcement to seeing S.
        total_s: from sending the first announcement to seeing S.
        announce_s: what of that the announcements took: the server's share, and ours.
        cpu_s: of the controller, from before the first announcement until `TAIL_S` after the last container ran again.
    """

    deprecate_s: float
    sync_s: float
    total_s: float
    announce_s: float
    cpu_s: float = 0.0


async def form(group: PlayedGroup, watch: StatusWatch) -> None:
    """Bring a new group to its first epoch."""
    group.epoch = 1
    await group.announce(group.pods)
    await watch.when(synced=1)
    await group.spares_wait()
    await group.run_containers(group.pods)
    await group.count_ready(ready=True)


async def restart(group: PlayedGroup, watch: StatusWatch, process: ControllerProcess) -> MeasuredRestart:
    """Restart a running group as a failure does: one Pod first, then all others; kubelets report every change."""
    await asyncio.sleep(TAIL_S)
    began_cpu_s = process.cpu_s()
    timing = await announce_all(group, watch, kubelets=True)
    await group.run_containers(group.pods)
    await group.count_ready(ready=True)
    await asyncio.sleep(TAIL_S)
    return replace(timing, cpu_s=process.cpu_s() - began_cpu_s)


async def cost_of_announcements(group: PlayedGroup, watch: StatusWatch, process: ControllerProcess) -> float:
    """Return the CPU seconds of a restart in which no kubelet and no Job controller writes: the protocol's own cost."""
    began_cpu_s = process.cpu_s()
    await announce_all(group, watch, kubelets=False)
    await asyncio.sleep(TAIL_S)
    return process.cpu_s() - began_cpu_s


async def announce_all(group: PlayedGroup, watch: StatusWatch, *, kubelets: bool) -> MeasuredRestart:
    """Announce the next epoch, one Pod first and one last, and time the two status writes.

    With `kubelets` it is also reported that all containers ended, between deprecation and the other announcements.
    """
    group.epoch += 1
    first, *others, last = group.members
    first_s = time.monotonic()
    await group.announce([first])
    announce_s = time.monotonic() - first_s
    deprecated_s = await watch.when(deprecated=group.epoch - 1)
    if kubelets:
        await group.end_containers(group.pods)
        await group.count_ready(ready=False)
    others_s = time.monotonic()
    await group.announce(others)
    last_s = time.monotonic()
    await group.announce([last])
    announce_s += time.monotonic() - others_s
    synced_s = await watch.when(synced=group.epoch)
    await group.spares_wait()
    return MeasuredRestart(deprecated_s - first_s, synced_s - last_s, synced_s - first_s, announce_s)
