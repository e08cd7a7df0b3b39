"""A training group on real nodes: apply it, disturb it, wait for it, judge it."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from inplace.common.kube.client import JSON_PATCH
from inplace.common.kube.resources import JOBSETS, NAMESPACES, PODS, KubeObject
from inplace.common.wire import names as wire
from testbed.kube_client import create
from testbed.node import manifests
from testbed.node.cluster import Cluster
from testbed.node.evidence import lives, ran, violations
from testbed.node.history import History, epochs_of
from testbed.node.machine import Node
from testbed.waiting import until

SETTLED_S_MAX: Final = 120.0
"""For a group to run at an epoch: a restart takes seconds here; a machine busy with other tests gets the rest."""

CALM_S: Final = 5.0
"""From the last Pod's readiness to what is measured: kubelet writes the statuses of Pods that start one by one, and the
training that loses its place has started long ago."""

VICTIM: Final = 1
LAG_S_MAX: Final = 2.0
"""Of a watch behind the workers' records: milliseconds, unless this process was busy with something else."""


Change = Callable[[KubeObject], object]


def _as_it_is(jobset: KubeObject) -> None:
    """Change nothing."""


class Group:
    """One JobSet in a namespace of its own.

    Args:
        pods: how many Pods train, each of which is a slot; in a group with spares a slot is a rank.
    """

    def __init__(self, cluster: Cluster, namespace: str, *, pods: int, restarts_max: int) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.sizes = {1: pods}
        self.evidence = cluster.folder / "evidence" / namespace
        self.history = History(cluster.plane.kubeconfig, namespace)
        self._restarts_max = restarts_max
        self._lost: set[str] = set()

    @property
    def slots(self) -> int:
        """Return the group's size as it was asked for last."""
        return self.sizes[max(self.sizes)]

    @property
    def epoch(self) -> int:
        """Return S as seen last."""
        return self.epochs()[0]

    async def resize(self, pods: int) -> None:
        """Change the size of the group's one Job, as a user of elastic JobSets does."""
        path = "/spec/replicatedJobs/0/template/spec"
        changes = [
            {"op": "replace", "path": f"{path}/{name}", "value": pods} for name in ("parallelism", "completions")
        ]
        self.sizes[self.epoch + 1] = pods
        await self.cluster.client.patch(JOBSETS, self.namespace, manifests.JOBSET, changes, kind=JSON_PATCH)

    async def until_runs(self, epoch: int) -> None:
        """Return when every slot has a worker of the epoch, and the watches have shown what let it run.

        Workers write their records at once; a watch of ours may lag behind them. What it does not show in time is left
        to the judge.
        """

        def holds() -> bool:
            return len(ran(self.evidence, epoch)) == self.slots

        def shown() -> bool:
            synced = self.history.synced().get(epoch)
            return synced is not None and len(self.history.announced(epoch, before=synced.number)) >= self.slots

        await until(holds, f"{self.slots} workers of epoch {epoch}", timeout_s=SETTLED_S_MAX, also=self.state)
        with suppress(AssertionError):
            await until(shown, f"S = {epoch} after its announcements", timeout_s=LAG_S_MAX)

    async def until_ready(self, spares: int = 0) -> None:
        """Return when the group runs its first epoch, and its Pods are Ready for a while, as those of a training are.

        The Job controller takes the moment at which a Pod stopped being Ready for its end.
        """
        await self.until_runs(1)

        def holds() -> bool:
            return len([pod for pod in self.live() if is_ready(pod)]) == self.slots + spares

        await until(holds, "all Pods are Ready", timeout_s=SETTLED_S_MAX, also=self.state)
        await asyncio.sleep(CALM_S)

    async def until_ended(self, terminal: str) -> None:
        """Return when the JobSet is in a terminal state."""
        await until(
            lambda: (self.history.jobset().get("status") or {}).get("terminalState") == terminal,
            f"the JobSet is {terminal}",
            timeout_s=SETTLED_S_MAX,
            also=self.state,
        )

    def epochs(self) -> tuple[int, int]:
        """Return (S, D) as seen last."""
        return epochs_of(self.history.jobset())

    def pods(self) -> list[KubeObject]:
        """Return the Pods as seen last, by slot."""
        return sorted(
            (pod for pod in self.history.pods().values() if wire.JOBSET_NAME in pod["metadata"].get("labels", {})),
            key=lambda pod: str(pod["metadata"]["name"]),
        )

    def live(self) -> list[KubeObject]:
        """Return the Pods that have neither ended nor been told to; one that restarts in place may show as Pending."""
        return [
            pod
            for pod in self.pods()
            if pod["status"].get("phase") not in ("Failed", "Succeeded") and "deletionTimestamp" not in pod["metadata"]
        ]

    def live_on(self, node: Node) -> list[KubeObject]:
        """Return the live Pods on a node."""
        return [pod for pod in self.live() if pod["spec"].get("nodeName") == node.name]

    def uids(self) -> set[str]:
        """Return the uids of the Pods that are there."""
        return {pod["metadata"]["uid"] for pod in self.pods()}

    def ranks(self, epoch: int) -> dict[int, str]:
        """Return who plays which rank in an epoch: the uid of its Pod; nothing in a group without spares."""
        return {life.rank: life.uid for life in lives(self.evidence) if life.epoch == epoch and life.rank >= 0}

    def is_gone(self) -> bool:
        """Say whether no Pod is left."""
        return not self.history.pods()

    def order(self, pod: KubeObject, words: str) -> None:
        """Tell a Pod's worker what to do; it looks twenty times a second."""
        path = self.evidence / f"{pod['metadata']['name']}.order"
        path.with_suffix(".begun").write_text(words)
        path.with_suffix(".begun").chmod(0o666)
        path.with_suffix(".begun").rename(path)

    async def kill(
        self, slot: int, container: str, *, process: int = -1, number: signal.Signals = signal.SIGKILL
    ) -> float:
        """Send a signal to the last process of a container (the worker in any mode) and return when, monotonic."""
        victim = await self._process(slot, container, process)
        killed_s = time.monotonic()
        os.kill(victim, number)
        return killed_s

    async def kill_all(self, container: str) -> None:
        """Send SIGKILL to the last process of a container in each Pod, to all before anybody can react."""
        victims = await self._last_processes(container)
        while not all(Path(f"/proc/{victim}").exists() for victim in victims):  # one ended while others were looked up
            victims = await self._last_processes(container)
        for victim in victims:
            with suppress(ProcessLookupError):  # the first one's end has ended it, where this loop had to wait
                os.kill(victim, signal.SIGKILL)

    async def _last_processes(self, container: str) -> list[int]:
        return [await self._process(slot, container, -1) for slot in range(self.slots)]

    async def _process(self, slot: int, container: str, place: int) -> int:
        """Return a process of a container.

        Kubelet reports a container some time after it runs, and only then it can be told which one is the Pod's.
        """
        await until(
            lambda: self.processes(self.pods()[slot], container),
            f"a running container {container} in slot {slot}",
            timeout_s=SETTLED_S_MAX,
            also=self.state,
        )
        return self.processes(self.pods()[slot], container)[place]

    def processes(self, pod: KubeObject, container: str) -> list[int]:
        """Return the processes of a Pod's container, its first one first; none while kubelet does not report it."""
        statuses = pod["status"].get("containerStatuses", []) + pod["status"].get("initContainerStatuses", [])
        identity = next((each.get("containerID", "") for each in statuses if each["name"] == container), "")
        return self.node_of(pod).processes(identity.rpartition("/")[2]) if identity else []

    def node_of(self, pod: KubeObject) -> Node:
        """Return the node that a Pod runs on."""
        (node,) = (node for node in self.cluster.nodes if node.name == pod["spec"]["nodeName"])
        return node

    async def delete(self, pod: KubeObject) -> None:
        """Delete a Pod as a user would: it is lost on purpose."""
        self.expect_lost([pod])
        await self.cluster.client.delete(PODS, self.namespace, pod["metadata"]["name"])

    def expect_lost(self, pods: Iterable[KubeObject]) -> None:
        """Say that these Pods go for a reason of the test's own."""
        self._lost |= {pod["metadata"]["uid"] for pod in pods}

    def broken(self) -> list[str]:
        """Return what the evidence says against S1 to S6; an empty list is what a test wants."""
        return violations(
            self.evidence, self.history, slots=self.sizes, restarts_max=self._restarts_max, lost=self._lost
        )

    def state(self) -> str:
        """Describe the group for a failure's message."""
        pods = [
            f"{pod['metadata']['name']} {pod['metadata'].get('annotations', {}).get(wire.EPOCH)} "
            f"{pod['status'].get('phase')} "
            + str(
                [
                    (each["name"], each["restartCount"], each.get("state"), each.get("lastState"))
                    for each in pod["status"].get("containerStatuses", [])
                    + pod["status"].get("initContainerStatuses", [])
                ]
            )
            for pod in self.pods()
        ]
        return "\n".join([f"S, D = {self.epochs()}", *pods, *map(str, lives(self.evidence)), *self._logs()])

    def printed(self, container: str) -> str:
        """Return what a container printed in all Pods, as far as kubelet keeps it."""
        return "\n".join(path.read_text() for path in self._log_files(container))

    def _log_files(self, container: str) -> list[Path]:
        return sorted(self.cluster.folder.glob(f"node-*/own/var/log/pods/{self.namespace}_*/{container}/*.log"))

    def _logs(self) -> list[str]:
        files = self._log_files("*")
        tails = [f"--- {path}\n" + "\n".join(path.read_text().splitlines()[-8:]) for path in files]
        return [*tails, *(node.logs() for node in self.cluster.nodes)]


