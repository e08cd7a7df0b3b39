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
import sys

from benchmarks.cli_group import NAME, CommandRun, inplace, options_of, run_command, trained_group


async def main() -> None:
    """Run the benchmark."""
    options = options_of(__doc__, pods=8, rounds=10)
    async with trained_group(options.pods) as (cluster, _):
        kubeconfig, commands = cluster.kubeconfig("admin"), _commands()
        runs: dict[str, list[CommandRun]] = {title: [] for title in commands}
        for _ in range(options.rounds):
            for title, command in commands.items():
                runs[title].append(await asyncio.to_thread(run_command, command, kubeconfig))
    print(f"{options.pods} Pods, {options.rounds} rounds; load of the machine {os.getloadavg()[0]:.1f}")
    for title, found in runs.items():
        cpu, wall = [1000 * run.cpu_s for run in found], [1000 * run.wall_s for run in found]
        print(
            f"{title:>8}: CPU {min(cpu):4.0f} ms (median {statistics.median(cpu):.0f}), "
            f"exec to exit {min(wall):4.0f} ms (median {statistics.median(wall):.0f})"
        )


def _commands() -> dict[str, list[str]]:
    commands = {name: inplace(name, NAME) for name in ("status", "explain", "logs")}
    kubectl = shutil.which("kubectl")
    if kubectl:
        commands["kubectl"] = [kubectl, "get", "pods"]
    return commands | {"python": [sys.executable, "-c", "pass"]}


if __name__ == "__main__":
    asyncio.run(main())
