"""
Measure `inplace stacks` of a modelled group: seconds from the request to the last answer, and requests for each Pod.

    python -m benchmarks.cli_stacks [--pods 1000] [--rounds 5]

The group runs in real time on the simulator, with real agents that see the request in their watch; its API server
answers over loopback HTTP. Server and agents are Python in one process and share the machine with the command.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cli_group import REPOSITORY, children_cpu_s, options_of, trained_group

BETWEEN_S = 11.0  # a worker answers each 10 s at most


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command."""

    wall_s: float
    cpu_s: float


async def main() -> None:
    """Run the benchmark."""
    options = options_of(__doc__, pods=1_000, rounds=5)
    async with trained_group(options.pods) as (cluster, _):
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
    before_s, began_s = children_cpu_s(), time.monotonic()
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    wall_s, cpu_s = time.monotonic() - began_s, children_cpu_s() - before_s
    data = json.loads(done.stdout)
    assert (data["ranks"], data["unanswered"]) == (pods, {}), (data["ranks"], data["unanswered"])
    return Run(wall_s, cpu_s)


if __name__ == "__main__":
    asyncio.run(main())
