"""
Measure our controller beside upstream's, each on a kube-apiserver of its own: restarts by announcements alone, in turn.

Both watch the same played group: the same JobSet and Pods, the same writes in the same order. Both API servers run all
the time, and a round restarts one group after the other, so that what disturbs the machine disturbs both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from benchmarks.controller_lab import ControllerProcess, open_lab, open_upstream_lab
from benchmarks.controller_pods import PlayedGroup
from benchmarks.controller_restart import TAIL_S, StatusWatch, announce_all, form, watching
from benchmarks.figures import Figures
from inplace.common.kube.client import KubeClient

OURS: Final = "ours"
UPSTREAM: Final = "upstream"
JUDGED_PODS: Final = 5_000  # the size whose CPU and memory have a bound
CPU_RATIO_MAX: Final = 0.08
RSS_RATIO_MAX: Final = 0.3
LATENCY_RATIO_MAX: Final = 1.0  # at every size


@dataclass(slots=True)
class Side:
    """One controller with its group.

    Args:
        process: the controller.
    """

    process: ControllerProcess
    group: PlayedGroup
    watch: StatusWatch

    async def restart(self) -> dict[str, float]:
        """Restart the group by announcements alone; return its figures."""
        began_cpu_s = self.process.cpu_s()
        one = await announce_all(self.group, self.watch, kubelets=False)
        await asyncio.sleep(TAIL_S)
        cpu_s = self.process.cpu_s() - began_cpu_s
        return {"cpu_s": cpu_s, "deprecate_ms": one.deprecate_s * 1e3, "sync_ms": one.sync_s * 1e3}


def report_of(sizes: Sequence[int], about: str) -> Figures:
    """Return the report of no restarts yet: CPU and memory are judged at JUDGED_PODS, delays at every size."""
    pairs = [(f"{pods:,} Pods, {OURS}", f"{pods:,} Pods, {UPSTREAM}") for pods in sizes]
    most = {(" / ".join(pair), name): LATENCY_RATIO_MAX for pair in pairs for name in ("deprecate_ms", "sync_ms")}
    judged = f"{JUDGED_PODS:,} Pods, {OURS} / {JUDGED_PODS:,} Pods, {UPSTREAM}"
    most |= {(judged, "cpu_s"): CPU_RATIO_MAX, (judged, "rss_mb"): RSS_RATIO_MAX}
    return Figures(about, compared=pairs, most=most, means=("cpu_s",))


async def compare(pods: int, rounds: int, figures: Figures) -> None:
    """Restart one group under each controller, in turn; add both sides' figures."""
    async with AsyncExitStack() as stack:
        sides = {
            OURS: await stack.enter_async_context(_side(_our_controller, pods)),
            UPSTREAM: await stack.enter_async_context(_side(open_upstream_lab, pods)),
        }
        for _ in range(rounds):
            for name, side in sides.items():
                figures.add(f"{pods:,} Pods, {name}", await side.restart())
        for name, side in sides.items():
            figures.add(f"{pods:,} Pods, {name}", {"rss_mb": side.process.rss_mb()})


@asynccontextmanager
async def _our_controller() -> AsyncIterator[tuple[KubeClient, ControllerProcess]]:
    async with open_lab() as lab, lab.controller() as process:
        yield lab.client, process


@asynccontextmanager
async def _side(
    open_controller: Callable[[], AbstractAsyncContextManager[tuple[KubeClient, ControllerProcess]]], pods: int
) -> AsyncIterator[Side]:
    """Run a controller with a group that has reached its first epoch."""
    async with open_controller() as (client, process):
        group = PlayedGroup(client, "train")
        await group.create(pods)
        async with watching(client, "train") as watch:
            await form(group, watch)
            await asyncio.sleep(TAIL_S)
            yield Side(process, group, watch)
