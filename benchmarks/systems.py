"""
Systems that restart a training: four ranks, one in each place, on the loopback of one machine.

A place is a Pod of the demo's Kubernetes, whose agent is ours, or a launcher without Kubernetes. Its kubelet is played
by this module, which starts a launcher that ends again. All train the same example. A rank says `goes on from step`
after the first collective of its run, which ends only when all four took part.

To add a system write a function that returns its `Launcher`, and a row in SYSTEMS.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import yaml

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
STEPS = 3000  # as the examples have it
STEPS_BETWEEN = 10  # of each rank, after a restart and before the next fault
STALL_AFTER_S = 4.0  # of silence: forty of the example's steps
RESTARTED_S = 0.1  # between the end of a launcher and its next start
AWAY_S = 10.0  # the Job controller's pause before it replaces a Pod; a launcher that is lost comes back after as long
PLACE = "BENCHMARK_PLACE"  # in the environment of all processes of a place without Kubernetes
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
    away_s: dict[Path, float] = field(default_factory=dict)  # of a place by its log, how much later it is started again

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

    def kill_place(self, rng: Random) -> Path:
        """Kill all processes of the place of a random rank; return its log."""
        log = self._of_a_rank(rng)[-1]
        place = f"/{log.parents[2].name}/" if self.cluster is not None else f"{PLACE}={log}"
        for pid in reaper.marked(self.marker):
            with suppress(OSError):  # it ended
                if place.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        return log

    async def lose_place(self, rng: Random) -> None:
        """Delete the Pod of a random rank; a launcher is killed, and comes back as late as a Job's next Pod."""
        if self.cluster is None:
            self.away_s[self.kill_place(rng)] = AWAY_S
        else:
            await self.delete_pod(rng)

    def _of_a_rank(self, rng: Random) -> list[Path]:
        return rng.choice([own for own in self.logs() if own and RESUMED.search(own[-1].read_bytes())])

    async def delete_pod(self, rng: Random) -> None:
        """Delete the Pod of a random rank; what it printed does not count any more."""
        assert self.cluster is not None, "expected Pods"
        own = self._of_a_rank(rng)
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
class Launcher:
    """What starts a rank where there is no Kubernetes.

    Args:
        command: of a place, by its number.
        env: of all places.
        beside: a program that all of them need.
        together: a place that ends takes the others with it: they would not end by themselves.
    """

    command: Callable[[int], Sequence[str]]
    env: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[str] = ()
    together: bool = False