def is_ready(pod: KubeObject) -> bool:
    """Say whether a Pod is Ready."""
    conditions = pod["status"].get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


@asynccontextmanager
async def running_group(
    cluster: Cluster, mode: str, *, pods: int = 3, spares: int = 0, restarts_max: int = 10, change: Change = _as_it_is
) -> AsyncIterator[Group]:
    """Run a group of workers that keep records, and of spares, after a test's own change of the JobSet."""
    group = Group(cluster, await cluster.plane.create_namespace(), pods=pods, restarts_max=restarts_max)
    group.evidence.mkdir(parents=True)
    group.evidence.chmod(0o777)
    documents = manifests.documents(
        mode, group.namespace, pods=pods + spares, restarts_max=restarts_max, evidence=group.evidence
    )
    if spares:
        manifests.have_members(documents[-1], pods)
    change(documents[-1])
    async with running(group, documents):
        yield group


@asynccontextmanager
async def running(group: Group, documents: Sequence[KubeObject]) -> AsyncIterator[None]:
    """Run a group; delete it afterwards and wait until its Pods are gone: the next test has the node for itself."""
    cluster, jobset = group.cluster, documents[-1]["metadata"]["name"]
    manifests.keep_claims_on_host(documents[-1], cluster.folder / "claims" / group.namespace)
    async with group.history.recording():
        try:
            await create(cluster.client, documents)
            yield
        finally:
            await cluster.client.delete(JOBSETS, group.namespace, jobset, propagation="Foreground")
            await until(group.is_gone, "its Pods are gone", timeout_s=SETTLED_S_MAX, also=group.state)
            await cluster.client.delete(NAMESPACES, None, group.namespace)


async def train_through_a_kill(group: Group, words: str, process: int = -1) -> str:
    """
    Kill a worker once all have passed a checkpoint, and wait for the end; the group restarts once, in its Pods.

    Args:
        group: its workers train.
        words: what each worker prints behind its first checkpoint.
        process: the worker's place among its container's processes, the oldest of which has place 0.

    Returns:
        What the workers printed.
    """

    def holds() -> bool:
        return group.printed("worker").count(words) == group.slots

    await until(holds, f"{words!r} of all workers", timeout_s=SETTLED_S_MAX, also=group.state)
    before = group.uids()
    await group.kill(VICTIM, "worker", process=process)
    await group.until_ended("Completed")
    assert group.epochs() == (2, 1)
    assert group.uids() == before
    return group.printed("worker")
