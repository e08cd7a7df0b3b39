"""
Measure `inplace stacks` of a modelled group: seconds from the request to the last answer, and requests for each Pod.

    python -m benchmarks.cli_stacks [--pods 1000] [--rounds 5]

The group runs in real time on the simulator, with real agents that see the request in their watch; its API server
answers over loopback HTTP. Server and agents are Python in one process and share the machine with the command.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods

REPOSITORY = Path(__file__).parents[1]
EXAMPLE = REPOSITORY / "examples" / "train.yaml"
SETTLED_S_MAX = 600.0
PODS_PER_NODE = 100
BETWEEN_S = 11.0  # a worker answers each 10 s at most


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command."""

    wall_s: float
    cpu_s: float


async def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    nodes = -(-options.pods // PODS_PER_NODE)
    async with Cluster(runtime="model", nodes=nodes, pods_per_node=PODS_PER_NODE, serve_http=True) as cluster:
        timeline = cluster.timeline("train")
        await cluster.apply(with_pods(read_manifests(EXAMPLE), options.pods))
        await cluster.until(lambda: timeline.current.complete, timeout_s=SETTLED_S_MAX)
        kubeconfig, runs = cluster.kubeconfig("admin"), list[Run]()
        for _ in range(options.rounds):
            await asyncio.sleep(BETWEEN_S)
            runs.append(await asyncio.to_thread(_run, kubeconfig, options.pods))
    median = statistics.median
    print(
        f"{options.pods:,} Pods, {len(runs)} rounds: {median(run.wall_s for run in runs):.2f} s median "
        f"(slowest {max(run.wall_s for run in runs):.2f} s), {median(run.cpu_s for run in runs):.2f} s CPU of its own"
    )


def _run(kubeconfig: Path, pods: int) -> Run:
    """Run the command once, as a user does; every rank must have answered."""
    command = [sys.executable, "-m", "inplace.cli", "stacks", "train", "--json", "--kubeconfig", str(kubeconfig)]
    before, began_s = os.times(), time.monotonic()
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    wall_s, after = time.monotonic() - began_s, os.times()
    data = json.loads(done.stdout)
    assert (data["ranks"], data["unanswered"]) == (pods, {}), (data["ranks"], data["unanswered"])
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Run(wall_s, cpu_s)


if __name__ == "__main__":
    asyncio.run(main())
