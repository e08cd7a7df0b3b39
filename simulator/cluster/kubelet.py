"""
The kubelets: each runs the Pods bound to its node.

Notifications come from the store inside this process, so a kubelet never lags behind the API server and never
loses its watch; its writes are ordinary requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.resources import NODES, KubeObject
from inplace.simulator.apiserver.metadata import timestamp
from inplace.simulator.cluster.events import ClusterEvent
from inplace.simulator.cluster.nodes import PLAIN, NodeShape, node
from inplace.simulator.cluster.pod_worker import NodeParts, PodWorker
from inplace.simulator.cluster.runtime import Runtime
from inplace.simulator.cluster.timings import Timings


class Kubelet:
    """One node's kubelet."""

    def __init__(
        self,
        node: str,
        *,
        client: KubeClient,
        runtime: Runtime,
        clock: Clock,
        rng: Random,
        timings: Timings,
        tell: Callable[[ClusterEvent], None] = lambda _: None,
    ) -> None:
        self.node = node
        self.workers: dict[str, PodWorker] = {}
        relist_phase_s = rng.random() * timings.pleg_relist_s
        self._parts = NodeParts(client, runtime, clock, rng, timings, tell, relist_phase_s)
        self._work: asyncio.Queue[PodWorker] = asyncio.Queue()

    async def register(self, *, pods: int, shape: NodeShape = PLAIN) -> None:
        """Create the Node object, then report it ready, as two writes: a created object has no status.

        Args:
            pods: how many Pods the node takes, if its shape says nothing else.
            shape: its labels, taints and resources.
        """
        whole = node(self.node, pods=pods, now=timestamp(self._parts.clock.wall_s()), shape=shape)
        await self._parts.client.create(NODES, None, whole)
        status = {"status": whole["status"]}
        await self._parts.client.patch(NODES, None, self.node, status, subresource="status")

    def pod_changed(self, event_type: str, pod: KubeObject) -> None:
        """Process a new version of a Pod of this node."""
        uid = pod["metadata"]["uid"]
        worker = self.workers.get(uid)
        if event_type == "DELETED":
            if worker is not None:
                worker.removed()
        elif worker is not None:
            worker.changed(pod)
        elif pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            worker = PodWorker(pod, self._parts)
            self.workers[uid] = worker
            self._work.put_nowait(worker)

    async def run(self) -> None:
        """Run Pods until cancelled; cancellation kills their containers."""
        async with asyncio.TaskGroup() as group:
            while True:
                worker = await self._work.get()
                group.create_task(self._run(worker))

    async def _run(self, worker: PodWorker) -> None:
        uid = worker.pod["metadata"]["uid"]
        try:
            await worker.run()
        finally:
            self.workers.pop(uid, None)
