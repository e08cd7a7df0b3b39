"""
Measure our controller beside upstream's, each on a kube-apiserver of its own: restarts by announcements alone, in turn.

Both watch the same played group: the same JobSet and Pods, the same writes in the same order. Both API servers run all
the time, and a round restarts one group after the other, so that what disturbs the machine disturbs both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from benchmarks.controller_lab import ControllerProcess, open_lab, open_upstream_lab
from benchmarks.controller_pods import PlayedGroup
from benchmarks.controller_restart import TAIL_S, MeasuredRestart, StatusWatch, announce_all, form, watching
from inplace.common.kube.client import KubeClient

OURS: Final = "ours"
UPSTREAM: Final = "upstream"
FIGURES: Final = ("cpu_s", "rss_mb", "deprecate_ms", "sync_ms")
JUDGED_PODS: Final = 5_000  # the size whose CPU and memory have a bound
CPU_RATIO_MAX: Final = 0.08
RSS_RATIO_MAX: Final = 0.3
LATENCY_RATIO_MAX: Final = 1.0  # at every size


@dataclass(slots=True)
class Side:
    """One controller with its group.

    Args:
        process: the controller.
        cpu_s: of all measured restarts.
    """

    process: ControllerProcess
    group: PlayedGroup
    watch: StatusWatch
    cpu_s: float = 0.0
    restarts: list[MeasuredRestart] = field(default_factory=list)

    async def restart(self) -> None:
        """Restart the group by announcements alone."""
        began_cpu_s = self.process.cpu_s()
        self.restarts.append(await announce_all(self.group, self.watch, kubelets=False))
        await asyncio.sleep(TAIL_S)
        self.cpu_s += self.process.cpu_s() - began_cpu_s

    def figures(self) -> dict[str, float]:
        """Return the mean CPU time of a restart (the kernel counts in steps of 10 ms), memory, and median delays."""
        deprecate_ms = [one.deprecate_s * 1e3 for one in self.restarts]
        sync_ms = [one.sync_s * 1e3 for one in self.restarts]
        return {
            "cpu_s": round(self.cpu_s / len(self.restarts), 4),
            "rss_mb": round(self.process.rss_mb(), 1),
            "deprecate_ms": round(median(deprecate_ms), 1),
            "deprecate_ms_max": round(max(deprecate_ms), 1),
            "sync_ms": round(median(sync_ms), 1),
            "sync_ms_max": round(max(sync_ms), 1),
        }


async def compare(pods: int, rounds: int) -> dict[str, Any]:
    """Restart one group under each controller, in turn; return both sides' figures and the ratios."""
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(_side(_our_controller, pods))
        upstream = await stack.enter_async_context(_side(open_upstream_lab, pods))
        for _ in range(rounds):
            await ours.restart()
            await upstream.restart()
        return row(pods, ours.figures(), upstream.figures())


def row(pods: int, ours: Mapping[str, float], upstream: Mapping[str, float]) -> dict[str, Any]:
    """Return one size's figures of both, and ours divided by upstream's."""
    ratio = {name: round(ours[name] / upstream[name], 3) if upstream[name] else None for name in FIGURES}
    return {"pods": pods, OURS: dict(ours), UPSTREAM: dict(upstream), "ratio": ratio}


def judge(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each bound that is missed."""
    for one in rows:
        bounds = {"deprecate_ms": LATENCY_RATIO_MAX, "sync_ms": LATENCY_RATIO_MAX}
        if one["pods"] == JUDGED_PODS:
            bounds |= {"cpu_s": CPU_RATIO_MAX, "rss_mb": RSS_RATIO_MAX}
        for name, most in bounds.items():
            ratio = one["ratio"][name]
            if ratio is None or ratio > most:
                yield f"{name} at {one['pods']} pods: expected at most {most:g} of upstream's, saw {ratio}"


def table(rows: Sequence[Mapping[str, Any]], version: str) -> str:
    """Return the lines of the report."""
    lines = [f"ours beside upstream {version} (ratio); restarts by announcements alone"]
    lines.append(f"{'pods':>6}{'CPU s':>24}{'MB':>24}{'deprecate ms':>24}{'sync ms':>24}")
    for one in rows:
        cells = [f"{one[OURS][name]:g} / {one[UPSTREAM][name]:g} ({one['ratio'][name]}x)" for name in FIGURES]
        lines.append(f"{one['pods']:>6}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join((*lines, *(f"MISSED: {missed}" for missed in judge(rows))))


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
