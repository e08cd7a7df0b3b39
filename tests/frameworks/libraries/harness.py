"""
Kill, lose, drain and suspend a group whose script uses a checkpoint library, and judge what each cost.

    python -m tests.frameworks.libraries.harness dcp [--kills 3]

Real agents, guards and workers run on the embedded Kubernetes. It prints a line for each event: `lost` steps are those
that all ranks had made and must make again, `s` the seconds from the event until all ranks have gone on, `exit` the
codes with which workers ended. A suspended group counts from the moment it may run again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

from benchmarks.systems import Group, in_pods, keep_in_memory
from inplace.common.kube.resources import JOBSETS, NODES
from inplace.common.kube.resources import PODS as OF_PODS
from inplace.common.wire import names as wire
from inplace.common.wire.mode import Mode
from testbed.frameworks.ranks import REPOSITORY, trainers
from testbed.frameworks.venv import environment
from tests.frameworks.libraries.words import SHARED_EVERY

PACKAGE: Final = "tests.frameworks.libraries"
SHM: Final = Path("/dev/shm")
SOCKETS: Final = Path("/tmp/ckpt_sock")  # of DLRover
PODS: Final = 2
SAVE_S: Final = 20
STEPS_BETWEEN: Final = 13  # of the slowest rank, before the next event: some follow a shared step, some do not
RUN_S_MAX: Final = 60.0
SETTLED_S: Final = 3.0  # a second restart would have begun
POLL_S: Final = 0.02
RUN: Final = f"inplace-{uuid4().hex[:12]}"
RUN_ID: Final = f"{RUN}-$(POD_NAME)"  # a real Pod has a /dev/shm of its own; these all have the machine's
OF_TORCHRUN: Final = {
    "GROUP_RANK": "$(RANK)",
    "GROUP_WORLD_SIZE": str(PODS),
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
}
IN_MEMORY: Final = 2  # steps: the last one may not be complete on all ranks, nor told yet
ON_STORAGE: Final = SHARED_EVERY + 4  # a save in the background takes some steps, and is told at the next one
_STEP: Final = re.compile(r"^step=(\d+) loss=\S+ epoch=(\d+) rank=(\d+)$")
_RESUMED: Final = re.compile(r"^rank=(\d+) world=\d+ epoch=(\d+) goes on from step (\d+)$")
_EXITED: Final = re.compile(r"worker_exited\b.*?exit_code\W+(-?\d+)")


@dataclass(frozen=True)
class Library:
    """How a library's script is run.

    Args:
        module: the script; "": the example's own.
        kill: how many steps a kill may cost.
        environment: of `testbed.frameworks.venv`.
        example: whose Pods run it.
        env: more variables.
        sidecar: a module that runs beside the worker.
        lighthouse: a module that runs once, and prints its address; each Pod then restarts alone.
    """

    module: str
    kill: int = IN_MEMORY
    environment: str = "libraries"
    example: str = "torch"
    env: Mapping[str, str] = field(default_factory=dict)
    sidecar: str = ""
    lighthouse: str = ""

    def most(self, event: str) -> int:
        """Return how many steps an event may cost."""
        return {"kill": self.kill, "repair": IN_MEMORY, "loss": ON_STORAGE, "losses": ON_STORAGE}.get(event, 0)


OF: Final = {
    "jax": Library("", environment="jax", example="jax"),
    "torch": Library("", environment="torch"),
    "dcp": Library("with_dcp"),
    "orbax": Library("with_orbax", ON_STORAGE, "jax", "jax"),
    "orbax-emergency": Library("with_orbax_emergency", IN_MEMORY, "jax", "jax"),
    "dlrover": Library(
        "with_dlrover",
        env={"ROLE_NAME": "dlrover-trainer", "NODE_RANK": "$(RANK)", "TORCHELASTIC_RUN_ID": RUN_ID, **OF_TORCHRUN},
        sidecar="dlrover_saver",
    ),
    "flashpoint": Library("with_flashpoint", env={"FLASHPOINT_BASE": f"{SHM}/{RUN_ID}", "LOCAL_RANK": "0"}),
    "nvrx": Library("with_nvrx"),
    "nvrx-inprocess": Library("with_nvrx_inprocess"),
    "torchft": Library("with_torchft", lighthouse="lighthouse"),
}
ALL_EVENTS: Final = ("kill", "kill", "kill", "loss", "drain", "suspend")
LOSSES: Final = ("loss", "losses", "suspend")  # what no memory outlives


@dataclass(frozen=True)
class Row:
    """What one event cost; `made` is the last step that all ranks had made before, `epochs` counts the restarts."""

    event: str
    made: int
    resumed: int
    seconds: float
    codes: tuple[int, ...]
    epochs: int = 0

    @property
    def lost(self) -> int:
        """Return how many steps are made again."""
        return max(0, self.made - self.resumed)

    def __str__(self) -> str:
        exits = ",".join(map(str, self.codes)) or "-"
        cost = f"{self.event:8} made {self.made:4}  lost {self.lost:3}  {self.seconds:5.1f} s"
        return f"{cost}  restarts {self.epochs}  exit {exits}"


class Lines:
    """What the workers of a folder printed, by epoch and rank."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.made: dict[int, dict[int, int]] = defaultdict(dict)
        self.resumed: dict[int, dict[int, int]] = defaultdict(dict)
        self.codes: list[int] = []
        self.mixed: list[str] = []
        self.begun = 0  # how often a rank went on

    def read(self) -> None:
        """Take the whole lines that came since the last reading."""
        for path in self._folder.glob("pods/*/logs/*/*.log"):
            try:
                with path.open("rb") as file:
                    file.seek(self._read.get(path, 0))
                    chunk = file.read()
            except FileNotFoundError:  # its Pod is gone
                continue
            whole = chunk[: chunk.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        if found := _STEP.match(line):
            step, epoch, rank = map(int, found.groups())
            self.made[epoch][rank] = step
        elif found := _RESUMED.match(line):
            rank, epoch, step = map(int, found.groups())
            self.resumed[epoch][rank] = step
            self.begun += 1
        elif found := _EXITED.search(line):
            self.codes.append(int(found[1]))
        elif line.startswith("MIXED"):
            self.mixed.append(line)

    def tails(self) -> str:
        """Return the end of each log."""
        logs = sorted(self._folder.glob("pods/*/logs/*/*.log"))
        return "\n".join(f"== {log}\n{log.read_text()[-4000:]}" for log in logs)


class Trial:
    """One group of a library, and the events that strike it."""

    def __init__(self, group: Group, folder: Path, rng: Random, library: Library) -> None:
        assert group.cluster is not None
        self._group, self._cluster, self._rng = group, group.cluster, rng
        self._module, self._jobset = _module(library), library.example
        self._lines = Lines(folder)

    async def event(self, name: str) -> Row:
        """Let the group train, strike it, and wait until it has gone on."""
        await self._until(self._has_trained, f"{STEPS_BETWEEN} steps before the {name}")
        await asyncio.sleep(self._rng.uniform(0, 0.3))
        epoch, codes = max(self._lines.resumed), len(self._lines.codes)
        began_s = time.monotonic()
        await getattr(self, f"_{name}")()
        if name == "suspend":
            began_s = time.monotonic()  # it stood for as long as somebody wanted
        await self._until(lambda: self._resumed_after(epoch) > 0, f"the group to go on after the {name}")
        seconds = time.monotonic() - began_s
        now = self._resumed_after(epoch)
        assert not self._lines.mixed, self._lines.mixed
        (resumed,) = set(self._lines.resumed[now].values())
        made = min(self._lines.made[epoch].values())
        return Row(name, made, resumed, seconds, tuple(sorted(set(self._lines.codes[codes:]))), now - epoch)

    async def repair(self) -> Row:
        """Let a rank raise an exception that its library catches; the group's epoch must stay, and all processes."""
        await self._until(self._has_trained, f"{STEPS_BETWEEN} steps before the exception")
        epoch, begun, codes = max(self._lines.resumed), self._lines.begun, len(self._lines.codes)
        made, began_s = min(self._lines.made[epoch].values()), time.monotonic()
        os.kill(self._a_rank(), signal.SIGUSR1)
        await self._until(lambda: self._lines.begun >= begun + PODS, "the ranks to begin again")
        seconds = time.monotonic() - began_s
        (resumed,) = set(self._lines.resumed[epoch].values())
        await asyncio.sleep(SETTLED_S)
        self._lines.read()
        assert max(self._lines.resumed) == epoch, "expected no restart of the group beside the repair"
        return Row("repair", made, resumed, seconds, tuple(self._lines.codes[codes:]))

    def _a_rank(self) -> int:
        return int(self._rng.choice(trainers(self._group.marker, self._module))[0])

    async def _kill(self) -> None:
        os.kill(self._a_rank(), signal.SIGKILL)

    async def _loss(self) -> None:
        """Lose a Pod at once, as with its node, which takes no other: nobody asks the worker to save."""
        client, name, old = self._cluster.client(), self._a_pod(), self._nodes()
        await client.patch(NODES, None, old[name], {"spec": {"unschedulable": True}})
        await client.delete(OF_PODS, "default", name, grace_period_s=0)
        await self._until(lambda: len(self._nodes().keys() - {name}) == PODS, "a new Pod on another node")
        await client.patch(NODES, None, old[name], {"spec": {"unschedulable": None}})

    async def _losses(self) -> None:
        """Lose all Pods at once: no peer has a state."""
        for name in self._nodes():
            await self._cluster.client().delete(OF_PODS, "default", name, grace_period_s=0)

    def _nodes(self) -> dict[str, str]:
        """Return the node of each Pod that has one, by the Pod's name."""
        pods = self._cluster.pods()
        return {pod["metadata"]["name"]: node for pod in pods if (node := pod["spec"].get("nodeName"))}

    async def _drain(self) -> None:
        await self._cluster.client().delete(OF_PODS, "default", self._a_pod())

    async def _suspend(self) -> None:
        client = self._cluster.client()
        await client.patch(JOBSETS, "default", self._jobset, {"spec": {"suspend": True}})
        await self._until(lambda: not self._cluster.pods(), "the suspended group's Pods to go")
        await client.patch(JOBSETS, "default", self._jobset, {"spec": {"suspend": False}})

    def _a_pod(self) -> str:
        return str(self._rng.choice(self._cluster.pods())["metadata"]["name"])

    def _has_trained(self) -> bool:
        epoch = max(self._lines.resumed, default=0)
        resumed, made = self._lines.resumed[epoch], self._lines.made[epoch]
        return len(made) == PODS and min(made.values()) >= min(resumed.values(), default=0) + STEPS_BETWEEN

    def _resumed_after(self, epoch: int) -> int:
        """Return the newest epoch after this one with which all ranks went on; 0 for none."""
        whole = [each for each, ranks in self._lines.resumed.items() if each > epoch and len(ranks) == PODS]
        return max(whole, default=0)

    async def _until(self, holds: Callable[[], bool], wanted: str) -> None:
        try:
            async with asyncio.timeout(RUN_S_MAX):
                self._lines.read()
                while not holds():
                    await asyncio.sleep(POLL_S)
                    self._lines.read()
        except TimeoutError:
            raise AssertionError(
                f"expected {wanted} within {RUN_S_MAX:g} s, saw\n{self._lines.tails()}"[:20000]
            ) from None


class Replicas(Trial):
    """A group whose Pods restart each alone: the others train on meanwhile."""

    _victim = 0

    async def event(self, name: str) -> Row:
        """Let all train, strike one, and wait until it has gone on; a suspend strikes all."""
        ranks = range(PODS)
        await self._until(lambda: all(self._has_trained_alone(rank) for rank in ranks), f"steps before the {name}")
        self._victim = self._rng.randrange(PODS)
        victims = ranks if name == "suspend" else [self._victim]
        epochs = {rank: self._epoch_of(rank) for rank in ranks}
        codes, began_s = len(self._lines.codes), time.monotonic()
        await getattr(self, f"_{name}")()
        if name == "suspend":
            began_s = time.monotonic()  # it stood for as long as somebody wanted
        await self._until(lambda: all(self._epoch_of(rank) > epochs[rank] for rank in victims), f"a {name}'s end")
        seconds = time.monotonic() - began_s
        assert not self._lines.mixed, self._lines.mixed
        others = [rank for rank in ranks if rank not in victims]
        assert all(self._epoch_of(rank) == epochs[rank] for rank in others), "expected the others to train on"
        made = min(self._lines.made[epochs[rank]][rank] for rank in victims)
        resumed = min(self._lines.resumed[self._epoch_of(rank)][rank] for rank in victims)
        restarts = max(self._epoch_of(rank) - epochs[rank] for rank in victims)
        return Row(name, made, resumed, seconds, tuple(sorted(set(self._lines.codes[codes:]))), restarts)

    def _a_rank(self) -> int:
        wanted = f"REPLICA={self._victim}".encode()
        ranks = [own[0] for own in trainers(self._group.marker, self._module)]
        (pid,) = [pid for pid in ranks if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
        return pid

    def _a_pod(self) -> str:
        names = [str(pod["metadata"]["name"]) for pod in self._cluster.pods()]
        return next(name for name in names if f"-workers-{self._victim}-" in name)

    def _epoch_of(self, rank: int) -> int:
        return max((epoch for epoch, ranks in self._lines.resumed.items() if rank in ranks), default=0)

    def _has_trained_alone(self, rank: int) -> bool:
        epoch = self._epoch_of(rank)
        return self._lines.made[epoch].get(rank, 0) >= self._lines.resumed[epoch].get(rank, 0) + STEPS_BETWEEN


def _apart(jobset: dict[str, Any]) -> None:
    """Make a replicatedJob of each Pod, which restarts alone."""
    (job,) = jobset["spec"]["replicatedJobs"]
    jobs = []
    for number in range(PODS):
        one = copy.deepcopy(job) | {"name": f"workers-{number}"}
        spec = one["template"]["spec"]
        spec["parallelism"] = spec["completions"] = 1
        spec["template"]["spec"]["containers"][0]["env"].append({"name": "REPLICA", "value": str(number)})
        jobs.append(one)
    jobset["spec"]["replicatedJobs"] = jobs
    jobset["spec"]["coordinator"] = {"replicatedJob": "workers-0"}
    jobset["metadata"]["annotations"][wire.RESTART_SCOPE] = "ReplicatedJob"


@contextlib.contextmanager
def _beside(library: Library) -> Iterator[str]:
    """Run the library's lighthouse; give its address, "" where it has none."""
    if not library.lighthouse:
        yield ""
        return
    python = environment(library.environment) / "bin" / "python3"
    command = [str(python), "-W", "ignore", "-m", f"{PACKAGE}.{library.lighthouse}"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _changed(pod: dict[str, Any], *, library: Library, lighthouse: str) -> None:
    """Make an example's Pods those of a library."""
    pod["terminationGracePeriodSeconds"] = 2 * SAVE_S
    (worker,) = pod["containers"]
    words = worker["command"]
    words[words.index("-m") + 1 :] = [_module(library)]
    values = {**library.env} | ({"TORCHFT_LIGHTHOUSE": lighthouse} if lighthouse else {})
    keep_in_memory(pod)
    worker["env"] = [entry for entry in worker["env"] if entry["name"] not in {*values, "POD_NAME"}]
    worker["env"].append({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    worker["env"] += [{"name": name, "value": value} for name, value in values.items()]
    if library.sidecar:
        command = ["python3", "-m", f"{PACKAGE}.{library.sidecar}"]
        beside = {name: worker[name] for name in ("image", "env", "volumeMounts")}
        saver = {"name": "saver", "restartPolicy": "Always", "command": command, **beside}
        pod.setdefault("initContainers", []).append(saver)


def _module(library: Library) -> str:
    return f"{PACKAGE}.{library.module}" if library.module else f"inplace.examples.{library.example}_train"


async def strike(
    folder: Path, name: str, events: Sequence[str], mode: Mode = Mode.SUPERVISOR, seed: int = 1
) -> list[Row]:
    """Run a library's script in a folder, with these events one after the other; return a row for each.

    Raises:
        AssertionError: the group did not go on, or an event cost more steps than it may.
    """
    library = OF[name]
    rows = []
    depth = f"depth={wire.DEPTH_CONTAINERS}," if mode == Mode.CONTAINERS else ""
    try:
        with _beside(library) as lighthouse:
            started = in_pods(
                folder,
                framework=library.environment,
                example=library.example,
                mode=mode,
                annotations={wire.RESTART: f"{depth}save-within={SAVE_S}"},
                pods=PODS,
                change=partial(_changed, library=library, lighthouse=lighthouse),
                change_jobset=_apart if lighthouse else None,
            )
            async with started as group:
                trial = (Replicas if lighthouse else Trial)(group, folder, Random(seed), library)
                for event in events:
                    row = await (trial.repair() if event == "repair" else trial.event(event))
                    print(f"{name:16} {row}", flush=True)
                    assert event != "kill" or row.epochs == 1, f"expected one restart, saw {row}"
                    assert row.lost <= library.most(event), f"expected at most {library.most(event)} steps, saw {row}"
                    rows.append(row)
    finally:
        for left in (*SHM.glob(f"{RUN}-*"), *SOCKETS.glob(f"{RUN}-*")):  # a real Pod's go with it
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    return rows


def main() -> None:
    """Strike the named libraries and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.libraries.harness")
    parser.add_argument("library", nargs="*", default=list(OF), help=f"of {', '.join(OF)}; default: all")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--events", default="loss drain suspend", help="after the kills")
    parser.add_argument("--mode", type=Mode, default=Mode.SUPERVISOR)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in options.library:
        with tempfile.TemporaryDirectory(prefix="inplace-libraries-") as folder:
            events = ["kill"] * options.kills + options.events.split()
            asyncio.run(strike(Path(folder), name, events, options.mode, options.seed))


if __name__ == "__main__":
    main()
