"""
Measure a group restart on a real node: from one worker's SIGKILL until every worker of the group is a new process.

    python -m benchmarks.node [--json] [--pods 16] [--rounds 10] [--mode containers --mode supervisor] [--restricted]
    python -m benchmarks.node [--json] [--pods 2] [--rounds 20] --upstream
    python -m benchmarks.node [--json] [--pods 16] [--rounds 20] --stall 10

Real kube-apiserver, controller-manager, scheduler, kubelet, containerd, runc, our controller and our images, all on
this machine, inside a capsule that leaves nothing behind (tests/cluster/node). Each worker records its start on the
machine's monotonic clock, so no polling is in the figure. `cpu_*` is the CPU time of the node's parts from the SIGKILL
to the last worker. Pods are those of examples/. With `--restricted` they comply with Pod Security `restricted`, whose
seccomp profile runc compiles anew for each container. kubelet and containerd are tuned as a node's owner could do
(`tuned`).

With `--upstream`, upstream's agent restarts a group under upstream's controller, in turn with our modes in one run:
clusters of ours and of upstream's take turns on the same machine (benchmarks/node_upstream.py).

With `--stall S` the worker is stopped (SIGSTOP) instead, while all workers step once a second and the watchdog's limit
is S seconds; times count from the SIGSTOP.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

from benchmarks.figures import Figures, flags
from benchmarks.node_upstream import compare, prepare_upstream
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.rank import FIRST_STEPS
from inplace.common.wire import names as wire
from inplace.common.wire.mode import GUARDED, Mode
from inplace.common.wire.phases import parse_phases
from inplace.common.wire.worker_failure import parse_failure
from inplace.simulator.cluster.manifests import held_by_probe, probed_as_upstreams
from testbed.binaries import find_binaries
from testbed.go_programs import RUNTIME, upstream_version
from testbed.node import archives, capsule, cgroups, prepare, settings
from testbed.node.cluster import Cluster, running_cluster
from testbed.node.evidence import lives
from testbed.node.group import SETTLED_S_MAX, Change, Group, running_group
from testbed.node.history import Version
from testbed.node.manifests import watch_over, with_upstreams_agent
from testbed.waiting import until

UPSTREAM: Final = "upstream"
"""Upstream's agent in its own manifest, under its own controller, which has a cluster of its own."""

MODES: Final = ("upstream_shape", *Mode)
"""upstream_shape is our agent in the manifest of upstream's: a startup probe each second, and nothing in the worker.
probe is `inplace inject --barrier probe`, where the agent answers the startup probe at the lift. No Pod gets clean
containers here (docs/adr/0064)."""

PAUSE_S: Final = 3.0
"""Between restarts: kubelet removes the dead containers, and the next restart should not pay for that."""

FIRST_STEPS_S: Final = FIRST_STEPS + 2.0
"""Before a worker is stopped, at one step a second: its first steps have a limit that is five times as long."""

RESTARTS_MAX: Final = 1_000_000


def _as_shipped(jobset: KubeObject) -> None:
    """Remove the fields that the tests add to examples/ for Pod Security `restricted`."""
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        del container["securityContext"]


def _held_by_probe(jobset: KubeObject) -> None:
    """Let the agent's startup probe hold the workers back."""
    jobset["spec"] = held_by_probe(jobset)["spec"]


def _as_upstreams(jobset: KubeObject) -> None:
    """Take away what upstream's manifest lacks: guards, and a held answer to the probe."""
    jobset["spec"] = probed_as_upstreams(held_by_probe(jobset))["spec"]


def _as_tested(jobset: KubeObject) -> None:
    """Change nothing."""


SHAPES: Final = {"upstream_shape": _as_upstreams, Mode.PROBE: _held_by_probe, UPSTREAM: with_upstreams_agent}
"""Modes that are the guarded manifest with changes."""


