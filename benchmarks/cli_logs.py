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

from benchmarks.cli_group import NAME, SETTLED_S_MAX, inplace, options_of, run_command, trained_group


async def main() -> None:
    """Run the benchmark."""
    options = options_of(__doc__, pods=1_000, rounds=5)
    async with trained_group(options.pods) as (cluster, timeline):
        cluster.kill_worker("default", str(cluster.pods()[options.pods // 2]["metadata"]["name"]), supervised=True)
        await cluster.restarted(timeline, 1, timeout_s=SETTLED_S_MAX)
        command, kubeconfig = inplace("logs", NAME, "--first-failed"), cluster.kubeconfig("admin")
        # The first line says who failed, the second one is of that Pod's log.
        runs = [await asyncio.to_thread(run_command, command, kubeconfig, 2) for _ in range(options.rounds)]
    lines = runs[0].output.splitlines()
    assert lines[1].strip(), "expected a line of the failed Pod's log, saw none"
    median = statistics.median
    print(
        f"{options.pods:,} Pods, {len(runs)} rounds, medians: {median(run.lead_s for run in runs):.2f} s to the "
        f"first line (slowest {max(run.lead_s for run in runs):.2f} s), {median(run.wall_s for run in runs):.2f} "
        f"s to the end, {median(run.cpu_s for run in runs):.2f} s CPU of its own, {len(lines):,} lines"
    )


if __name__ == "__main__":
    asyncio.run(main())
