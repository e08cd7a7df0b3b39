"""
Kill and stop processes of a framework's example at random moments, and judge each restart from outside.

    python -m testbed.frameworks.kills jax --kills 100 --mode supervisor
    python -m testbed.frameworks.kills torchrun      (torch: the same script without torchrun)

Real agents, guards and workers run on the embedded Kubernetes, each container a local process. A strike is SIGKILL to
a worker, to an agent or to a rank below torchrun, or SIGSTOP to a rank, which the watchdog has to find. Some strikes
hit a group that still restarts; with --standby some come right after SIGKILL or SIGSTOP to a standby. Then the workers'
own lines are judged: no line says that two epochs met, every step of every epoch has the loss that a run without
failures has at that step, and no more steps were made again than lie between two checkpoints.

Prints one JSON object; exit 0 when every strike was recovered from and nothing else was found.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import yaml

from inplace.cli.demo.manifest import DemoManifest, read_demo_manifest
from inplace.common.wire import names as wire
from inplace.common.wire.mode import Mode
from inplace.simulator.cluster import reaper
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.events import ClusterEvent, Kind
from inplace.simulator.cluster.process_runtime import ProcessRuntime
from testbed.frameworks.manifests import EXAMPLES, MODES, documents_of
from testbed.frameworks.ranks import rank_variables, trainers
from testbed.frameworks.venv import environment
from testbed.frameworks.worker_lines import Findings, WorkerLines
from testbed.ports import free_ports

STALL_AFTER_S = 4.0  # forty of the example's steps; a busy machine may delay some
TRAIN_S_MAX = 2.0  # a strike comes up to so long after the first steps
STANDBY_S_MAX = 20.0  # with standbys instead: one is ready some 10 s after a restart
RESTART_S_MAX = 3.0  # or up to so long after the strike before, while the group restarts
HIT_A_RESTART = 0.4  # the share of these
RECOVER_S_MAX = 120.0  # four processes import a framework on two cores, twice
REFERENCE_S_MAX = 600.0
# How often each comes, in tenths; a stop costs 4 s of silence. Without torchrun a worker is a rank.
STRIKES = {"worker": 3, "rank": 2, "agent": 3, "stop": 2}
RANK = re.compile(rb"(?:^|\0)LOCAL_RANK=\d")  # in the environment of a process that torchrun started
KILL_A_STANDBY = 0.3  # the share of strikes before which a standby is killed or stopped, where there is one
FRAMEWORK_OF = {"jax": "jax", "torch": "torch", "torchrun": "torch"}  # of each example
ROUNDING_OF = {"jax": 0.0, "torch": 1.5e-6}
"""How far two losses of one step may differ. JAX's are equal to the last of nine digits. PyTorch's sums have no fixed
order: the last of the six digits that its example prints may differ."""


@dataclass
class Strikes:
    """What was struck, and what came of it."""

    made: Counter[str] = field(default_factory=Counter)
    recovered: int = 0
    standbys: int = 0  # struck before one of these
    restart_s: list[float] = field(default_factory=list)


class Group:
    """The group under test: how far its Pods are, and how to strike one."""

    def __init__(self, cluster: Cluster, manifest: DemoManifest, held: str = "") -> None:
        self.cluster = cluster
        self._held = held  # the module that standbys run; "": there are none
        self.train_s_max = STANDBY_S_MAX if held else TRAIN_S_MAX
        self.manifest = manifest
        self._stepped: dict[str, int] = {}  # uid -> the epoch of its newest first step
        cluster.observers.add(self._observe)

    def _observe(self, event: ClusterEvent) -> None:
        if event.kind is Kind.FIRST_STEP:
            words = dict(word.split("=", 1) for word in event.detail.split() if "=" in word)
            self._stepped[event.uid] = int(words["epoch"])

    @property
    def epoch(self) -> int:
        """Return the epoch at which the group synced last."""
        status = self.cluster.jobset(self.manifest.name, self.manifest.namespace).get("status") or {}
        return wire.epochs_of_status(status)[0]

    def pods(self) -> list[dict[str, Any]]:
        """Return the Pods that have not ended, by name."""
        found = [pod for pod in self.cluster.pods(self.manifest.namespace) if not _has_ended(pod)]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def trains_after(self, epoch: int) -> bool:
        """Say whether every Pod has made its first step of one epoch, and that one is newer."""
        now = self.epoch
        pods = self.pods()
        steps = [self._stepped.get(pod["metadata"]["uid"]) for pod in pods]
        return now > epoch and len(pods) == self.manifest.pods and all(step == now for step in steps)

    def strike(self, what: str, rng: Random) -> bool:
        """Strike a random Pod; return whether there was something to strike."""
        number = signal.SIGSTOP if what == "stop" else signal.SIGKILL
        if what in ("rank", "stop") and (ranks := self._ranks()):  # a launcher that stops holds nobody up
            try:
                os.kill(rng.choice(ranks), number)
            except ProcessLookupError:
                return False
            return True
        pod = rng.choice([pod["metadata"]["name"] for pod in self.pods()])
        agent = what == "agent"
        try:
            self.cluster.kill_worker(
                self.manifest.namespace,
                pod,
                signal_number=number,
                container=min(self.manifest.agents) if agent else self.manifest.worker,
                supervised=not agent,
            )
        except (LookupError, ProcessLookupError):
            return False
        return True

    def strike_standby(self, rng: Random) -> bool:
        """Kill or stop a random standby, or none; it restarts nobody. Return whether one was struck."""
        held = [pid for own in trainers(self._marker, self._held) for pid in own[1:]] if self._held else []
        if not held or rng.random() >= KILL_A_STANDBY:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(held), rng.choice((signal.SIGKILL, signal.SIGSTOP)))
        return True

    def _ranks(self) -> list[int]:
        """Return the processes that torchrun started in this cluster; none without torchrun."""
        found = []
        for pid in reaper.marked(self._marker):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if RANK.search(Path(f"/proc/{pid}/environ").read_bytes()):
                    found.append(pid)
        return found

    @property
    def _marker(self) -> str:
        runtime = self.cluster._runtime
        assert isinstance(runtime, ProcessRuntime)
        ((name, value),) = runtime.marker.items()
        return f"{name}={value}"


def _has_ended(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


async def strike_all(group: Group, kills: int, rng: Random, lines: WorkerLines) -> Strikes:
    """Strike `kills` times; return what came of it. It stops at the first strike that is not recovered from."""
    done, clock = Strikes(), group.cluster.clock
    await group.cluster.until(lambda: group.trains_after(0), timeout_s=RECOVER_S_MAX)
    pending = 0  # strikes whose restart has not been awaited
    while sum(done.made.values()) < kills:
        await clock.sleep(rng.uniform(0, RESTART_S_MAX if pending else group.train_s_max))
        # A worker that is stopped while it starts is found after the limit for starts only, which is minutes.
        kinds = [kind for kind in STRIKES if not (pending and kind == "stop")]
        (what,) = rng.choices(kinds, [STRIKES[kind] for kind in kinds])
        epoch, began_s = group.epoch, time.monotonic()
        lines.read()  # BEFORE a Pod's folder goes with it
        done.standbys += group.strike_standby(rng)
        if not group.strike(what, rng):
            continue
        done.made[what] += 1
        pending += 1
        if what != "stop" and rng.random() < HIT_A_RESTART and sum(done.made.values()) < kills:
            continue
        try:
            await group.cluster.until(lambda epoch=epoch: group.trains_after(epoch), timeout_s=RECOVER_S_MAX)  # type: ignore[misc]
        except TimeoutError:
            print(f"not recovered: {what} at epoch {epoch}, now {group.epoch}\n{lines.tails()}", file=sys.stderr)
            break
        done.recovered, pending = done.recovered + pending, 0
        done.restart_s.append(time.monotonic() - began_s)
        said = f"{done.recovered} of {kills}: {what}, {done.restart_s[-1]:.1f} s, epoch {group.epoch}"
        print(said, file=sys.stderr, flush=True)
    await clock.sleep(1.0)
    lines.read()
    return done


async def train_under_kills(
    name: str, mode: Mode, kills: int, seed: int, *, standby: bool, keep: Path
) -> tuple[Strikes, WorkerLines]:
    """Run the example of a framework, strike it, and return what was seen."""
    file = keep / f"{name}-{mode}.yaml"
    documents = documents_of(EXAMPLES / f"{name}.yaml", mode, ["--standby"] if standby else [])
    documents[-1]["spec"]["failurePolicy"]["maxRestarts"] = 10 * kills
    env = documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    next(each for each in env if each["name"] == "STEPS")["value"] = "0"  # they train until the end of the run
    file.write_text(yaml.safe_dump_all(documents))
    manifest = read_demo_manifest(file, None, kills, mode, STALL_AFTER_S)
    cluster = Cluster(
        nodes=2,
        pods_per_node=manifest.pods,
        seed=seed,
        controller="process",
        programs=(environment(FRAMEWORK_OF[name]) / "bin",),
        folder=keep,
    )
    async with cluster:
        lines = WorkerLines(keep / "pods", manifest.worker, ROUNDING_OF[FRAMEWORK_OF[name]])
        group = Group(cluster, manifest, f"inplace.examples.{FRAMEWORK_OF[name]}_train" if standby else "")
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": manifest.namespace}}
        await cluster.apply([namespace, *manifest.documents])
        return await strike_all(group, kills, Random(seed), lines), lines


def reference(name: str, world: int, steps: int, folder: Path, micro_batches: int = 0) -> dict[int, str]:
    """Return each step's loss in a run without failures, of `world` processes without a cluster.

    Args:
        name: of the example.
        world: how many processes.
        steps: how many steps.
        folder: takes their output.
        micro_batches: of a step; 0 is one for each process.
    """
    (port,) = free_ports(1)
    python, outputs, processes = environment(FRAMEWORK_OF[name]) / "bin" / "python3", [], []
    for rank in range(world):
        outputs.append(folder / f"reference-{rank}.log")
        env = rank_variables(rank, world=world, port=port, checkpoints=folder / f"reference-{rank}")
        env |= {"CHECKPOINT_EVERY": str(steps), "STEPS": str(steps), "MICRO_BATCHES": str(micro_batches or world)}
        command = [str(python), "-m", f"inplace.examples.{FRAMEWORK_OF[name]}_train"]
        with outputs[-1].open("wb") as output:
            processes.append(subprocess.Popen(command, env=env, stdout=output, stderr=output))
    try:
        codes = [process.wait(REFERENCE_S_MAX) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0] * world, outputs[0].read_text()
    return WorkerLines.of_text(outputs[0].read_text()).losses


def main(arguments: Sequence[str]) -> int:
    """Kill, judge, print; return 1 when something was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m testbed.frameworks.kills", description=__doc__.splitlines()[1])
    parser.add_argument("example", choices=sorted(FRAMEWORK_OF))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--mode", type=Mode, choices=MODES, default=Mode.SUPERVISOR)
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.standby and options.mode == Mode.CONTAINERS:
        parser.error("--standby: expected --mode supervisor or process, saw containers: kubelet starts each worker")
    with tempfile.TemporaryDirectory(prefix="inplace-kills-") as scratch:
        keep = Path(scratch)
        strikes, lines = asyncio.run(
            train_under_kills(
                options.example, options.mode, options.kills, options.seed, standby=options.standby, keep=keep
            )
        )
        expected = reference(options.example, lines.world, lines.last_step, keep)
        findings = Findings.of(lines, expected)
    result = {
        "example": options.example,
        "mode": options.mode,
        "standby": options.standby,
        "seed": options.seed,
        "kills": sum(strikes.made.values()),
        "by_kind": dict(sorted(strikes.made.items())),
        "standbys_struck": strikes.standbys,
        "standbys_released": lines.released,
        "recovered": strikes.recovered,
        "restart_s_mean": round(sum(strikes.restart_s) / max(1, len(strikes.restart_s)), 2),
    } | findings.as_json()
    print(json.dumps(result), flush=True)
    had_standbys = lines.released > 0 or not options.standby
    return 0 if strikes.recovered == options.kills and findings.are_clean and had_standbys else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
