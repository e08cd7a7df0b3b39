"""
Measure `inplace logs --first-failed` of a modelled group: seconds to the first line, and to the end.

    python -m benchmarks.cli_logs [--pods 1000] [--rounds 5]

The group runs in real time on the simulator, whose API server answers over loopback HTTP: one worker is killed, and the
command is run when the group trains again. The server is Python and shares the machine with the command, so the time to
the end says more about it than about the command.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cli_group import REPOSITORY, SETTLED_S_MAX, children_cpu_s, options_of, trained_group


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command."""

    first_line_s: float
    wall_s: float
    cpu_s: float
    lines: int


async def main() -> None:
    """Run the benchmark."""
    options = options_of(__doc__, pods=1_000, rounds=5)
    async with trained_group(options.pods) as (cluster, timeline):
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
    before_s, began_s = children_cpu_s(), time.monotonic()
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()  # says who failed
        assert child.stdout.readline().strip(), "expected a line of the failed Pod's log, saw none"
        first_line_s = time.monotonic() - began_s
        lines = 2 + sum(1 for _ in child.stdout)
    cpu_s = children_cpu_s() - before_s
    assert child.returncode == 0, child.returncode
    return Run(first_line_s, time.monotonic() - began_s, cpu_s, lines)


if __name__ == "__main__":
    asyncio.run(main())
