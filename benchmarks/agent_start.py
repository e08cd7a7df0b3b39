"""
From exec of an agent to its announcement visible on an API server.

Compared with: a plain kubernetes_asyncio agent written the obvious way (benchmarks/baseline_agent.py), in turns within
one run. Both are given the same kubeconfig, JobSet and Pods; the group is at epoch 1 and this Pod took part in it, so
what is timed is the hot path of a group restart.

    python -m benchmarks.agent_start --json                       # a real kube-apiserver; needs Go once
    python -m benchmarks.agent_start --json --backend simulator
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.api_backend import Backend, open_backend
from common import wire
from common.kube.clock import LoopClock
from common.kube.http import Request
from common.kube.resources import JOBSETS, PODS
from common.kube.watch import watch_lines

NAMESPACE, JOBSET = "bench", "train"
VISIBLE_S_MAX = 30.0  # an agent that needs longer is broken, not slow
SETTLE_S = 1.0  # after the announcement: lazy imports are done and memory is what a waiting agent keeps
AGENTS = {"agent": ["-m", "agent"], "baseline": ["-m", "benchmarks.baseline_agent"]}


@dataclass(slots=True)
class Samples:
    """What the runs of one kind of agent took."""

    ms: list[float] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)


def jobset(pods: int) -> dict[str, Any]:
    """Return a JobSet of `pods` slots under InPlaceRestart."""
    template = {
        "spec": {
            "completionMode": "Indexed",
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 2**31 - 1,
            "podReplacementPolicy": "Failed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [container()]}},
        }
    }
    return {
        "apiVersion": wire.API_VERSION,
        "kind": wire.KIND,
        "metadata": {"name": JOBSET},
        "spec": {
            "failurePolicy": {"maxRestarts": 1000, "restartStrategy": wire.IN_PLACE_RESTART},
            "replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}],
        },
    }


def container() -> dict[str, Any]:
    """Return a container that nobody will run: no kubelet takes part."""
    return {"name": "worker", "image": "example.invalid/worker:1"}


def pod(name: str) -> dict[str, Any]:
    """Return a Pod that announced epoch 1."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": wire.epoch_annotations(1)},
        "spec": {"restartPolicy": "Never", "containers": [container()]},
    }


async def prepare(backend: Backend, pods: list[str]) -> None:
    """Create the JobSet, synced at epoch 1, and its Pods."""
    stored = await backend.client.create(JOBSETS, NAMESPACE, jobset(len(pods)))
    stored["status"] = {"restarts": 0} | wire.status_of_epochs(1, 0)
    await backend.client.replace(JOBSETS, NAMESPACE, JOBSET, stored, subresource="status")
    for name in pods:
        await backend.client.create(PODS, NAMESPACE, pod(name))


async def measure_start(backend: Backend, kind: str, name: str, port: int, samples: Samples) -> None:
    """Start one agent for Pod `name` and wait until the watch of this process shows epoch 2 on it."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "KUBECONFIG": str(backend.agent_kubeconfig),
        "NAMESPACE": NAMESPACE,
        "POD_NAME": name,
        "JOBSET_NAME": JOBSET,
        "PREVIOUS_EPOCH": "1",
        "BARRIER_ADDRESS": "127.0.0.1",
        "BARRIER_PORT": str(port),
        "RESTART_POD_IN_PLACE_EXIT_CODE": "88",
    }
    requests_before = await backend.agent_requests()
    async with aclosing(announcements(backend, name)) as seen:
        await anext(seen)  # the watch is open BEFORE the agent starts
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable, *AGENTS[kind], env=environment, stdout=asyncio.subprocess.DEVNULL, stderr=None
        )
        try:
            async with asyncio.timeout(VISIBLE_S_MAX):
                while await anext(seen) != 2:
                    pass
            samples.ms.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(SETTLE_S)
            samples.rss_mb.append(rss_mb(process.pid))
            samples.requests.append(await backend.agent_requests() - requests_before)
        finally:
            process.kill()
            await process.wait()


async def announcements(backend: Backend, name: str) -> AsyncGenerator[int | None, None]:
    """Yield the epoch that Pod `name` shows, at first and at every change."""
    query = {"watch": "1", "fieldSelector": f"metadata.name={name}"}
    request = Request("GET", PODS.path(NAMESPACE, query=query), backend.client.headers)
    async with aclosing(watch_lines(backend.client.transport, request, clock=LoopClock())) as lines:
        async for line in lines:
            yield wire.epoch_of_pod(json.loads(line)["object"]["metadata"].get("annotations", {}))


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


async def run(backend_name: str, runs: int) -> dict[str, Any]:
    """Measure `runs` starts of each kind, in turns, after one warm-up each."""
    names = {kind: [f"{kind}-{i}" for i in range(runs + 1)] for kind in AGENTS}
    samples = {kind: Samples() for kind in AGENTS}
    async with open_backend(backend_name, NAMESPACE) as backend:
        await prepare(backend, [name for group in names.values() for name in group])
        for i in range(runs + 1):
            for kind in AGENTS:
                into = samples[kind] if i else Samples()
                await measure_start(backend, kind, names[kind][i], backend.free_port(), into)
    ours, baseline = samples["agent"], samples["baseline"]
    ratios = [a / b for a, b in zip(ours.ms, baseline.ms, strict=True)]
    return {
        "backend": backend_name,
        "runs": runs,
        "median_ms": round(statistics.median(ours.ms), 1),
        "min_ms": round(min(ours.ms), 1),
        "max_ms": round(max(ours.ms), 1),
        "baseline_median_ms": round(statistics.median(baseline.ms), 1),
        "ratio": round(statistics.median(ratios), 3),
        "rss_mb": round(statistics.median(ours.rss_mb), 1),
        "baseline_rss_mb": round(statistics.median(baseline.rss_mb), 1),
        "rss_ratio": round(statistics.median(ours.rss_mb) / statistics.median(baseline.rss_mb), 3),
        "requests": statistics.median(ours.requests),
        "baseline_requests": statistics.median(baseline.requests),
    }


def main() -> None:
    """Print the comparison, or one JSON object with --json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_start", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--backend", choices=("real", "simulator"), default="real")
    parser.add_argument("--runs", type=int, default=10, help="counted starts of each kind")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs: expected 1 or more, saw {options.runs}")
    result = asyncio.run(run(options.backend, options.runs))
    print(
        f"exec to visible annotation, {options.backend} API server, median of {options.runs}:\n"
        f"  inplace-agent             {result['median_ms']:7.1f} ms "
        f"({result['min_ms']:.0f}..{result['max_ms']:.0f})  {result['rss_mb']:5.1f} MB  {result['requests']} requests\n"
        f"  plain kubernetes_asyncio  {result['baseline_median_ms']:7.1f} ms  {result['baseline_rss_mb']:18.1f} MB  "
        f"{result['baseline_requests']} requests\n"
        f"  ratio                     {result['ratio']:7.3f} (at most 0.35)  {result['rss_ratio']:.3f} (at most 0.4)",
        file=sys.stderr,
    )
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
