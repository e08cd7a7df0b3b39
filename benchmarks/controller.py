"""
Measure the controller's cost of a group restart on a real kube-apiserver: CPU, memory, delay of its two writes.

Also measured: the effect of 1,000 JobSets created at once on another group's restart, and the time until a Service
exists. The controller is a process of its own with deploy/rbac; this process plays Job controller, kubelets and agents.
All share the machine: CPU time and memory are the controller's own, latencies contain the work of all.

With `--upstream`, upstream's controller (sigs.k8s.io/jobset) restarts the same group in turn with ours, by
announcements alone, and nothing else is measured.

    python -m benchmarks.controller --upstream --json
    python -m benchmarks.controller --json
    python -m benchmarks.controller --pods 200 --rounds 1 --memory-pods 0 --skip-burst
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from statistics import median, quantiles
from typing import Any

from benchmarks import controller_upstream
from benchmarks.controller_burst import measure_burst, measure_service
from benchmarks.controller_lab import open_lab
from benchmarks.controller_pods import PlayedGroup
from benchmarks.controller_report import table
from benchmarks.controller_restart import cost_of_announcements, form, restart, watching
from benchmarks.controller_upstream import compare
from testbed.upstream.build import version

SIZES = (200, 1_000, 5_000)
ROUNDS = 3
MEMORY_PODS = 10_000
BURST_JOBSETS = 1_000
IDLE_RESTARTS = 20
SERVICE_ROUNDS = 5


async def measure_size(pods: int, rounds: int) -> dict[str, Any]:
    """Restart one group some times; medians, and the worst latencies beside them."""
    async with open_lab() as lab, lab.controller() as process:
        empty_mb = process.rss_mb()
        group = PlayedGroup(lab.client, "train")
        await group.create(pods)
        async with watching(lab.client, "train") as watch:
            await form(group, watch)
            taken = [await restart(group, watch, process) for _ in range(rounds)]
            announced_cpu_s = [await cost_of_announcements(group, watch, process) for _ in range(rounds)]
        return {
            "pods": pods,
            "cpu_s": round(median(one.cpu_s for one in taken), 2),
            "cpu_announcements_s": round(median(announced_cpu_s), 2),
            "deprecate_ms": round(median(one.deprecate_s for one in taken) * 1e3, 1),
            "deprecate_ms_max": round(max(one.deprecate_s for one in taken) * 1e3, 1),
            "sync_ms": round(median(one.sync_s for one in taken) * 1e3, 1),
            "sync_ms_max": round(max(one.sync_s for one in taken) * 1e3, 1),
            "rss_mb": round(process.rss_mb(), 1),
            "rss_peak_mb": round(process.rss_mb("VmHWM"), 1),
            "rss_empty_mb": round(empty_mb, 1),
        }


async def measure_memory(pods: int) -> dict[str, Any]:
    """Return the memory of a controller that saw so many Pods come, and of one that started when they were there."""
    async with open_lab() as lab:
        async with lab.controller() as process:
            group = PlayedGroup(lab.client, "train")
            await group.create(pods)
            async with watching(lab.client, "train") as watch:
                await form(group, watch)
            watched = {"rss_mb": round(process.rss_mb(), 1), "rss_peak_mb": round(process.rss_mb("VmHWM"), 1)}
        async with lab.controller() as process:
            listed = {"rss_listed_mb": round(process.rss_mb(), 1)}
            return {"pods": pods} | watched | listed | {"rss_listed_peak_mb": round(process.rss_mb("VmHWM"), 1)}


async def measure_many(jobsets: int) -> dict[str, Any]:
    """Measure a burst of JobSets, and Services on the quiet controller before it."""
    async with open_lab() as lab, lab.controller() as process:
        services = [await measure_service(lab.client, number) for number in range(SERVICE_ROUNDS)]
        burst = await measure_burst(lab, process, jobsets, IDLE_RESTARTS)
    created, deleted = zip(*services, strict=True)
    during_ms = [one.total_s * 1e3 for one in burst.restarts]
    return {
        "burst_jobsets": jobsets,
        "burst_seconds": round(burst.seconds, 1),
        "burst_cpu_s": round(burst.cpu_s, 1),
        "burst_restarts": len(during_ms),
        "burst_restart_p50_ms": round(median(during_ms), 1),
        "burst_restart_p99_ms": round(_p99(during_ms), 1),
        "burst_announce_p50_ms": round(median(one.announce_s for one in burst.restarts) * 1e3, 1),
        "idle_restart_p50_ms": round(median(one.total_s for one in burst.idle) * 1e3, 1),
        "service_ms": {"new": round(max(created) * 1e3, 1), "deleted": round(max(deleted) * 1e3, 1)},
    }


def _p99(samples: list[float]) -> float:
    """Return the 99th percentile; the worst, where there are too few for one."""
    return quantiles(samples, n=100, method="inclusive")[98] if len(samples) > 1 else samples[0]


async def measure_beside_upstream(options: argparse.Namespace) -> dict[str, Any]:
    """Measure our controller and upstream's in turn, for each size."""
    found: dict[str, Any] = {"upstream": version(), "rounds": options.rounds, "rows": []}
    for pods in options.pods or SIZES:
        print(f"restarting {pods} pods under each controller, {options.rounds} times", file=sys.stderr)
        found["rows"].append(await compare(pods, options.rounds))
    return found


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what the flags ask for; each part has an API server of its own."""
    found: dict[str, Any] = {"rounds": options.rounds, "rows": []}
    for pods in options.pods or SIZES:
        print(f"restarting {pods} pods, {options.rounds} times", file=sys.stderr)
        found["rows"].append(await measure_size(pods, options.rounds))
    if options.memory_pods:
        print(f"filling the caches with {options.memory_pods} pods", file=sys.stderr)
        found["memory"] = await measure_memory(options.memory_pods)
    if not options.skip_burst:
        print(f"creating {options.jobsets} jobsets at once", file=sys.stderr)
        found |= await measure_many(options.jobsets)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.controller", description=__doc__)
    parser.add_argument("--upstream", action="store_true", help="compare with upstream's controller, and nothing else")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--pods", type=int, action="append", help=f"Pods of the group, repeatable; default {SIZES}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="number of restarts of each size")
    parser.add_argument(
        "--memory-pods", type=int, default=MEMORY_PODS, help="Pods of the memory measurement; 0 leaves it out"
    )
    parser.add_argument("--jobsets", type=int, default=BURST_JOBSETS, help="JobSets of the burst")
    parser.add_argument("--skip-burst", action="store_true")
    options = parser.parse_args()
    if options.upstream:
        found = asyncio.run(measure_beside_upstream(options))
        print(json.dumps(found) if options.json else controller_upstream.table(found["rows"], found["upstream"]))
        return
    found = asyncio.run(measure(options))
    print(json.dumps(found) if options.json else table(found))


if __name__ == "__main__":
    main()
