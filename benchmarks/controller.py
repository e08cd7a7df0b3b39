"""
Measure the controller's cost of a group restart on a real kube-apiserver: CPU, memory, delay of its two writes.

Also measured: the effect of 1,000 JobSets created at once on another group's restart, and the time until a Service
exists. The controller is a process of its own with deploy/rbac; this process plays Job controller, kubelets and agents.
All share the machine: CPU time and memory are the controller's own, latencies contain the work of all.

With `--upstream`, upstream's controller (sigs.k8s.io/jobset) restarts the same group in turn with ours, by
announcements alone, and nothing else is measured. With `--spares`, two groups of one Job take turns under one
controller in the same way: one has spares, one in a hundred Pods. The bytes are those of the controller's connections.

    python -m benchmarks.controller --upstream --json
    python -m benchmarks.controller --spares --rounds 10
    python -m benchmarks.controller --json
    python -m benchmarks.controller --pods 200 --rounds 1 --memory-pods 0 --skip-burst
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from benchmarks.controller_burst import measure_burst, measure_service
from benchmarks.controller_lab import ControllerProcess, open_lab
from benchmarks.controller_pods import PlayedGroup
from benchmarks.controller_restart import TAIL_S, StatusWatch, cost_of_announcements, form, restart, watching
from benchmarks.controller_upstream import compare, report_of
from benchmarks.figures import Figures, flags
from benchmarks.newcomers import percentile
from testbed.go_programs import upstream_version

SIZES = (200, 1_000, 5_000)
ROUNDS = 3
MEMORY_PODS = 10_000
BURST_JOBSETS = 1_000
IDLE_RESTARTS = 20
SERVICE_ROUNDS = 5
SPARED_PODS = 1_000
PODS_PER_SPARE = 100
SPARED: Final = ("with spares", "without")
SPARED_RATIO_MAX: Final = 1.05
IDLE: Final = "no burst"
MOST: Final = {
    ("5,000 Pods", "cpu_s"): 3.0,
    ("5,000 Pods", "rss_mb"): 120.0,
    ("5,000 Pods / 1,000 Pods", "cpu_s"): 5.5,
    ("10,000 Pods, memory", "rss_mb"): 180.0,
    ("1,000 JobSets at once", "all_jobs_s"): 60.0,
    ("1,000 JobSets at once", "restart_p99_ms"): 500.0,
    ("headless Service", "new_ms"): 1_000.0,
    ("headless Service", "deleted_ms"): 1_000.0,
} | {(f"{pods:,} Pods", name): most for pods in SIZES for name, most in (("deprecate_ms", 50.0), ("sync_ms", 100.0))}
"""What docs promise of the medians."""


async def measure_size(pods: int, rounds: int, figures: Figures) -> None:
    """Restart one group some times."""
    row = f"{pods:,} Pods"
    async with open_lab() as lab, lab.controller() as process:
        figures.add(row, {"empty_mb": process.rss_mb()})
        group = PlayedGroup(lab.client, "train")
        await group.create(pods)
        async with watching(lab.client, "train") as watch:
            await form(group, watch)
            for _ in range(rounds):
                one = await restart(group, watch, process)
                delays = {"deprecate_ms": one.deprecate_s * 1e3, "sync_ms": one.sync_s * 1e3}
                figures.add(row, {"cpu_s": one.cpu_s} | delays)
            for _ in range(rounds):
                figures.add(row, {"announced_cpu_s": await cost_of_announcements(group, watch, process)})
        figures.add(row, {"rss_mb": process.rss_mb(), "rss_peak_mb": process.rss_mb("VmHWM")})


async def measure_memory(pods: int, figures: Figures) -> None:
    """Measure the memory of a controller that saw so many Pods come, and of one that started when they were there."""
    row = f"{pods:,} Pods, memory"
    async with open_lab() as lab:
        async with lab.controller() as process:
            group = PlayedGroup(lab.client, "train")
            await group.create(pods)
            async with watching(lab.client, "train") as watch:
                await form(group, watch)
            figures.add(row, {"rss_mb": process.rss_mb(), "rss_peak_mb": process.rss_mb("VmHWM")})
        async with lab.controller() as process:
            figures.add(row, {"rss_listed_mb": process.rss_mb(), "rss_listed_peak_mb": process.rss_mb("VmHWM")})


async def measure_many(jobsets: int, figures: Figures) -> None:
    """Measure a burst of JobSets, and Services on the quiet controller before it."""
    async with open_lab() as lab, lab.controller() as process:
        for number in range(SERVICE_ROUNDS):
            created_s, deleted_s = await measure_service(lab.client, number)
            figures.add("headless Service", {"new_ms": created_s * 1e3, "deleted_ms": deleted_s * 1e3})
        burst = await measure_burst(lab, process, jobsets, IDLE_RESTARTS)
    row = f"{jobsets:,} JobSets at once"
    figures.add(row, {"all_jobs_s": burst.seconds, "cpu_s": burst.cpu_s})
    for one in burst.restarts:
        figures.add(row, {"restart_ms": one.total_s * 1e3, "of_it_announcing_ms": one.announce_s * 1e3})
    figures.add(row, {"restart_p99_ms": percentile(figures.rows[row]["restart_ms"], 99)})
    for one in burst.idle:
        figures.add(IDLE, {"restart_ms": one.total_s * 1e3})


async def measure_beside_upstream(sizes: Sequence[int], rounds: int) -> Figures:
    """Measure our controller and upstream's in turn, for each size."""
    figures = report_of(sizes, f"restarts by announcements alone, {rounds} rounds; upstream {upstream_version()}")
    for pods in sizes:
        print(f"restarting {pods} pods under each controller, {rounds} times", file=sys.stderr)
        await compare(pods, rounds, figures)
    return figures


