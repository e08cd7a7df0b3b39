"""
Measure what `inplace status`, `explain` and `logs` cost beside the API server: their own CPU time, and wall time.

    python -m benchmarks.cli_start [--pods 8] [--rounds 10]

A modelled group runs in real time on the simulator, whose API server answers over loopback HTTP. The commands run in
turn, round by round, beside an empty interpreter and kubectl (where there is one). A machine that does other work
makes all of them slower: the load is printed, and the smallest of the rounds says most.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from benchmarks.cli_group import NAME, REPOSITORY, children_cpu_s, options_of, trained_group


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command."""

    cpu_s: float
    wall_s: float


async def main() -> None:
    """Run the benchmark."""
    options = options_of(__doc__, pods=8, rounds=10)
    async with trained_group(options.pods) as (cluster, _):
        kubeconfig = str(cluster.kubeconfig("admin"))
        commands = _commands()
        runs: dict[str, list[Run]] = {title: [] for title in commands}
        for _ in range(options.rounds):
            for title, command in commands.items():
                runs[title].append(await asyncio.to_thread(_run, command, kubeconfig))
    print(f"{options.pods} Pods, {options.rounds} rounds; load of the machine {os.getloadavg()[0]:.1f}")
    for title, found in runs.items():
        cpu, wall = [1000 * run.cpu_s for run in found], [1000 * run.wall_s for run in found]
        print(
            f"{title:>8}: CPU {min(cpu):4.0f} ms (median {statistics.median(cpu):.0f}), "
            f"exec to exit {min(wall):4.0f} ms (median {statistics.median(wall):.0f})"
        )


def _commands() -> dict[str, list[str]]:
    inplace = [sys.executable, "-m", "inplace.cli"]
    commands = {name: [*inplace, name, NAME] for name in ("status", "explain", "logs")}
    kubectl = shutil.which("kubectl")
    if kubectl:
        commands["kubectl"] = [kubectl, "get", "pods"]
    return commands | {"python": [sys.executable, "-c", "pass"]}


def _run(command: list[str], kubeconfig: str) -> Run:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["KUBECONFIG"] = kubeconfig
    before_s, began_s = children_cpu_s(), time.monotonic()
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    wall_s, cpu_s = time.monotonic() - began_s, children_cpu_s() - before_s
    assert done.returncode == 0, done.stderr
    return Run(cpu_s, wall_s)


if __name__ == "__main__":
    asyncio.run(main())
