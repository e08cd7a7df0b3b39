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

from benchmarks.cli_group import NAME, CommandRun, inplace, options_of, run_command, trained_group

BETWEEN_S = 11.0  # a worker answers each 10 s at most


async def main() -> None:
    """Run the benchmark."""
    options = options_of(__doc__, pods=1_000, rounds=5)
    async with trained_group(options.pods) as (cluster, _):
        command, kubeconfig, runs = inplace("stacks", NAME, "--json"), cluster.kubeconfig("admin"), list[CommandRun]()
        for _ in range(options.rounds):
            await asyncio.sleep(BETWEEN_S)
            runs.append(await asyncio.to_thread(run_command, command, kubeconfig))
            answers = json.loads(runs[-1].output)
            assert (answers["ranks"], answers["unanswered"]) == (options.pods, {}), answers
    median = statistics.median
    print(
        f"{options.pods:,} Pods, {len(runs)} rounds: {median(run.wall_s for run in runs):.2f} s median "
        f"(slowest {max(run.wall_s for run in runs):.2f} s), {median(run.cpu_s for run in runs):.2f} s CPU of its own"
    )


if __name__ == "__main__":
    asyncio.run(main())
