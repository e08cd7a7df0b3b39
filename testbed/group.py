"""
A training group on a real API server: our controller and our agents as processes, with this module as the kubelet.

kube-controller-manager makes the Pods; nobody schedules them. For each Pod the module starts `python -m inplace.agent`
with the environment that examples/train.yaml gives it, starts it again whenever it exits (as RestartAllContainers
does), and notes when each barrier lifts. What a worker would do is not played: a lifted barrier is where it would
start.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import ApiError, NotFound, ServerError, Throttled
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.resources import JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire
from testbed.control_plane import ControlPlane
from testbed.kube_client import create, install_crd, kube_client, moved_to
from testbed.played_agent import BARRIER_PATH, RESTART_EXIT_CODE, agent_environment, common_environment, is_lifted
from testbed.ports import free_ports
from testbed.waiting import until

REPOSITORY = Path(__file__).parents[1]
SETTLED_S_MAX = 30.0  # a group restart takes about a second here; thirty means it hangs
POLL_S = 0.05


@dataclass(slots=True)
class PlayedPod:
    """One Pod whose agent runs here.

    Args:
        exits: exit codes of its agents so far.
        lifts: epochs whose barrier lifted, in order.
    """

    name: str
    uid: str
    port: int
    exits: list[int] = field(default_factory=list)
    lifts: list[int] = field(default_factory=list)
    process: asyncio.subprocess.Process | None = None

    def kill(self) -> None:
        """End the agent as kubelet does when the Pod's worker failed: every container starts again."""
        assert self.process is not None, f"{self.name} has no agent"
        self.process.kill()


class Group:
    """A JobSet `train` of some Pods in one namespace of a control plane with controllers."""

    def __init__(self, plane: ControlPlane, namespace: str, client: KubeClient, *, upstream_env: bool) -> None:
        self.namespace = namespace
        self.client = client
        self.pods: dict[str, PlayedPod] = {}
        self._plane = plane
        self._upstream_env = upstream_env
        self._agent_kubeconfig = Path()
        self._tasks: asyncio.TaskGroup

    async def apply(self, *, pods: int, restarts_max: int, divided: bool) -> None:
        """Create the ServiceAccount, its permissions and the JobSet of examples/train.yaml.

        Divided, it has its replicatedJob twice, workers and others, and each restarts by itself.
        """
        account = "inplace-agent"
        self._agent_kubeconfig = await self._plane.service_account_kubeconfig(self.namespace, account)
        await create(self.client, _manifest(self.namespace, pods, restarts_max, divided))

    async def jobset(self) -> KubeObject:
        """Read the JobSet."""
        return await self.client.get(JOBSETS, self.namespace, "train")

    async def epochs(self) -> tuple[int, int]:
        """Read (S, D)."""
        return wire.epochs_of_status((await self.jobset()).get("status") or {})

    def lifted(self, epoch: int) -> bool:
        """Say whether every Pod's barrier lifted at `epoch`."""
        return bool(self.pods) and all(pod.lifts[-1:] == [epoch] for pod in self.pods.values())

    async def trains(self, epoch: int) -> None:
        """Return when every Pod's barrier lifted at `epoch`."""
        await self.until(lambda: self.lifted(epoch), f"every barrier lifted at epoch {epoch}")

    async def restarts(self, epoch: int) -> None:
        """Let the first Pod's worker fail, and return when the group trains at `epoch`."""
        next(iter(self.pods.values())).kill()
        await self.trains(epoch)

    async def until(self, holds: Callable[[], Any], what: str) -> None:
        """Return when `holds()` (a plain or an async predicate)."""
        await until(holds, what, timeout_s=SETTLED_S_MAX, also=self._standing)

    async def _standing(self) -> object:
        """Return the Pods and the JobSet's status, as far as it can be read."""
        try:
            return self.pods, (await self.jobset()).get("status")
        except (ApiError, TransportError) as error:
            return self.pods, error

    async def run(self) -> None:
        """Play kubelet for every Pod that appears and disappears, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                listed = await self._patiently(lambda: self.client.list(PODS, self.namespace))
                live = {pod["metadata"]["name"]: pod for pod in listed["items"] if wire.JOBSET_NAME in _labels(pod)}
                for name, pod in live.items():
                    if name not in self.pods and "deletionTimestamp" not in pod["metadata"]:
                        self.pods[name] = PlayedPod(name, pod["metadata"]["uid"], free_ports(1)[0])
                        self._tasks.create_task(self._play(self.pods[name]))
                for name in [name for name in self.pods if name not in live]:
                    self._stop(self.pods.pop(name))
                await asyncio.sleep(POLL_S)

    async def _play(self, pod: PlayedPod) -> None:
        """Start the Pod's agent, again and again."""
        try:
            while self.pods.get(pod.name) is pod:
                stored = await self._read(pod)
                pod.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "inplace.agent",
                    env=self._environment(stored, pod),
                    stderr=asyncio.subprocess.DEVNULL,
                )
                watching = asyncio.create_task(self._note_lift(pod))
                try:
                    pod.exits.append(await pod.process.wait())
                finally:
                    watching.cancel()
        except NotFound:
            return  # deleted meanwhile
        finally:
            self._stop(pod)

    async def _read(self, pod: PlayedPod) -> KubeObject:
        return await self._patiently(lambda: self.client.get(PODS, self.namespace, pod.name))

    async def _patiently(self, call: Callable[[], Awaitable[KubeObject]]) -> KubeObject:
        """Call until the API server answers: a kubelet outlives it. NotFound is an answer."""
        found: list[KubeObject] = []

        async def is_answered() -> bool:
            with suppress(TransportError, ServerError, Throttled):
                found.append(await call())
            return bool(found)

        await until(is_answered, "an answer of the API server", timeout_s=SETTLED_S_MAX)
        return found[-1]

    @staticmethod
    def _stop(pod: PlayedPod) -> None:
        if pod.process is not None and pod.process.returncode is None:
            pod.process.kill()

    async def _note_lift(self, pod: PlayedPod) -> None:
        """Probe the barrier as kubelet's startup probe does, and note the epoch that it lifted."""
        path = "/barrier-is-down" if self._upstream_env else BARRIER_PATH
        while not await is_lifted(pod.port, path):  # noqa: ASYNC110 - probing is what kubelet does
            await asyncio.sleep(POLL_S)
        stored = await self._read(pod)
        pod.lifts.append(wire.epoch_of_pod(stored["metadata"]["annotations"]) or 0)

    def _environment(self, stored: KubeObject, pod: PlayedPod) -> dict[str, str]:
        """Return what the downward API would give the agent now."""
        if not self._upstream_env:
            return agent_environment(stored, self._agent_kubeconfig, pod.port)
        return common_environment(stored, self._agent_kubeconfig) | {
            "INPLACE_SERVICE_ACCOUNT_DIR": str(self._account_folder()),
            "STARTUP_PROBE_PORT": str(pod.port),
            "IN_PLACE_RESTART_EXIT_CODE": str(RESTART_EXIT_CODE),
        }

    def _account_folder(self) -> Path:
        """Write the one file of the mounted service account that an upstream manifest relies on."""
        folder = self._plane.directory / f"account-{self.namespace}"
        folder.mkdir(exist_ok=True)
        (folder / "namespace").write_text(self.namespace)
        return folder


