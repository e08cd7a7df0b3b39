"""
Measure what commands cost beside the API server: their own CPU time, and wall time.

    python -m benchmarks.cli_commands start [--pods 8] [--rounds 10]        # status, explain, logs
    python -m benchmarks.cli_commands logs [--pods 1000] [--rounds 5]       # logs --first-failed
    python -m benchmarks.cli_commands stacks [--pods 1000] [--rounds 5]

A modelled group runs in real time on the simulator, whose API server answers over loopback HTTP. `start` runs its
commands in turn, beside an empty interpreter and kubectl (where there is one): the smallest of the rounds says most.
`logs` is asked AFTER one worker of many died; its first line says who failed, the second one is of that Pod's log.
`stacks` is asked of every rank, a few seconds apart.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from benchmarks.cli_group import NAME, SETTLED_S_MAX, inplace, run_command, trained_group
from benchmarks.figures import Figures, at_least_1, flags

BETWEEN_S: Final = 11.0  # a worker answers each 10 s at most
Measure = Callable[[Figures, int, int], Coroutine[Any, Any, None]]


async def start(figures: Figures, pods: int, rounds: int) -> None:
    """Measure commands of a small group, in turns."""
    commands = {name: inplace(name, NAME) for name in ("status", "explain", "logs")}
    if kubectl := shutil.which("kubectl"):
        commands["kubectl"] = [kubectl, "get", "pods"]
    commands["python"] = [sys.executable, "-c", "pass"]
    async with trained_group(pods) as (cluster, _):
        for _ in range(rounds):
            for title, command in commands.items():
                run = await asyncio.to_thread(run_command, command, cluster.kubeconfig("admin"))
                figures.add(title, run.figures())


async def logs(figures: Figures, pods: int, rounds: int) -> None:
    """Measure `inplace logs --first-failed` of a large group."""
    async with trained_group(pods) as (cluster, timeline):
        cluster.kill_worker("default", str(cluster.pods()[pods // 2]["metadata"]["name"]), supervised=True)
        await cluster.restarted(timeline, 1, timeout_s=SETTLED_S_MAX)
        for _ in range(rounds):
            command = inplace("logs", NAME, "--first-failed")
            run = await asyncio.to_thread(run_command, command, cluster.kubeconfig("admin"), 2)
            lines = run.output.splitlines()
            assert lines[1].strip(), "expected a line of the failed Pod's log, saw none"
            figures.add("logs --first-failed", run.figures() | {"lines": len(lines)})


async def stacks(figures: Figures, pods: int, rounds: int) -> None:
    """Measure `inplace stacks` of a large group, of which every rank answers."""
    async with trained_group(pods) as (cluster, _):
        for _ in range(rounds):
            await asyncio.sleep(BETWEEN_S)
            command = inplace("stacks", NAME, "--json")
            run = await asyncio.to_thread(run_command, command, cluster.kubeconfig("admin"))
            answers = json.loads(run.output)
            assert (answers["ranks"], answers["unanswered"]) == (pods, {}), answers
            figures.add("stacks", run.figures())


KINDS: Final[Mapping[str, tuple[Measure, int, int]]] = {
    "start": (start, 8, 10),
    "logs": (logs, 1_000, 5),
    "stacks": (stacks, 1_000, 5),
}
"""What measures a kind, and its Pods and rounds by default."""


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__)
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("--pods", type=at_least_1)
    parser.add_argument("--rounds", type=at_least_1)
    options = parser.parse_args()
    measure, pods, rounds = KINDS[options.kind]
    pods, rounds = options.pods or pods, options.rounds or rounds
    figures = Figures(f"{pods:,} Pods, {rounds} rounds; load of the machine {os.getloadavg()[0]:.1f}")
    asyncio.run(measure(figures, pods, rounds))
    figures.show(options)


if __name__ == "__main__":
    main()
