"""
Measure a group restart in supervisor mode: from one worker's SIGKILL until every worker of the group was executed anew.

    python -m benchmarks.supervisor [--json] [--pods 16] [--runs 20]

The group is the demo's: the real agents, workers and controller as processes around an embedded API server, all on this
machine, over loopback HTTP. The worker is a shell that prints one line and sleeps. It starts in a millisecond and ends
at once when told, so that the benchmark measures the restart and not a training program. The printed bound is the
promised time, without the workers' own stop time.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from benchmarks.figures import Figures, flags
from inplace.cli.demo.manifest import SUPERVISED
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods
from inplace.simulator.cluster.timeline import GroupRestart, Timeline

WORKER: Final = ["inplace-agent", "run", "--", "sh", "-c", "echo step=1; exec sleep 86400"]
BOUND_MS: Final = 300
RESTART_S_MAX: Final = 60.0  # a restart that takes longer hangs, and the benchmark says where
PAUSE_S: Final = 0.5  # between two restarts: the last one's log lines and events are written
PODS_PER_NODE: Final = 8
PHASES: Final = {
    "deprecated": "deprecated_s",
    "announced": "announced_s",
    "synced": "synced_s",
    "all_started": "stepped_s",
}


def manifests(pods: int, restarts: int, command: list[str]) -> list[KubeObject]:
    """Return examples/train-supervisor.yaml with the benchmark's worker."""
    documents = with_pods(read_manifests(SUPERVISED), pods)
    documents[-1]["metadata"]["annotations"] = {wire.FAILURES: "backoff=0", wire.RESTART: "clean-after=0"}
    spec = documents[-1]["spec"]
    spec["failurePolicy"]["maxRestarts"] = restarts
    (container,) = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    container["command"] = command
    return documents


async def measure(
    pods: int, runs: int, seed: int, command: list[str] = WORKER, pause_s: float = PAUSE_S
) -> list[GroupRestart]:
    """Kill one random worker after the other, `pause_s` seconds after the last restart; return the restarts."""
    rng, clock = Random(seed), LoopClock()
    nodes = -(-pods // PODS_PER_NODE)
    async with Cluster(nodes=nodes, pods_per_node=PODS_PER_NODE, clock=clock, controller="process") as cluster:
        timeline = Timeline(cluster.server, cluster.observers, clock=clock, jobset="train", agents=("worker",))
        await cluster.apply(manifests(pods, runs, command))
        await complete(cluster, timeline, 0)
        names = sorted(pod["metadata"]["name"] for pod in cluster.pods())
        for number in range(1, runs + 1):
            await clock.sleep(pause_s)
            cluster.kill_worker("default", rng.choice(names), supervised=True)
            await complete(cluster, timeline, number)
    return timeline.restarts[1:]


async def complete(cluster: Cluster, timeline: Timeline, number: int) -> None:
    """Wait until every worker of restart `number` was executed.

    Raises:
        SystemExit: the restart takes longer than RESTART_S_MAX; the message says how far it came.
    """
    try:
        await cluster.restarted(timeline, number, timeout_s=RESTART_S_MAX)
    except TimeoutError:
        reached = ", ".join(words for words, at_s in timeline.current.moments() if at_s is not None)
        raise SystemExit(
            f"restart {number}: not complete within {RESTART_S_MAX:g} s, came as far as: {reached}"
        ) from None


def figures_of(pods: int, restarts: list[GroupRestart]) -> Figures:
    """Return the moments of each restart in milliseconds after the kill."""
    figures = Figures(
        f"worker's death to all {pods} workers executed anew, {len(restarts)} restarts in a row; ms after the kill",
        most={("supervisor", "all_started_ms"): BOUND_MS},
    )
    for restart in restarts:
        moments = {f"{name}_ms": getattr(restart, attribute) for name, attribute in PHASES.items()}
        figures.add("supervisor", {name: (at_s - restart.began_s) * 1e3 for name, at_s in moments.items()})
    return figures


def main() -> None:
    """Measure and print."""
    options = flags(__doc__, pods=16, runs=20, seed=1).parse_args()
    figures_of(options.pods, asyncio.run(measure(options.pods, options.runs, options.seed))).show(options)


if __name__ == "__main__":
    main()
