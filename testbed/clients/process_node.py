"""
A Node whose Pods run as local processes: real agents, real guards, real workers; for what a played Pod has not.

The kubelet and its runtime are the simulator's (`simulator.cluster`), at a real API server. A container's image counts
for nothing: its command is looked up on this machine. The Node has a taint, so that only who asks for it runs here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from inplace.common.kube.clock import LoopClock
from inplace.simulator.cluster.kubelet import Kubelet
from inplace.simulator.cluster.pod_worker import PodWorker
from inplace.simulator.cluster.process_runtime import ProcessRuntime
from inplace.simulator.cluster.timings import local_processes
from testbed.api_client import ApiClient
from testbed.clients.played_nodes import PlayedNodes
from testbed.control_plane import ControlPlane
from testbed.kube_client import kube_client

NAME: Final = "processes"  # of the Node, of its label `capacity`, and of its taint

Object = dict[str, Any]


@dataclass(slots=True)
class ProcessNode:
    """The Node, while it runs."""

    _plane: ControlPlane
    _client: ApiClient
    _kubelet: Kubelet
    _runtime: ProcessRuntime
    _tokens: dict[str, tuple[str, str]]

    def pods(self, namespace: str) -> dict[str, PodWorker]:
        """Return the Pods of a namespace that run here, by name."""
        found = (
            worker for worker in self._kubelet.workers.values() if worker.pod["metadata"]["namespace"] == namespace
        )
        return {worker.pod["metadata"]["name"]: worker for worker in sorted(found, key=_name)}

    async def lines(self, pod: PodWorker, container: str) -> list[str]:
        """Return what a container of a Pod has printed."""
        log = self._runtime.open_log(pod.pod["metadata"]["uid"], container)
        if log is None:
            return []
        with closing(log):
            return b"".join(piece.text for piece in log.pieces()).decode().splitlines()

    async def run(self) -> None:
        """Be the kubelet until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._kubelet.run())
            field = {"fieldSelector": f"spec.nodeName={NAME}"}
            listed = await self._client.get("/api/v1/pods", **field)
            version = listed["metadata"]["resourceVersion"]
            while True:
                async for event in self._client.watch("/api/v1/pods", resourceVersion=version, **field):
                    stored: Object = event["object"]
                    version = stored["metadata"]["resourceVersion"]
                    if event["type"] == "ADDED":
                        await self._grant(stored)
                    self._kubelet.pod_changed(event["type"], stored)

    async def _grant(self, stored: Object) -> None:
        """Keep the token that a Pod's agent gets, bound to the Pod."""
        metadata, account = stored["metadata"], stored["spec"]["serviceAccountName"]
        place = (metadata["namespace"], account)
        path = await self._plane.service_account_kubeconfig(*place, pod=metadata["name"], uid=metadata["uid"])
        text = await asyncio.to_thread(path.read_text)
        self._tokens[metadata["uid"]] = (json.loads(text)["users"][0]["user"]["token"], text)


@asynccontextmanager
async def process_node(plane: ControlPlane, nodes: PlayedNodes) -> AsyncIterator[ProcessNode]:
    """Run the Node for the body of the block; its object stays, and takes no Pod afterwards."""
    clock, rng = LoopClock(), Random(0)
    tokens: dict[str, tuple[str, str]] = {}
    with TemporaryDirectory(prefix="inplace-node-") as folder:
        runtime = ProcessRuntime(
            Path(folder), clock=clock, credentials=lambda pod: tokens[pod["metadata"]["uid"]], tell=lambda event: None
        )
        async with kube_client(plane.kubeconfig, "kubelet") as writer, plane.client() as client:
            kubelet = Kubelet(NAME, client=writer, runtime=runtime, clock=clock, rng=rng, timings=local_processes())
            await nodes.add(NAME, is_played=False, capacity=NAME)
            running = ProcessNode(plane, client, kubelet, runtime, tokens)
            task = asyncio.create_task(running.run())
            try:
                yield running
            finally:
                await client.patch(f"/api/v1/nodes/{NAME}", {"spec": {"unschedulable": True}})
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await runtime.close()


def _name(worker: PodWorker) -> str:
    return str(worker.pod["metadata"]["name"])
