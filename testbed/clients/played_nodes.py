"""
Nodes and kubelets for a control plane with controllers: real scheduler, real agents, no containers.

Each Node is an object whose Lease is renewed here, so that scheduler and node controller take it for alive. Each Pod
that is bound to one runs: its status says so at once, or, where it has an agent, when the agent's barrier lifts. The
agent is the real program; it starts again whenever it ends, as kubelet does after RestartAllContainers. What a worker
would do is not played: a test says when it fails or succeeds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from inplace.common.wire import names as wire
from testbed.api_client import STRATEGIC_MERGE_PATCH, ApiClient, UnexpectedStatus
from testbed.control_plane import ControlPlane
from testbed.played_agent import agent_environment, is_lifted
from testbed.ports import free_ports

POLL_S: Final = 0.05
RENEW_S: Final = 10.0  # kubelet's period; the node controller takes a Node for lost after 50 s
SIZE: Final = {
    "cpu": "1000",
    "memory": "1000Gi",
    "pods": "110",
    "nvidia.com/gpu": "64",
}  # quotas are the queue's matter
FEATURES: Final = ("RestartAllContainersOnContainerExits",)  # without it the scheduler keeps our Pods away
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

Object = dict[str, Any]


@dataclass(slots=True)
class PlayedPod:
    """
    One Pod that runs here.

    Args:
        exits: exit codes of its agents so far.
        lifts: epochs whose barrier lifted, in order.
    """

    stored: Object = field(repr=False)
    exits: list[int] = field(default_factory=list)
    lifts: list[int] = field(default_factory=list)
    process: asyncio.subprocess.Process | None = None
    playing: asyncio.Task[None] | None = None
    is_late: bool = False  # its activeDeadlineSeconds are over

    @property
    def path(self) -> str:
        """Return the Pod's path on the API server."""
        metadata = self.stored["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    def restart_containers(self) -> None:
        """End the agent as kubelet does when the worker failed: every container starts again."""
        assert self.process is not None, f"{self.path} has no agent"
        self.process.kill()

    def stop(self) -> None:
        """End what runs for the Pod."""
        if self.playing is not None:
            self.playing.cancel()
        if self.process is not None and self.process.returncode is None:
            self.process.kill()


class PlayedNodes:
    """The Nodes of one control plane and the Pods on them, by UID."""

    def __init__(self, plane: ControlPlane, client: ApiClient) -> None:
        self.pods: dict[str, PlayedPod] = {}
        self._plane = plane
        self._client = client
        self._names: list[str] = []  # whose Leases are renewed
        self._played: set[str] = set()
        self._tasks: asyncio.TaskGroup

    async def add(self, name: str, *, is_played: bool = True, **labels: str) -> None:
        """Make a Ready Node with these labels, `__` stands for `/`; somebody else runs the Pods of one not played.

        Such a Node has a taint of its name, so that only Pods that tolerate it run there. One that an earlier test of
        this control plane left cordoned takes Pods again.
        """
        if name in self._names:
            await self._client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})
            return
        marked = {key.replace("__", "/"): value for key, value in labels.items()}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **marked}}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played"}
        status: Object = {"capacity": SIZE, "allocatable": SIZE, "declaredFeatures": list(FEATURES)}
        status["conditions"] = [ready | _now("lastHeartbeatTime")]
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, **_renewed()}}
        await self._client.post(LEASES, lease)
        taints = [] if is_played else [{"key": name, "effect": "NoSchedule"}]
        await self._client.post("/api/v1/nodes", {"metadata": metadata, "spec": {"taints": taints}, "status": status})
        self._names.append(name)
        if is_played:
            self._played.add(name)

    def of(self, namespace: str) -> dict[str, PlayedPod]:
        """Return the Pods of a namespace by name."""
        found = (pod for pod in self.pods.values() if pod.stored["metadata"]["namespace"] == namespace)
        return {pod.stored["metadata"]["name"]: pod for pod in found}

    async def fail(self, pod: PlayedPod, exit_code: int = 1) -> None:
        """Let the worker of a Pod without agent fail."""
        await self._end(pod, "Failed", exit_code)

    async def succeed(self, pod: PlayedPod) -> None:
        """Let the worker of a Pod end with success, and its agent with it."""
        await self._end(pod, "Succeeded", 0)

    async def run(self) -> None:
        """Play kubelet for every Pod until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._renew())
            try:
                while True:
                    async for event in self._events():
                        self._take(event["type"], event["object"])
            finally:
                for pod in self.pods.values():
                    pod.stop()

    async def _events(self) -> AsyncIterator[Object]:
        """Yield what is there as ADDED, then every change until the watch ends."""
        listed = await self._client.get("/api/v1/pods")
        for item in listed["items"]:
            yield {"type": "ADDED", "object": item}
        version = listed["metadata"]["resourceVersion"]
        async for event in self._client.watch("/api/v1/pods", resourceVersion=version):
            yield event

    def _take(self, kind: str, stored: Object) -> None:
        """Start, continue or end a Pod."""
        if kind == "ERROR" or stored["spec"].get("nodeName") not in self._played:
            return
        uid = stored["metadata"]["uid"]
        if kind == "DELETED":
            if (gone := self.pods.pop(uid, None)) is not None:
                gone.stop()
            return
        pod = self.pods.setdefault(uid, PlayedPod(stored))
        pod.stored = stored
        ended = stored.get("status", {}).get("phase") in ("Failed", "Succeeded")
        if "deletionTimestamp" in stored["metadata"]:
            pod.stop()
            self._tasks.create_task(self._remove(pod, ended=ended))
        elif ended:
            pod.stop()
        elif stored["spec"].get("activeDeadlineSeconds") is not None:
            if not pod.is_late:
                pod.is_late = True
                self._tasks.create_task(self._end(pod, "Failed", 143, reason="DeadlineExceeded"))
        elif pod.playing is None:
            pod.playing = self._tasks.create_task(self._play(pod))

    async def _play(self, pod: PlayedPod) -> None:
        """Run a Pod's containers."""
        with suppress(UnexpectedStatus):  # the Pod was deleted meanwhile
            if not _has_agent(pod.stored):
                await self._report(pod, ready=True)
                return
            kubeconfig = await self._kubeconfig(pod)
            (port,) = free_ports(1)
            while True:
                await self._report(pod, ready=False)
                pod.stored = await self._client.get(pod.path)
                with (self._plane.directory / "agents.log").open("ab") as log:
                    pod.process = await asyncio.create_subprocess_exec(
                        *(sys.executable, "-m", "inplace.agent"),
                        env=agent_environment(pod.stored, kubeconfig, port),
                        stderr=log,
                    )
                lift = asyncio.create_task(self._lift(pod, port))
                try:
                    pod.exits.append(await pod.process.wait())
                finally:
                    lift.cancel()

    async def _lift(self, pod: PlayedPod, port: int) -> None:
        """Wait for the barrier, note its epoch, and report the Pod as ready."""
        while not await is_lifted(port):  # noqa: ASYNC110 - probing is what kubelet does
            await asyncio.sleep(POLL_S)
        with suppress(UnexpectedStatus):
            stored = await self._client.get(pod.path)
            pod.lifts.append(wire.epoch_of_pod(stored["metadata"].get("annotations") or {}) or 0)
            await self._report(pod, ready=True)

    async def _report(self, pod: PlayedPod, *, ready: bool) -> None:
        """Write what kubelet writes about a Pod that runs."""
        state = "True" if ready else "False"
        now = _now("lastTransitionTime")
        conditions = [{"type": kind, "status": state} | now for kind in ("Initialized", "ContainersReady", "Ready")]
        containers = [_container(each["name"], pod, ready=ready) for each in pod.stored["spec"]["containers"]]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": containers, **_now("startTime")}
        await self._write(pod, status)

    async def _end(self, pod: PlayedPod, phase: str, exit_code: int, reason: str | None = None) -> None:
        """Write what kubelet writes about a Pod whose containers ended."""
        pod.stop()
        ended = {"exitCode": exit_code, "reason": "Completed" if exit_code == 0 else "Error"}
        containers = [
            {"name": each["name"], "image": each["image"], "imageID": "", "ready": False, "restartCount": 0}
            | {"state": {"terminated": ended}}
            for each in pod.stored["spec"]["containers"]
        ]
        now = _now("lastTransitionTime")
        conditions = [{"type": kind, "status": "False"} | now for kind in ("ContainersReady", "Ready")]
        status = {"phase": phase, "reason": reason, "conditions": conditions, "containerStatuses": containers}
        await self._write(pod, status)

    async def _remove(self, pod: PlayedPod, *, ended: bool) -> None:
        """End a Pod that is being deleted, and remove it, as kubelet does."""
        with suppress(UnexpectedStatus):
            if not ended:
                await self._end(pod, "Failed", 137)
            await self._client.delete(pod.path, gracePeriodSeconds="0")

    async def _write(self, pod: PlayedPod, status: Mapping[str, Any]) -> None:
        body = {"metadata": {"uid": pod.stored["metadata"]["uid"]}, "status": status}
        await self._client.text("PATCH", f"{pod.path}/status", body=body, content_type=STRATEGIC_MERGE_PATCH)

    async def _kubeconfig(self, pod: PlayedPod) -> Path:
        """Return an agent's credentials: the account's that its Pod names, bound to the Pod."""
        metadata, account = pod.stored["metadata"], pod.stored["spec"]["serviceAccountName"]
        return await self._plane.service_account_kubeconfig(
            metadata["namespace"], account, pod=metadata["name"], uid=metadata["uid"]
        )

    async def _renew(self) -> None:
        """Renew every Node's Lease."""
        while True:
            await asyncio.sleep(RENEW_S)
            for name in list(self._names):
                with suppress(UnexpectedStatus):
                    await self._client.patch(f"{LEASES}/{name}", {"spec": _renewed()})


@asynccontextmanager
async def played_nodes(plane: ControlPlane) -> AsyncIterator[PlayedNodes]:
    """Play kubelets for the body of the block; Nodes are added in it."""
    async with plane.client() as client:
        nodes = PlayedNodes(plane, client)
        playing = asyncio.create_task(nodes.run())
        try:
            yield nodes
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)


def _has_agent(stored: Object) -> bool:
    """Return whether a sidecar of ours is in the Pod."""
    return any(_is_agent(each) for each in stored["spec"].get("initContainers") or ())


def _is_agent(container: Object) -> bool:
    return container.get("restartPolicy") == "Always" and "inplace-agent" in (container.get("command") or ())


def _container(name: str, pod: PlayedPod, *, ready: bool) -> Object:
    """Return a container's status: it runs, or waits for the agent before it."""
    state = {"running": _now("startedAt")} if ready else {"waiting": {"reason": "PodInitializing"}}
    return {
        "name": name,
        "image": name,
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": len(pod.exits),
        "containerID": f"containerd://{pod.stored['metadata']['uid']}-{name}-{len(pod.exits)}",
        "state": state,
    }


def _now(key: str) -> dict[str, str]:
    return {key: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}


def _renewed() -> dict[str, str]:
    return {"renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
