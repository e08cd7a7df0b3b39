"""
Measure a restart of a user's framework: SIGKILL of a rank to the first finished collective of the next run.

    python -m benchmarks.frameworks [jax] [torch] [--rounds N] [--json]

Four Pods, one rank in each, on the loopback of one machine. ROWS has what is compared; all rows run one after the
other in each round, so that each meets the same machine. A rank says `goes on from step` after the first collective
of its run, which ends only when all four took part; the first such line counts. It prints the median of each row, in
seconds, and the ratio to the baseline: torchrun's own elastic restart, or, for JAX, which has none, all processes
killed and started again as soon as one is gone. In the row of the standby a rank is killed once all standbys are
ready; `standby_rss_mb` is the median of what one holds, in MB of 10^6 bytes. In the row of the spare a
rank's Pod is deleted, once in each round, when the spare's standby waits (the example has `--standby=always`): its time
counts from the deletion.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import yaml

from benchmarks.figures import Figures, flags
from inplace.cli.demo.manifest import read_demo_manifest
from inplace.common.kube.resources import PODS as OF_PODS
from inplace.common.wire import names as wire
from inplace.common.wire.mode import Mode
from inplace.simulator.cluster import reaper
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.process_runtime import CLUSTER_MARKER, ProcessRuntime
from testbed.frameworks.manifests import EXAMPLES, documents_of
from testbed.frameworks.ranks import REPOSITORY, rank_variables, trainers
from testbed.frameworks.venv import environment
from testbed.ports import free_ports

PODS = 4
KILLS = 3  # of one group, one after the other
STEPS = 3000  # as the examples have it
STEPS_BETWEEN = 10  # of each rank, after a restart and before the next kill
POLL_S = 0.005
RESTARTS_MAX = 1000
NOTHING: Mapping[str, str] = MappingProxyType({})
RUN_S_MAX = 120.0  # a start or a restart that takes longer failed
RESUMED = re.compile(rb"^rank=\d+ .*goes on from step (\d+)$", re.MULTILINE)
STEP = re.compile(rb"^step=(\d+) ", re.MULTILINE)
_STANDBY = re.compile(rb"^.*standby_ready.*rss_mb\W+([0-9.]+)", re.MULTILINE)  # an agent's line, or a guard's


@dataclass
class Group:
    """A group that trains.

    Args:
        module: the training script.
        marker: NAME=value that stands in the environment of all its processes.
        logs: returns for each rank the files that have its output, the oldest first.
        cluster: that runs it; None without Kubernetes.
        poll_s: between two looks at all logs, which take CPU time from the ranks as they grow.
    """

    module: str
    marker: str
    logs: Callable[[], list[list[Path]]]
    cluster: Cluster | None = None
    poll_s: float = POLL_S
    resumed: int = 0  # ranks that ended their first collective, over all runs
    steps: int = 0  # of all ranks, since the last of these
    standbys_mb: list[float] = field(default_factory=list)  # resident memory of each that got ready, over all runs
    held: int = 0  # Pods with a standby that got ready since their rank's last resume
    deleted: list[Path] = field(default_factory=list)  # logs of Pods that do not count any more

    def ranks(self) -> list[int]:
        """Return the ranks' processes, without launchers, agents and standbys."""
        return [own[0] for own in trainers(self.marker, self.module)]

    async def await_spare(self) -> Path:
        """Wait until a Pod that never had a rank holds a process; return its log."""
        async with asyncio.timeout(RUN_S_MAX):
            while True:
                for own in self.logs():
                    text = own[-1].read_bytes() if own else b""
                    if _STANDBY.search(text) and not RESUMED.search(text):
                        return own[-1]
                await asyncio.sleep(POLL_S)

    async def delete_pod(self, rng: Random) -> None:
        """Delete the Pod of a random rank; what it printed does not count any more."""
        assert self.cluster is not None, "expected Pods"
        own = rng.choice([own for own in self.logs() if own and RESUMED.search(own[-1].read_bytes())])
        self.deleted += own
        self._read()
        pod = own[0].parents[2].name.rpartition("_")[0]
        await self.cluster.client().delete(OF_PODS, "default", pod)

    async def reach(self, resumed: int, steps: int, standbys: int = 0) -> None:
        """Wait until so many ranks have resumed over all runs, and have made so many steps together since then.

        Args:
            resumed: ranks that ended the first collective of a run.
            steps: of all ranks.
            standbys: so many Pods hold one.
        """
        async with asyncio.timeout(RUN_S_MAX):
            while self.resumed < resumed or self.steps < steps or self.held < standbys:
                await asyncio.sleep(self.poll_s)
                self._read()

    def texts(self) -> list[bytes]:
        """Return what each rank printed over all runs, without those of deleted Pods."""
        counted = [own for own in self.logs() if not {*own} & {*self.deleted}]
        return [b"".join(path.read_bytes() for path in own if path.exists()) for own in counted]

    def _read(self) -> None:
        texts = self.texts()
        self.resumed = sum(len(RESUMED.findall(text)) for text in texts)
        self.steps = sum(len(STEP.findall(text[_end_of_last(text) :])) for text in texts)
        self.held = sum(bool(_STANDBY.search(text, _end_of_last(text, 0))) for text in texts)
        self.standbys_mb = [float(found) for text in texts for found in _STANDBY.findall(text)]