async def measure_spares(pods: int, rounds: int) -> Figures:
    """Restart a group with spares and one without in turn, under one controller."""
    row = dict(zip(SPARED, (pods // PODS_PER_SPARE, 0), strict=True))
    most = {(" / ".join(SPARED), name): SPARED_RATIO_MAX for name in ("cpu_s", "mb")}
    about = f"restarts of {pods:,} Pods of one Job by announcements alone, {rounds} rounds"
    figures = Figures(about, compared=[SPARED], most=most, means=("cpu_s",))
    async with open_lab() as lab, lab.controller() as process, AsyncExitStack() as stack:
        sides: dict[str, tuple[PlayedGroup, StatusWatch]] = {}
        for name, spares in row.items():
            group = PlayedGroup(lab.client, f"group-{len(sides)}", spares)
            await group.create(pods)
            watch = await stack.enter_async_context(watching(lab.client, group.name))
            await form(group, watch)
            sides[name] = group, watch
        await asyncio.sleep(TAIL_S)
        for number in range(rounds):
            for name, side in list(sides.items())[:: (-1) ** number]:  # nobody is always the first
                before = connection_bytes(process)
                cpu_s = await cost_of_announcements(*side, process)
                figures.add(name, {"cpu_s": cpu_s, "mb": (connection_bytes(process) - before) / 1e6})
    return figures


def connection_bytes(process: ControllerProcess) -> int:
    """Return what a process has received and sent over the TCP connections that it has now; needs iproute2's ss."""
    lines = subprocess.run(["ss", "-tinpOH"], capture_output=True, text=True, check=True).stdout.splitlines()
    own = "".join(line for line in lines if f"pid={process.pid}," in line)
    return sum(int(number) for number in re.findall(r"\bbytes_(?:received|acked):(\d+)", own))


async def measure(options: argparse.Namespace) -> Figures:
    """Measure what the flags ask for; each part has an API server of its own."""
    figures = Figures(
        f"the controller's part of a restart, {options.rounds} rounds",
        compared=[("5,000 Pods", "1,000 Pods"), (f"{options.jobsets:,} JobSets at once", IDLE)],
        most=MOST,
    )
    for pods in options.pods or SIZES:
        print(f"restarting {pods} pods, {options.rounds} times", file=sys.stderr)
        await measure_size(pods, options.rounds, figures)
    if options.memory_pods:
        print(f"filling the caches with {options.memory_pods} pods", file=sys.stderr)
        await measure_memory(options.memory_pods, figures)
    if not options.skip_burst:
        print(f"creating {options.jobsets} jobsets at once", file=sys.stderr)
        await measure_many(options.jobsets, figures)
    return figures


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, rounds=ROUNDS, jobsets=BURST_JOBSETS)
    parser.add_argument("--upstream", action="store_true", help="compare with upstream's controller, and nothing else")
    parser.add_argument("--spares", action="store_true", help="compare with a group with spares, and nothing else")
    parser.add_argument("--pods", type=int, action="append", help=f"Pods of the group, repeatable; default {SIZES}")
    parser.add_argument(
        "--memory-pods", type=int, default=MEMORY_PODS, help="Pods of the memory measurement; 0 leaves it out"
    )
    parser.add_argument("--skip-burst", action="store_true")
    options = parser.parse_args()
    if options.upstream:
        figures = asyncio.run(measure_beside_upstream(options.pods or SIZES, options.rounds))
    elif options.spares:
        figures = asyncio.run(measure_spares((options.pods or [SPARED_PODS])[0], options.rounds))
    else:
        figures = asyncio.run(measure(options))
    figures.show(options)


if __name__ == "__main__":
    main()
