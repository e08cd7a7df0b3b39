"""
Measure `inplace logs --first-failed` of a modelled group: seconds to the first line, and to the end.

    python -m benchmarks.cli_logs [--pods 1000] [--rounds 5]

The group runs in real time on the simulator, whose API server answers over loopback HTTP: one worker is killed, and the
command is run when the group trains again. The server is Python and shares the machine with the command, so the time to
the end says more about it than about the command.
"""

from __future__ import annotations

import argparse
import asyncio
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


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command."""

    first_line_s: float
    wall_s: float
    cpu_s: float
    lines: int


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
        cluster.kill_worker("default", str(cluster.pods()[options.pods // 2]["metadata"]["name"]), supervised=True)
        await cluster.until(lambda: len(timeline.restarts) == 2 and timeline.current.complete, timeout_s=SETTLED_S_MAX)
        kubeconfig = cluster.kubeconfig("admin")
        runs = [await asyncio.to_thread(_run, kubeconfig) for _ in range(options.rounds)]
    median = statistics.median
    print(
        f"{options.pods:,} Pods, {len(runs)} rounds, medians: {median(run.first_line_s for run in runs):.2f} s to the "
        f"first line (slowest {max(run.first_line_s for run in runs):.2f} s), {median(run.wall_s for run in runs):.2f} "
        f"s to the end, {median(run.cpu_s for run in runs):.2f} s CPU of its own, {runs[0].lines:,} lines"
    )


def _run(kubeconfig: Path) -> Run:
    """Run the command once, as a user does."""
    command = [sys.executable, "-m", "inplace.cli", "logs", "train", "--first-failed", "--kubeconfig", str(kubeconfig)]
    before, began_s = os.times(), time.monotonic()
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()  # says who failed
        assert child.stdout.readline().strip(), "expected a line of the failed Pod's log, saw none"
        first_line_s = time.monotonic() - began_s
        lines = 2 + sum(1 for _ in child.stdout)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert child.returncode == 0, child.returncode
    return Run(first_line_s, time.monotonic() - began_s, cpu_s, lines)


if __name__ == "__main__":
    asyncio.run(main())