async def measure(
    pods: int,
    rounds: int,
    modes: Sequence[str],
    change: Change,
    seed: int,
    number: signal.Signals = signal.SIGKILL,
    *,
    upstream: bool = False,
) -> dict[str, list[dict[str, float]]]:
    """Return, for each mode, the moments of each restart in seconds after the signal.

    With `upstream` the cluster has upstream's controller instead of ours.
    """
    rng = Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    images = [*archives.build(), *([archives.build_upstream_agent()] if upstream else [])]
    programs = RUNTIME.build()
    async with running_cluster(
        find_binaries(), programs=programs, images=images, folder=folder, installed="upstream" if upstream else "ours"
    ) as cluster:
        return {mode: await _measure_mode(cluster, mode, pods, rounds, change, rng, number) for mode in modes}


async def _measure_mode(
    cluster: Cluster, mode: str, pods: int, rounds: int, change: Change, rng: Random, number: signal.Signals
) -> list[dict[str, float]]:
    manifest, also = (Mode.CONTAINERS, SHAPES[mode]) if mode in SHAPES else (mode, _as_tested)

    def change_both(jobset: KubeObject) -> None:
        change(jobset)
        also(jobset)

    async with running_group(cluster, manifest, pods=pods, restarts_max=RESTARTS_MAX, change=change_both) as group:
        await (_until_new(group, 0.0) if mode == UPSTREAM else group.until_runs(1))
        measured = []
        for epoch in range(2, rounds + 2):
            pause_s = FIRST_STEPS_S if number == signal.SIGSTOP else PAUSE_S
            await asyncio.sleep(pause_s + rng.random())  # at a random moment of kubelet's second
            node = cluster.nodes[0].cgroup
            before = cgroups.cpu_s_by_part(node)
            killed_s = await group.kill(rng.randrange(pods), "worker", number=number)
            await _until_new(group, killed_s)
            after = cgroups.cpu_s_by_part(node)
            spent = {f"cpu_{part}": cpu_s - before[part] for part, cpu_s in after.items()}
            measured.append(moments(group, epoch, killed_s) | spent)
        if mode in SHAPES:
            return measured  # a worker is told its epoch by kubelet there, which may lag behind, or not at all
        await group.until_runs(rounds + 1)  # the watches may lag behind the workers' own records
        if broken := group.broken():
            raise SystemExit("expected restarts that break no rule, saw:\n" + "\n".join(broken))
        return measured


async def _until_new(group: Group, killed_s: float) -> None:
    """Return when every slot has a worker that was born after the SIGKILL."""

    def holds() -> bool:
        return len({life.slot for life in lives(group.evidence) if life.born_s > killed_s}) == group.slots

    await until(holds, f"{group.slots} new workers", timeout_s=SETTLED_S_MAX, also=group.state)


def moments(group: Group, epoch: int, killed_s: float) -> dict[str, float]:
    """Return when what happened, in seconds after the SIGKILL, and the durations that the Pods announced (medians)."""
    seen = lives(group.evidence)
    old = [life.alive_s for life in seen if killed_s - PAUSE_S < life.alive_s and life.born_s < killed_s]
    new = [life.born_s for life in seen if life.born_s > killed_s]
    versions = group.history.versions
    announced = [
        version.seen_s
        for version in versions
        if version.kind == "Pod" and _epoch(version.stored) == epoch and version.event == "MODIFIED"
    ]
    first: dict[str, float] = {}
    for version in versions:
        if version.kind == "JobSet":
            synced, deprecated = wire.epochs_of_status(version.stored.get("status") or {})
            if deprecated >= epoch - 1:
                first.setdefault("deprecated", version.seen_s)
            if synced >= epoch:
                first.setdefault("synced", version.seen_s)
    at_s = (
        first
        | _told(versions, epoch - 1)
        | {
            "old_workers_gone": max(old),
            "first_announced": min(announced),
            "first_worker": min(new),
            "last_worker": max(new),
        }
    )
    return {name: moment_s - killed_s for name, moment_s in at_s.items()} | _announced_phases(group)


