"""
Run containers as local processes: each Pod has a 127.x.y.z address, a folder and a line in a hosts file.

Linux only: the whole of 127.0.0.0/8 answers there without configuration. There is no DNS: programs that know
INPLACE_HOSTS_FILE find names there, and in a command's arguments the coordinator's address stands for its name.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

from inplace.agent.guard import EXITED, STARTED
from inplace.common.agent_command import AGENT_COMMAND, agent_arguments
from inplace.common.kube.clock import Clock
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster import reaper
from inplace.simulator.cluster.container_log import ContainerLog, LogFile
from inplace.simulator.cluster.events import ClusterEvent, Kind
from inplace.simulator.cluster.pod_folder import ROOT, PodFolder, make_agent_image
from inplace.simulator.cluster.processes import LocalProcess
from inplace.simulator.cluster.runtime import ContainerRun, Sandbox

CLUSTER_MARKER = "INPLACE_CLUSTER"
HOSTS_FILE = "INPLACE_HOSTS_FILE"
FIRST_STEP_PREFIX = b"step="
# Two events in a guard's log, which may come after a quick worker's first step. An agent tells no epoch with the first.
_EXITED = f'"event": "{EXITED}", "epoch"'.encode()
_STARTED = f'"event": "{STARTED}"'.encode()
_PODS_PER_BLOCK = 250
_BLOCKS = 128 * 250  # of 127.64.0.0/9; each cluster begins at a random one
_PODS_MAX = 10_000


class ProcessRuntime:
    """The runtime of every node.

    Args:
        folder: an empty folder of this cluster's own.
        credentials: a Pod's bearer token and kubeconfig.
        tell: takes first steps.
        programs: folders whose programs every container finds before all others.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        credentials: Callable[[KubeObject], tuple[str, str]],
        tell: Callable[[ClusterEvent], None],
        programs: Sequence[Path] = (),
    ) -> None:
        self._folder = folder
        make_agent_image(folder / "agent-image")
        self._programs = programs
        self._clock = clock
        self._credentials = credentials
        self._tell = tell
        self._marker = uuid4().hex
        self._folders: dict[str, PodFolder] = {}
        self._written: set[Path] = set()  # the logs of running containers
        self._hosts: dict[str, list[str]] = {}
        self._processes: dict[str, list[LocalProcess]] = {}
        self._pods_made = 0
        self._coordinators: dict[tuple[str, str], str] = {}  # (namespace, name) to the address that arguments have
        self._first_block = int(self._marker[:8], 16) % _BLOCKS
        self._reaper: subprocess.Popen[bytes] | None = None
        atexit.register(self._kill_all)

    @property
    def marker(self) -> dict[str, str]:
        """Return the variable that the reaper looks for; every process that has it dies with the cluster."""
        return {CLUSTER_MARKER: self._marker}

    @property
    def hosts_file(self) -> Path:
        """Return the file that stands in for DNS."""
        return self._folder / "hosts"

    async def create_sandbox(self, pod: KubeObject) -> Sandbox:
        """Make the Pod's folder and give it an address and a name."""
        self._start_reaper()
        meta, spec = pod["metadata"], pod["spec"]
        uid = meta["uid"]
        hostname = spec.get("hostname") or meta["name"]
        name = f"{hostname}.{spec.get('subdomain', '')}"
        pod_ip = self._coordinators.get((meta["namespace"], name)) or self._next_address()
        token, kubeconfig = self._credentials(pod)
        folder = PodFolder(
            self._folder / "pods" / f"{meta['name']}_{uid[:8]}", self._folder / "shared", self._folder / "agent-image"
        )
        folder.create(pod, token=token, kubeconfig=kubeconfig)
        self._folders[uid] = folder
        if "subdomain" in spec:
            self._hosts[uid] = [pod_ip, name, f"{name}.{meta['namespace']}.svc.cluster.local"]
            self._write_hosts()
        return Sandbox(uid, pod_ip, self._base_env(folder, hostname))

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Kill the Pod's remaining processes, forget its name, delete its folder."""
        for process in self._processes.pop(sandbox.uid, []):
            process.kill()
            await process.wait()
        if self._hosts.pop(sandbox.uid, None):
            self._write_hosts()
        self._folders.pop(sandbox.uid).remove()

    async def start(self, run: ContainerRun) -> LocalProcess:
        """Start the process.

        Raises:
            StartError: the command cannot be executed.
        """
        folder = self._folders[run.sandbox.uid]
        rewrite = folder.rewriter(run.pod, run.spec.manifest)
        log = folder.log(run.spec.name, run.restart_count)
        log.parent.mkdir(parents=True, exist_ok=True)
        self._written.add(log)
        process = LocalProcess(
            [rewrite(word) for word in self._resolved(run)],
            {name: rewrite(value) for name, value in run.env.items()},
            folder.path,
            # UIDs come from the seed: two clusters on one machine have the same ones.
            marker=f"{self._marker}/{run.sandbox.uid}/{run.spec.name}/{run.restart_count}",
            pod_ip=run.sandbox.pod_ip,
            log=ContainerLog(log, self._clock.wall_s, on_close=lambda: self._written.discard(log)),
            on_line=self._first_step(run),
            clock=self._clock,
        )
        alive = self._processes.setdefault(run.sandbox.uid, [])
        alive[:] = [other for other in alive if not other.ended] + [process]
        return process

    def start_program(self, command: Sequence[str], kubeconfig: Path, log: Path) -> LocalProcess:
        """Start a program that belongs to no Pod, and dies with the cluster."""
        return LocalProcess(
            command,
            self._program_env(kubeconfig),
            log.parent,
            marker=f"{self._marker}/{uuid4().hex}",
            pod_ip="127.0.0.1",
            log=ContainerLog(log, self._clock.wall_s),
            on_line=lambda _: None,
            clock=self._clock,
        )

    def open_log(self, uid: str, container: str, *, previous: bool = False) -> LogFile | None:
        """Open a container's log."""
        folder = self._folders.get(uid)
        path = folder.newest_log(container, previous=previous) if folder is not None else None
        return None if path is None else LogFile(path, lambda: path not in self._written)

    async def close(self) -> None:
        """Kill every process and let the reaper go."""
        processes = [process for alive in self._processes.values() for process in alive]
        self._processes.clear()
        for process in processes:
            process.kill()
        await asyncio.gather(*(process.wait() for process in processes))
        self._kill_all()
        atexit.unregister(self._kill_all)
        if self._reaper is not None and self._reaper.stdin is not None:
            self._reaper.stdin.close()
            self._reaper.wait()
            self._reaper = None

    def _kill_all(self) -> None:
        for alive in self._processes.values():
            for process in alive:
                process.kill_now()

    def _start_reaper(self) -> None:
        if self._reaper is None:
            command = [sys.executable, "-S", "-E", reaper.__file__, f"{CLUSTER_MARKER}={self._marker}"]
            self._reaper = subprocess.Popen(command, stdin=subprocess.PIPE, env={}, start_new_session=True)

    def _program_env(self, kubeconfig: Path) -> dict[str, str]:
        outer = os.environ.get("PATH", os.defpath)
        path = os.pathsep.join(map(str, [*self._programs, Path(sys.executable).parent, outer]))
        return {"PATH": path, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig)} | self.marker

    def _base_env(self, folder: PodFolder, hostname: str) -> dict[str, str]:
        return self._program_env(folder.credentials / "kubeconfig") | {
            "HOME": str(folder.path),
            "HOSTNAME": hostname,
            "LANG": "C.UTF-8",
            HOSTS_FILE: str(self.hosts_file),
        }

    def _resolved(self, run: ContainerRun) -> list[str]:
        """Return the command with the coordinator's address for its name; that Pod may come later, or come again."""
        meta = run.pod["metadata"]
        name = (meta.get("annotations") or {}).get(wire.COORDINATOR)
        if not name or not any(name in word for word in run.command):
            return list(run.command)
        key = meta["namespace"], name
        if key not in self._coordinators:
            there = (fields[0] for fields in self._hosts.values() if f"{name}.{key[0]}.svc.cluster.local" in fields)
            self._coordinators[key] = next(there, None) or self._next_address()
        return [word.replace(name, self._coordinators[key]) for word in run.command]

    def _next_address(self) -> str:
        """Return an address that is new in this cluster, and probably unused by other clusters on this machine."""
        assert self._pods_made < _PODS_MAX, f"expected at most {_PODS_MAX} Pods in the life of one cluster"
        block, last = divmod(self._pods_made, _PODS_PER_BLOCK)
        self._pods_made += 1
        second, third = divmod((self._first_block + block) % _BLOCKS, 250)
        return f"127.{64 + second}.{third + 1}.{last + 1}"

    def _write_hosts(self) -> None:
        lines = "".join(f"{' '.join(fields)}\n" for fields in self._hosts.values())
        fresh = self.hosts_file.with_suffix(".new")
        fresh.write_text(lines)
        fresh.replace(self.hosts_file)

    def _first_step(self, run: ContainerRun) -> Callable[[bytes], None]:
        """Return a function that reports the first step of each worker; a guard starts one after the other."""
        guards = bool(agent_arguments(run.command))
        stepped = False

        def tell(kind: Kind, detail: str = "") -> None:
            self._tell(ClusterEvent.of(run.pod, self._clock.monotonic_s(), kind, run.spec.name, detail))

        def on_line(line: bytes) -> None:
            nonlocal stepped
            if guards and _EXITED in line:
                stepped = False
            if guards and _STARTED in line:
                tell(Kind.WORKER_STARTED)
            if stepped or not line.startswith(FIRST_STEP_PREFIX):
                return
            stepped = True
            tell(Kind.FIRST_STEP, line.decode("utf-8", "replace"))

        return on_line


RESTART_S = 1.0
_GRACE_S = 5.0
# Any free ones: the Pods here listen on 8080 as well, the usual port of agents and of the controller's metrics.
_PORTS = ("--probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0")


async def keep_controller(
    runtime: ProcessRuntime, kubeconfig: Path, log: Path, *, clock: Clock, adds_agent: bool
) -> None:
    """Keep `inplace-controller` running until cancelled.

    Args:
        runtime: ends its process with the cluster.
        kubeconfig: the controller's.
        log: the file that takes its output.
        clock: times its pauses.
        adds_agent: to JobSets that restart in place and have none.
    """
    flags = (f"--agent-image={AGENT_COMMAND}",) if adds_agent else ()
    command = [sys.executable, "-m", "inplace.controller", "--no-leader-elect", *flags, *_PORTS]
    while True:
        process = runtime.start_program(command, kubeconfig, log)
        try:
            await process.wait()
        except asyncio.CancelledError:
            await process.stop(_GRACE_S)
            raise
        await clock.sleep(RESTART_S)