@asynccontextmanager
async def running_group(
    plane: ControlPlane,
    namespace: str,
    *,
    pods: int = 3,
    restarts_max: int = 10,
    upstream_env: bool = False,
    divided: bool = False,
) -> AsyncIterator[Group]:
    """Run a group whose Pods the control plane's Job controller makes; end its processes afterwards."""
    async with kube_client(plane.kubeconfig) as client:
        await install_crd(client)
        group = Group(plane, namespace, client, upstream_env=upstream_env)
        await group.apply(pods=pods, restarts_max=restarts_max, divided=divided)
        playing = asyncio.create_task(group.run())
        try:
            yield group
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)


@asynccontextmanager
async def running_controller(
    plane: ControlPlane, namespace: str, *, kubeconfig: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run our controller for one namespace, as the administrator unless told; kill it afterwards."""
    probes, metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
    flags = [
        "--kubeconfig",
        str(kubeconfig or plane.kubeconfig),
        "--namespace",
        namespace,
        "--no-leader-elect",
        "--probe-bind-address",
        probes,
        "--metrics-bind-address",
        metrics,
    ]
    log = (plane.directory / f"controller-{namespace}.log").open("ab")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "inplace.controller", *flags, cwd=REPOSITORY, stdout=log, stderr=log
    )
    log.close()
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()


def _labels(pod: KubeObject) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def _manifest(namespace: str, pods: int, restarts_max: int, divided: bool) -> list[KubeObject]:
    """Return examples/train.yaml without its ServiceAccount, in another namespace and size."""
    documents = moved_to(namespace, (REPOSITORY / "examples" / "train.yaml").read_text())
    for document in documents:
        if document["kind"] == "JobSet":
            document["spec"]["failurePolicy"]["maxRestarts"] = restarts_max
            job = document["spec"]["replicatedJobs"][0]["template"]["spec"]
            job["parallelism"] = job["completions"] = pods
            annotations = document["metadata"].setdefault("annotations", {})
            annotations[wire.FAILURES] = "backoff=0"  # tests kill workers faster than they could make progress
            if divided:
                annotations[wire.RESTART_SCOPE] = "ReplicatedJob"
                jobs = document["spec"]["replicatedJobs"]
                jobs.append(deepcopy(jobs[0]) | {"name": "others"})
    return [document for document in documents if document["kind"] != "ServiceAccount"]