def _told(versions: Sequence[Version], epoch: int) -> dict[str, float]:
    """Return when the first Pod told of its worker's failure, by its own clock, and when that was seen."""
    for version in versions:
        text = (version.stored["metadata"].get("annotations") or {}).get(wire.WORKER_FAILED, "")
        if version.kind == "Pod" and text and (failure := parse_failure(text)).epoch == epoch:
            return {"tells": failure.at_s - time.time() + time.monotonic(), "told": version.seen_s}
    return {}


def _announced_phases(group: Group) -> dict[str, float]:
    """Return the median over all Pods of each phase that they announced last, as `pod_PHASE`."""
    durations: dict[str, list[float]] = {}
    for pod in group.pods():
        text = pod["metadata"]["annotations"].get(wire.PHASES)  # upstream's agent tells of none
        for phase, duration_s in parse_phases(text).items() if text else ():
            durations.setdefault(f"pod_{phase.value}", []).append(duration_s)
    return {name: median(values) for name, values in durations.items()}


def _epoch(pod: dict[str, Any]) -> int | None:
    return wire.epoch_of_pod(pod["metadata"].get("annotations") or {})


def figures_of(measured: Mapping[str, Sequence[Mapping[str, float]]], about: str) -> Figures:
    """Return the moments of each mode's restarts in the order of time, then what Pods announced and the CPU times."""
    reference = next((mode for mode in (UPSTREAM, "upstream_shape") if mode in measured), "")
    figures = Figures(about, compared=[(mode, reference) for mode in measured if mode != reference])
    for mode, rounds in measured.items():
        samples = {name: [each[name] for each in rounds if name in each] for name in set().union(*rounds)}
        order = sorted(samples, key=lambda name: (name.startswith(("pod_", "cpu_")), median(samples[name])))
        figures.rows[mode] = {f"{name}_s": samples[name] for name in order}
    return figures


def main() -> int:
    """Measure and print; outside a capsule, prepare everything and begin again inside one."""
    parser = flags(__doc__, pods=16, rounds=10, seed=1)
    parser.add_argument("--mode", action="append", choices=(*MODES, UPSTREAM), help="default: all but upstream")
    parser.add_argument("--upstream", action="store_true", help="compare with upstream's own agent and controller")
    parser.add_argument("--restricted", action="store_true", help="Pods comply with Pod Security `restricted`")
    parser.add_argument("--raw", type=Path, metavar="FILE", help="write every moment of every restart there")
    parser.add_argument("--stall", type=float, metavar="S", help="stop a worker; the watchdog finds it after S seconds")
    options = parser.parse_args()
    number, modes = (signal.SIGKILL, MODES) if options.stall is None else (signal.SIGSTOP, GUARDED)
    chosen = options.mode or modes
    if options.stall is not None and not set(chosen) <= set(modes):
        parser.error(f"--stall: expected modes of {', '.join(GUARDED)}, saw others")
    if UPSTREAM in chosen and set(chosen) != {UPSTREAM}:
        parser.error("--mode upstream: expected no other mode, for which the cluster has another controller")
    if options.upstream and (options.mode or options.stall is not None):
        parser.error("--upstream: expected no --mode or --stall")
    about = (
        f"{options.pods} Pods on one node, {os.cpu_count()} cores, {options.rounds} restarts: seconds after the signal"
    )
    about += f"; tuned: {', '.join(settings.TUNED)}"
    if options.upstream:
        measured = compare(options.pods, options.rounds, options.seed, GUARDED, restricted=options.restricted)
        figures_of(measured, f"{about}; upstream {upstream_version()}").show(options)
        return 0
    if not capsule.inside():
        if UPSTREAM in chosen:
            prepare_upstream()
        return prepare.main() or capsule.run((sys.executable, "-m", __spec__.name, *sys.argv[1:]))

    def change(jobset: KubeObject) -> None:
        if not options.restricted:
            _as_shipped(jobset)
        if options.stall is not None:
            watch_over(jobset, options.stall)

    measured = asyncio.run(
        measure(options.pods, options.rounds, chosen, change, options.seed, number, upstream=UPSTREAM in chosen)
    )
    if options.raw:
        options.raw.write_text(json.dumps(measured))
        return 0
    figures_of(measured, about).show(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
