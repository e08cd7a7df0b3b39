"""A whole cluster on this machine: control plane, our controller, nodes. What a test gets, and disturbs.

One cluster serves a session: it costs some 15 s. Groups live in namespaces of their own.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import yaml

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import NODES
from testbed.binaries import Binaries
from testbed.component import Component
from testbed.control_plane import ControlPlane
from testbed.kube_client import create, install_crd, kube_client
from testbed.node import names, network
from testbed.node.machine import Node
from testbed.ports import free_ports
from testbed.upstream.controller import upstream_controller
from testbed.waiting import until

READY_S_MAX = 60.0
DEPLOY = Path(__file__).parents[2] / "deploy"
NEEDED = ("rbac/agents.yaml",)
"""Of the whole install, what the groups of the tests cannot do without."""
LEASE_S: Final = 8
"""nodeLeaseDurationSeconds: kubelet renews its node's Lease every quarter of it."""

LEASE_S_DEFAULT: Final = 40
GRACE_S: Final = 8
"""node-monitor-grace-period: without a renewal for so long, a node is given up."""

LOOK_S: Final = 1
VERDICT_S_MAX: Final = 60.0
UNREACHABLE: Final = "node.kubernetes.io/unreachable"


async def install_needed(client: KubeClient) -> None:
    """Create what the groups of the tests need; again, where a test has uninstalled everything."""
    for path in NEEDED:
        await create(client, yaml.safe_load_all((DEPLOY / path).read_text()))


class Cluster:
    """
    The parts, each of which may be disturbed by itself.

    Args:
        plane: etcd, kube-apiserver and Kubernetes' own controllers.
        client: an administrator's.
        controller: ours, or upstream's; a Component, so it may be stopped, killed and started.
        folder: for everybody's files.
    """

    def __init__(
        self,
        plane: ControlPlane,
        client: KubeClient,
        folder: Path,
        *,
        programs: Path,
        kubelet: Sequence[str],
        images: Sequence[Path],
    ) -> None:
        self.plane = plane
        self.client = client
        self.folder = folder
        self.nodes: list[Node] = []
        self.controller = Component("inplace-controller", self._controller_command(), folder)
        self._programs = programs
        self._kubelet = kubelet
        self._images = images

    async def add_node(self) -> Node:
        """Bring up another node and return it once Pods may be scheduled there."""
        number = len(self.nodes)
        folder = self.folder / f"node-{number}"
        folder.mkdir()
        node = Node(number, programs=self._programs, kubelet=self._kubelet, folder=folder)
        self.nodes.append(node)
        await node.start(self.plane, self._images)
        await self.until_ready(node)
        return node

    async def until_ready(self, node: Node) -> None:
        """Return once Pods may be scheduled on a node."""
        await until(lambda: self._is_ready(node), f"{node.name} is Ready", timeout_s=READY_S_MAX, also=node.logs)

    async def cordon(self, node: Node, *, on: bool) -> None:
        """Mark a node as unschedulable, or as schedulable again."""
        await self.client.patch(NODES, None, node.name, {"spec": {"unschedulable": on}})

    async def lose(self, node: Node) -> None:
        """Power a node off and delete its object, if that is still there."""
        await node.power_off()
        with suppress(NotFound):
            await self.client.delete(NODES, None, node.name)

    async def _is_ready(self, node: Node) -> bool:
        try:
            stored = await self.client.get(NODES, None, node.name)
        except NotFound:
            return False
        conditions = {each["type"]: each["status"] for each in stored["status"].get("conditions", ())}
        return conditions.get("Ready") == "True" and not stored["spec"].get("taints")

    @asynccontextmanager
    async def controller_with(self, *flags: str) -> AsyncIterator[None]:
        """Run our controller with more flags; afterwards it is the one of before."""
        before = self.controller
        await before.stop()
        self.controller = Component("inplace-controller", self._controller_command(*flags), self.folder)
        self.controller.start()
        try:
            yield
        finally:
            await self.controller.stop()
            self.controller = before
            self.controller.start()

    def _controller_command(self, *more: str) -> tuple[str, ...]:
        probes, metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
        ports = (f"--probe-bind-address={probes}", f"--metrics-bind-address={metrics}")
        flags = (
            f"--kubeconfig={self.plane.kubeconfig}",
            "--no-leader-elect",
            "--agent-image=inplace-agent",
            *ports,
            *more,
        )
        return (sys.executable, "-P", "-m", "inplace.controller", *flags)


@asynccontextmanager
async def running_cluster(
    binaries: Binaries,
    *,
    programs: Path,
    images: Sequence[Path],
    folder: Path,
    installed: Literal["ours", "upstream", "nothing"] = "ours",
) -> AsyncIterator[Cluster]:
    """Run a cluster with one node; end it in order, so that every program's last words are in its log.

    `installed` says whose CRD and controller are there; upstream's has webhooks too.
    """
    network.set_up()
    async with AsyncExitStack() as ending:
        plane = await ending.enter_async_context(ControlPlane(binaries, with_controllers=True, for_pods=True))
        client = await ending.enter_async_context(kube_client(plane.kubeconfig))
        if installed == "upstream":
            controller = await ending.enter_async_context(upstream_controller(plane))
        elif installed == "ours":
            await install_crd(client)
            await install_needed(client)
        await ending.enter_async_context(names.answering(client, network.GATEWAY))
        kubelet = binaries.command("kubelet")
        cluster = Cluster(plane, client, folder, programs=programs, kubelet=kubelet, images=images)
        if installed == "upstream":
            cluster.controller = controller
        elif installed == "ours":
            cluster.controller.start()
            ending.push_async_callback(cluster.controller.stop)
        ending.push_async_callback(_power_off, cluster)
        await cluster.add_node()
        yield cluster


async def _power_off(cluster: Cluster) -> None:
    await asyncio.gather(*(node.power_off() for node in cluster.nodes))


@asynccontextmanager
async def quick_verdicts(cluster: Cluster) -> AsyncIterator[None]:
    """Let Kubernetes find a dead node in seconds; afterwards all is as before.

    A kubelet renews its node's Lease every 10 s, and kube-controller-manager gives a node up 50 s after the last
    renewal. That is long for a test, and longer than a short lease of a worker. Here both are shorter, in proportion.
    """
    await _renew_every(cluster, LEASE_S)
    periods = (f"--node-monitor-grace-period={GRACE_S}s", f"--node-monitor-period={LOOK_S}s")
    await cluster.plane.restart_controller_manager(*periods)
    try:
        yield
    finally:
        await cluster.plane.restart_controller_manager()
        await _renew_every(cluster, LEASE_S_DEFAULT)


async def until_given_up(cluster: Cluster, node: Node) -> float:
    """Return when Kubernetes has tainted a node as unreachable, on the monotonic clock."""

    async def is_tainted() -> bool:
        taints = (await cluster.client.get(NODES, None, node.name))["spec"].get("taints") or []
        return any((taint["key"], taint["effect"]) == (UNREACHABLE, "NoExecute") for taint in taints)

    await until(is_tainted, f"{node.name} is given up", timeout_s=VERDICT_S_MAX)
    return time.monotonic()


async def _renew_every(cluster: Cluster, lease_s: int) -> None:
    nodes = [node for node in cluster.nodes if node.is_on]  # an earlier test may have lost some
    await asyncio.gather(*(node.restart_kubelet(nodeLeaseDurationSeconds=lease_s) for node in nodes))