def torchrun(port: int) -> Launcher:
    """Return torchruns that restart their ranks themselves: elastic, with c10d's rendezvous."""
    words = _elastic(str(environment("torch") / "bin" / "torchrun"))
    where = [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d", "--rdzv-id=b", "--local-addr=127.0.0.1"]
    return Launcher(lambda _: [*words, *where, *_MODULE], _ELASTIC)


def nvrx(port: int) -> Launcher:
    """Return NVRx's launchers, one for each address: it takes places with one address for one node.

    Without a configuration it needs no heartbeats of the script, and so finds no hang.
    """
    module = "nvidia_resiliency_ext.fault_tolerance.launcher"
    words = _elastic(str(environment("libraries") / "bin" / "python3"), "-m", module)
    where = [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d", "--rdzv-id=b", "--ft-ignore-missing-cfg"]
    beats = ["--ft-rank-heartbeat-timeout=null", "--ft-initial-rank-heartbeat-timeout=null"]
    return Launcher(lambda place: [*words, *where, *beats, f"--local-addr=127.0.0.{place + 1}", *_MODULE], _ELASTIC)


def dlrover(port: int) -> Launcher:
    """Return DLRover's launchers and its local master."""
    programs = environment("libraries") / "bin"
    master = [str(programs / "python3"), "-m", "dlrover.python.master.main", "--platform=local", "--job_name=b"]
    words = _elastic("env", "NODE_RANK={place}", "NODE_ID={place}", f"NODE_NUM={PODS}", str(programs / "dlrover-run"))
    return Launcher(
        lambda place: [word.format(place=place) for word in [*words, *_MODULE]],
        {**_ELASTIC, "DLROVER_MASTER_ADDR": f"127.0.0.1:{port}"},
        beside=[*master, f"--port={port}", f"--node_num={PODS}"],
    )


def loop(port: int, framework: str) -> Launcher:
    """Return ranks without any launcher: as soon as one is gone all others are killed, and all are started again."""
    python = str(environment(framework) / "bin" / "python3")

    def command(place: int) -> list[str]:
        env = rank_variables(place, world=PODS, port=port, checkpoints=Path())
        own = [f"{name}={env[name]}" for name in env if name not in ("PATH", "PYTHONPATH", "CHECKPOINT_DIR")]
        return ["env", *own, python, "-m", f"inplace.examples.{framework}_train"]

    return Launcher(command, together=True)


_MODULE = ("-m", "inplace.examples.torch_train")
# A store that outlives the run hands gloo the addresses of dead ranks, and no restart succeeds.
_ELASTIC = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def _elastic(*words: str) -> list[str]:
    return [*words, f"--nnodes={PODS}", "--nproc-per-node=1", f"--max-restarts={RESTARTS_MAX}"]


@asynccontextmanager
async def launched(folder: Path, *, of: Callable[[int], Launcher], framework: str = "torch") -> AsyncIterator[Group]:
    """Start a launcher in each place, and start it again whenever it ends."""
    (port,), marker = free_ports(1), uuid4().hex
    launcher, module = of(port), f"inplace.examples.{framework}_train"
    logs = [folder / f"{place}.log" for place in range(PODS)]
    env = {
        "PATH": f"{environment(framework) / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        CLUSTER_MARKER: marker,
        "INPLACE_EPOCH": "1",  # each launcher counts its own restarts
        "STEP_S": "0.1",
        **launcher.env,
    }
    group = Group(module, f"{CLUSTER_MARKER}={marker}", lambda: [[log] for log in logs])

    def start(place: int) -> subprocess.Popen[bytes]:
        own = {"CHECKPOINT_DIR": f"{folder}/checkpoints-{place}", "PROGRAM_DIR": f"{folder}/programs-{place}"}
        return _start(launcher.command(place), env | own | {PLACE: str(logs[place])}, logs[place])

    async def keep(places: Sequence[int]) -> None:
        while True:
            running = {place: start(place) for place in places}
            while all(process.poll() is None for process in running.values()):  # noqa: ASYNC110 - they tell nobody
                await asyncio.sleep(POLL_S)
            for process in running.values():
                process.kill()
                process.wait()
            await asyncio.sleep(RESTARTED_S + max(group.away_s.pop(logs[place], 0.0) for place in places))

    every = [range(PODS)] if launcher.together else [range(place, place + 1) for place in range(PODS)]
    try:
        if launcher.beside:
            _start(launcher.beside, env, folder / "beside.log")
        keeping = [asyncio.create_task(keep(places)) for places in every]
        yield group
    finally:
        for task in keeping:
            task.cancel()
        while pids := reaper.marked(group.marker):
            reaper.kill(pids)
            await asyncio.sleep(POLL_S)


def _start(command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program that the end of its group kills."""
    with log.open("ab") as output:
        return subprocess.Popen(command, env=env, stdout=output, stderr=output, start_new_session=True)


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
    stall_after_s: float | None = None,
    change: Callable[[dict[str, Any]], None] | None = None,
    change_jobset: Callable[[dict[str, Any]], None] | None = None,
) -> AsyncIterator[Group]:
    """Start an example's group on the embedded Kubernetes, below guards with these options.

    `change` gets its Pods' spec, and then `change_jobset` the whole JobSet.
    """
    file = folder / "manifest.yaml"
    text = _for_measuring(example, mode, free_ports(1)[0], options, annotations)
    file.write_text(text.replace(f"value: '{STEPS}'", f"value: '{steps}'"))
    manifest = read_demo_manifest(file, pods, RESTARTS_MAX, mode, stall_after_s)
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


@dataclass(frozen=True)
class System:
    """One way to restart.

    Args:
        key: its name in the report.
        start: starts a group in a folder.
        standbys: how many places hold one; a fault waits for them.
    """

    key: str
    start: Callable[[Path], AbstractAsyncContextManager[Group]]
    standbys: int = 0


def _in_pods(framework: str) -> tuple[System, ...]:
    """Return the ways of an example in Pods."""
    start = partial(in_pods, framework=framework, example=framework, stall_after_s=STALL_AFTER_S)
    spared = partial(start, example=f"elastic-{framework}", annotations={wire.MEMBERS: f"max={PODS}"}, pods=PODS + 1)
    return (
        System("containers", partial(start, mode=Mode.CONTAINERS)),
        System("process", partial(start, mode=Mode.PROCESS)),
        System("process_standby", partial(start, mode=Mode.PROCESS, options=STANDBY), PODS),
        System("supervisor", start),
        System("supervisor_standby", partial(start, options=STANDBY), PODS),
        System("spare_standby", spared, PODS + 1),
    )


def _alone(framework: str) -> System:
    return System("loop", partial(launched, of=partial(loop, framework=framework), framework=framework))


SYSTEMS = {
    "jax": (_alone("jax"), *_in_pods("jax")),
    "torch": (
        System("torchrun", partial(launched, of=torchrun)),
        System("nvrx", partial(launched, of=nvrx)),
        System("dlrover", partial(launched, of=dlrover)),
        _alone("torch"),
        *_in_pods("torch"),
        System("supervisor_torchrun", partial(in_pods, framework="torch", example="torchrun")),
    ),
}
"""What is compared, by framework; the first one is the baseline."""