def _end_of_last(text: bytes, without: int | None = None) -> int:
    """Return where the last line of a resume ends, the text's end or `without` where there is none."""
    default = len(text) if without is None else without
    return max((match.end() for match in RESUMED.finditer(text)), default=default)


@dataclass(frozen=True)
class Row:
    """One way to restart.

    Args:
        key: its name in the report.
        start: starts a group in a folder.
        standbys: how many Pods hold one; a kill waits for them.
        loses_pod: a Pod is deleted instead of the kills.
    """

    key: str
    start: Callable[[Path], AbstractAsyncContextManager[Group]]
    standbys: int = 0
    loses_pod: bool = False


@asynccontextmanager
async def torchrun_alone(folder: Path) -> AsyncIterator[Group]:
    """Start four torchruns that restart their ranks themselves: elastic, with c10d's rendezvous."""
    (port,), marker = free_ports(1), uuid4().hex
    module, programs = "inplace.examples.torch_train", environment("torch") / "bin"
    command = ["torchrun", f"--nnodes={PODS}", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=benchmark"]
    command += [f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1", "--max-restarts=1000", "-m", module]
    logs = [folder / f"{number}.log" for number in range(PODS)]
    env = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        CLUSTER_MARKER: marker,
        "INPLACE_EPOCH": "1",  # each torchrun counts its own restarts
        "STEP_S": "0.1",
        # A store that outlives the run hands gloo the addresses of dead ranks, and no restart succeeds.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    try:
        for number, log in enumerate(logs):
            _start(command, env | {"CHECKPOINT_DIR": str(folder / f"checkpoints-{number}")}, log)
        yield Group(module, f"{CLUSTER_MARKER}={marker}", lambda: [[log] for log in logs])
    finally:
        while pids := reaper.marked(f"{CLUSTER_MARKER}={marker}"):
            reaper.kill(pids)
            await asyncio.sleep(POLL_S)


def _start(command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program that the end of its group kills."""
    with log.open("ab") as output:
        return subprocess.Popen(command, env=env, stdout=output, stderr=output, start_new_session=True)


@asynccontextmanager
async def by_hand(folder: Path) -> AsyncIterator[Group]:
    """Start four processes of JAX; as soon as one is gone, kill the others and start all again."""
    (port,), marker = free_ports(1), uuid4().hex
    module, python = "inplace.examples.jax_train", environment("jax") / "bin" / "python3"
    logs = [folder / f"{rank}.log" for rank in range(PODS)]

    def start_all() -> list[subprocess.Popen[bytes]]:
        started = []
        for rank, log in enumerate(logs):
            env = rank_variables(rank, world=PODS, port=port, checkpoints=folder / f"checkpoints-{rank}")
            own = {CLUSTER_MARKER: marker, "PROGRAM_DIR": str(folder / f"programs-{rank}"), "STEP_S": "0.1"}
            started.append(_start([str(python), "-m", module], env | own, log))
        return started

    async def restart() -> None:
        while True:
            processes = start_all()
            while all(process.poll() is None for process in processes):  # noqa: ASYNC110 - they tell nobody
                await asyncio.sleep(POLL_S)
            for process in processes:
                process.kill()
                process.wait()

    restarting = asyncio.create_task(restart())
    try:
        yield Group(module, f"{CLUSTER_MARKER}={marker}", lambda: [[log] for log in logs])
    finally:
        restarting.cancel()
        reaper.kill(reaper.marked(f"{CLUSTER_MARKER}={marker}"))


@asynccontextmanager
async def in_pods(
    folder: Path,
    *,
    framework: str,
    example: str,
    mode: Mode = Mode.SUPERVISOR,
    options: Sequence[str] = (),
    annotations: Mapping[str, str] = NOTHING,
    pods: int = PODS,
    steps: int = STEPS,
    change: Callable[[dict[str, Any]], None] | None = None,
    change_jobset: Callable[[dict[str, Any]], None] | None = None,
) -> AsyncIterator[Group]:
    """Start an example's group on the embedded Kubernetes, below guards with these options.

    `change` gets its Pods' spec, and then `change_jobset` the whole JobSet.
    """
    file = folder / "manifest.yaml"
    text = _for_measuring(example, mode, free_ports(1)[0], options, annotations)
    file.write_text(text.replace(f"value: '{STEPS}'", f"value: '{steps}'"))
    manifest = read_demo_manifest(file, pods, KILLS, mode)
    if change is not None:
        change(manifest.documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"])
    if change_jobset is not None:
        change_jobset(manifest.documents[-1])
    cluster = Cluster(
        nodes=2, pods_per_node=pods, controller="process", programs=(environment(framework) / "bin",), folder=folder
    )

    def logs() -> list[list[Path]]:
        of_pods = folder.glob(f"pods/*/logs/{manifest.worker}")
        return [sorted(own.glob("*.log"), key=lambda log: int(log.stem)) for own in sorted(of_pods)]

    async with cluster:
        await cluster.apply([_namespace(manifest.namespace), *manifest.documents])
        runtime = cluster._runtime  # noqa: SLF001 - a benchmark kills where no command would
        assert isinstance(runtime, ProcessRuntime)
        marker = f"{CLUSTER_MARKER}={runtime.marker[CLUSTER_MARKER]}"
        yield Group(f"inplace.examples.{framework}_train", marker, logs, cluster)


def keep_in_memory(pod: dict[str, Any]) -> None:
    """Give a Pod's worker a folder in memory that outlives it."""
    (worker,) = pod["containers"]
    worker["env"].append({"name": "INPLACE_KEEP_DIR", "value": "/keep"})
    worker["volumeMounts"].append({"name": "keep", "mountPath": "/keep"})
    pod["volumes"].append({"name": "keep", "emptyDir": {"medium": "Memory"}})


def _for_measuring(
    example: str, mode: Mode, port: int, options: Sequence[str] = (), annotations: Mapping[str, str] = NOTHING
) -> str:
    """Return a manifest with one rank in each Pod, a port that is free, enough restarts, and options of the agent."""
    text = yaml.safe_dump_all(documents_of(EXAMPLES / f"{example}.yaml", mode, options))
    text = text.replace("--nproc-per-node=2", "--nproc-per-node=1").replace("29500", str(port))
    documents = list(yaml.safe_load_all(text))
    documents[-1]["metadata"].setdefault("annotations", {}).update({wire.FAILURES: "backoff=0", **annotations})
    spec = documents[-1]["spec"]
    spec["failurePolicy"]["maxRestarts"] = RESTARTS_MAX
    return yaml.safe_dump_all(documents)


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


STANDBY = ("--standby",)


def _rows(framework: str) -> tuple[Row, ...]:
    """Return the ways of an example in Pods."""
    start = partial(in_pods, framework=framework, example=framework)
    spared = partial(start, example=f"elastic-{framework}", annotations={wire.MEMBERS: f"max={PODS}"}, pods=PODS + 1)
    return (
        Row("supervisor", start),
        Row("standby", partial(start, options=STANDBY), PODS),
        Row("containers", partial(start, mode=Mode.CONTAINERS)),
        Row("process", partial(start, mode=Mode.PROCESS)),
        Row("process_standby", partial(start, mode=Mode.PROCESS, options=STANDBY), PODS),
        Row("spare_standby", spared, PODS + 1, loses_pod=True),
    )


TORCHRUN = partial(in_pods, framework="torch", example="torchrun")
ROWS = {
    "jax": (Row("baseline", by_hand), *_rows("jax")),
    "torch": (Row("baseline", torchrun_alone), *_rows("torch"), Row("supervisor_torchrun", TORCHRUN)),
}
"""The ways that are compared, by framework; the first one is the baseline."""


async def measure(row: Row, rng: Random, figures: Figures) -> None:
    """Add the seconds of KILLS restarts of one group, and the memory of its standbys."""
    with tempfile.TemporaryDirectory(prefix="inplace-frameworks-") as folder:
        async with row.start(Path(folder)) as group:
            for number in range(1, 2 if row.loses_pod else KILLS + 1):
                await group.reach(PODS * number, PODS * STEPS_BETWEEN, row.standbys)
                await asyncio.sleep(rng.uniform(0, 0.2))
                began_s = time.monotonic()
                if row.loses_pod:
                    await group.delete_pod(rng)
                else:
                    os.kill(rng.choice(group.ranks()), signal.SIGKILL)
                await group.reach(group.resumed + 1, 0)
                figures.add(row.key, {"s": time.monotonic() - began_s})
                print(f"{row.key} {figures.rows[row.key]['s'][-1]:.2f}", file=sys.stderr, flush=True)
            if group.standbys_mb:
                figures.rows[row.key].setdefault("standby_rss_mb", []).extend(group.standbys_mb)


async def compare(framework: str, rows: Sequence[Row], rounds: int) -> Figures:
    """Measure all rows in each round."""
    rng = Random(1)
    figures = Figures(
        f"{framework}: {PODS} Pods on {os.cpu_count()} cores, {rounds * KILLS} kills of each; to the first step",
        compared=[*((row.key, rows[0].key) for row in rows[1:]), ("standby", "supervisor")],
    )
    for _ in range(rounds):
        for row in rows:
            await measure(row, rng, figures)
    return figures


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, rounds=3)
    parser.add_argument("framework", nargs="*", default=sorted(ROWS), help=f"of {', '.join(ROWS)}; default: all")
    options = parser.parse_args()
    for name in options.framework:
        asyncio.run(compare(name, ROWS[name], options.rounds)).show(options)


if __name__ == "__main__":
    main()
