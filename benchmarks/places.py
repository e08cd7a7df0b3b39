"""
Measure how long a group waits for Pods that have lost their place: drained, on a cordoned node, on a dead node.

    python -m benchmarks.places [--json] [--rounds 1] [--scene drained --scene cordoned ...]

Real kube-apiserver, Job controller, scheduler, kubelets, our controller and our images, all on this machine, inside a
capsule that leaves nothing behind (see benchmarks/node.py). Workers record their starts on the machine's monotonic
clock; what the API server shows is timed by a watch. Images are on every node before, but in `dead_node_pull`: there a
node has to pull 1 GB, over a network that is this machine's memory.

A node is given up as by Kubernetes' defaults, some 40 to 50 s after its death. The verdict is its taint
`unreachable:NoExecute`; from there the seconds of the dead node's scenes count.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.figures import Figures, flags
from inplace.common.kube.resources import JOBS, PODS, KubeObject
from inplace.common.protocol.lease import LENGTH_S_MIN
from testbed.binaries import find_binaries
from testbed.go_programs import RUNTIME
from testbed.node import archives, capsule, manifests, prepare, registry, settings
from testbed.node.cluster import Cluster, running_cluster, until_given_up
from testbed.node.evidence import lives
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.node.machine import Node
from testbed.waiting import until

MODE: Final = "process"  # what the controller adds by default
DRAINED: Final = 4
"""Pods of one Job that are deleted at once, of twice as many."""

CALM_S: Final = 5.0
"""From the last Pod's readiness to what is measured: kubelet writes the statuses of Pods that start one by one, and the
training that loses its place has started long ago."""

REPLACED_S_MAX: Final = 180.0
"""For what waits for the Job controller: a plain Job that loses four Pods waits for 80 s."""

RESTARTS_MAX: Final = 1000
Moments = dict[str, float]


async def drained(cluster: Cluster) -> Moments:
    """Delete four of eight Pods at once, as a drain does."""
    async with running_group(cluster, MODE, pods=2 * DRAINED, restarts_max=RESTARTS_MAX) as group:
        await _until_ready(group)
        before, began_s = group.uids(), time.monotonic()
        await asyncio.gather(*(group.delete(pod) for pod in group.live()[:DRAINED]))
        return await _moments(group, before, DRAINED, began_s)


async def plain_job(cluster: Cluster) -> Moments:
    """Do the same to a Job that Kubernetes' defaults govern; nothing of ours takes part.

    Its Pods are deleted BEFORE they run: pause ends with 0 at SIGTERM, and an index that completed is not replaced.
    """
    namespace = await cluster.plane.create_namespace()
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "worker", "image": settings.PAUSE}],
    }
    pods = 2 * DRAINED
    spec = {"completionMode": "Indexed", "parallelism": pods, "completions": pods, "backoffLimit": RESTARTS_MAX}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "plain"}}
    await cluster.client.create(JOBS, namespace, job | {"spec": spec | {"template": {"spec": pod}}})
    try:
        before = await _until_live(cluster, namespace, pods, set())
        began_s = time.monotonic()
        await asyncio.gather(
            *(cluster.client.delete(PODS, namespace, name) for name in sorted(before.values())[:DRAINED])
        )
        await _until_live(cluster, namespace, DRAINED, set(before))
        return {"created": time.monotonic() - began_s}
    finally:
        await cluster.client.delete(JOBS, namespace, "plain", propagation="Foreground")


async def cordoned(cluster: Cluster) -> Moments:
    """Kill the worker on a cordoned node; the other node takes the replacement."""
    second = await cluster.add_node()
    try:
        async with running_group(cluster, MODE, pods=2, restarts_max=RESTARTS_MAX) as group:
            await _until_ready(group)
            before, victim = group.uids(), _pods_on(group, second)[0]
            await cluster.cordon(second, on=True)
            group.expect_lost([victim])
            died_s = await group.kill(group.pods().index(victim), "worker")
            return await _moments(group, before, 1, died_s)
    finally:
        await cluster.lose(second)


async def dead_node(cluster: Cluster) -> Moments:
    """Power a node off, whose peers fail with it as collectives do; a third node is free for the replacement."""
    return await _dead_node(cluster, peers_fail=True)


async def dead_node_pull(cluster: Cluster) -> Moments:
    """Do the same where the third node has to pull the worker's image of 1 GB."""
    with tempfile.TemporaryDirectory(prefix="registry-") as folder:
        async with registry.registry(worker_archive(), Path(folder)) as image:
            return await _dead_node(cluster, peers_fail=True, image=image)


def worker_archive() -> Path:
    """Return the archive of the worker's image."""
    return next(path for path in archives.build() if path.name == "worker.tar")


async def dead_node_hangs(cluster: Cluster) -> Moments:
    """Power a node off, whose peers train on as if nothing had happened: nothing tells that the epoch is over."""
    return await _dead_node(cluster, peers_fail=False)


async def _dead_node(cluster: Cluster, *, peers_fail: bool, image: str = "") -> Moments:
    """Run a group with leases, a Pod a node, and power one of its nodes off."""

    def change(jobset: KubeObject) -> None:
        if image:
            manifests.run_image(jobset, image)
        manifests.fence_after(jobset, LENGTH_S_MIN)
        manifests.fill_nodes(jobset, os.cpu_count() or 1)

    more = [await cluster.add_node() for _ in range(2)]
    try:
        async with running_group(cluster, MODE, pods=2, restarts_max=RESTARTS_MAX, change=change) as group:
            await _until_ready(group)
            dying = next(node for node in more if _pods_on(group, node))
            before, (ghost,) = group.uids(), _pods_on(group, dying)
            group.expect_lost([ghost])
            peers = [pod for pod in group.live() if pod["metadata"]["uid"] != ghost["metadata"]["uid"]]
            died_s = time.monotonic()
            await dying.power_off()
            for peer in peers if peers_fail else ():
                group.order(peer, "exit 3")
            verdict_s = await until_given_up(cluster, dying)
            moments = await _moments(group, before, 1, verdict_s) | {"died": verdict_s - died_s}
            await cluster.client.delete(PODS, group.namespace, ghost["metadata"]["name"], grace_period_s=0)
            return moments
    finally:
        for node in more:
            await cluster.lose(node)


async def _until_ready(group: Group) -> None:
    """Return when the group runs and its Pods are Ready, as those of a training are.

    The Job controller takes the moment at which a Pod stopped being Ready for its end.
    """
    await group.until_runs(1)

    def holds() -> bool:
        return all(
            any((each["type"], each["status"]) == ("Ready", "True") for each in pod["status"].get("conditions", ()))
            for pod in group.live()
        )

    await until(holds, "all Pods are Ready", timeout_s=SETTLED_S_MAX, also=group.state)
    await asyncio.sleep(CALM_S)


def _pods_on(group: Group, node: Node) -> list[KubeObject]:
    """Return the group's live Pods on a node."""
    return [pod for pod in group.live() if pod["spec"].get("nodeName") == node.name]


async def _until_live(cluster: Cluster, namespace: str, count: int, known: set[str]) -> dict[str, str]:
    """Return the Pods that have not ended, uid to name, once so many run that are not known."""
    found: dict[str, str] = {}

    async def holds() -> bool:
        found.clear()
        for pod in (await cluster.client.list(PODS, namespace))["items"]:
            if pod["metadata"]["uid"] not in known and "deletionTimestamp" not in pod["metadata"]:
                found[pod["metadata"]["uid"]] = pod["metadata"]["name"]
        return len(found) == count

    await until(holds, f"{count} new Pods", timeout_s=REPLACED_S_MAX)
    return found


async def _moments(group: Group, before: set[str], lost: int, began_s: float) -> Moments:
    """Wait until the group has replaced its lost Pods and runs its next epoch; return when what happened."""

    def replaced() -> bool:
        return len({pod["metadata"]["uid"] for pod in group.live()} - before) == lost

    await until(replaced, f"{lost} new Pods", timeout_s=REPLACED_S_MAX, also=group.state)
    await group.until_runs(2)
    if broken := group.broken():
        raise SystemExit("expected restarts that break no rule, saw:\n" + "\n".join(broken))
    first_s: dict[str, float] = {}
    for version in group.history.versions:
        if version.kind == "Pod" and version.uid not in before:
            first_s.setdefault(version.uid, version.seen_s)
    born_s = [life.born_s for life in lives(group.evidence) if life.epoch == 2]
    return since(began_s, {"created": max(first_s.values()), "all_new": max(born_s)})


def since(began_s: float, at_s: Mapping[str, float]) -> Moments:
    """Return moments of the monotonic clock in seconds after another one."""
    return {name: moment_s - began_s for name, moment_s in at_s.items()}


Scene = Callable[[Cluster], Awaitable[Moments]]
SCENES: Final[Mapping[str, Scene]] = {
    "drained": drained,
    "plain_job": plain_job,
    "cordoned": cordoned,
    "dead_node": dead_node,
    "dead_node_pull": dead_node_pull,
    "dead_node_hangs": dead_node_hangs,
}
WHAT: Final = {
    "drained": f"{DRAINED} of {2 * DRAINED} Pods of one Job deleted at once: from the deletion",
    "plain_job": "the same, a Job without any of ours: from the deletion",
    "cordoned": "a worker dies on a cordoned node: from its death",
    "dead_node": f"a node dies and its peers fail, leases of {LENGTH_S_MIN} s: from Kubernetes' verdict",
    "dead_node_pull": "the same, and the node must pull an image of 1 GB: from Kubernetes' verdict",
    "dead_node_hangs": "a dead node, and the peers train on: from Kubernetes' verdict",
}


PAIRS: Final = (("drained", "plain_job"), ("dead_node_pull", "dead_node"))


def figures_of(scenes: Sequence[str], rounds: int, load: float) -> Figures:
    """Return the report of no moments yet."""
    machine = f"{os.cpu_count()} cores for everything, load {load:.2f} before; tuned: {', '.join(settings.TUNED)}"
    return Figures("\n".join((f"{rounds} rounds, {machine}", *(f"{scene}: {WHAT[scene]}" for scene in scenes))), PAIRS)


async def measure(scenes: Sequence[str], rounds: int, figures: Figures) -> None:
    """Add the moments of each round of each scene."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    async with running_cluster(
        find_binaries(), programs=RUNTIME.build(), images=archives.build(), folder=folder
    ) as cluster:
        for _ in range(rounds):
            for scene in scenes:
                moments = await SCENES[scene](cluster)
                figures.add(scene, {f"{name}_s": moment_s for name, moment_s in moments.items()})
                print(f"{scene}: {moments}", file=sys.stderr)


def main() -> int:
    """Measure and print; outside a capsule, prepare everything and begin again inside one."""
    parser = flags(__doc__, rounds=1)
    parser.add_argument("--scene", action="append", choices=tuple(SCENES), help="default: all")
    options = parser.parse_args()
    if not capsule.inside():
        return prepare.main() or capsule.run((sys.executable, "-m", __spec__.name, *sys.argv[1:]))
    scenes = options.scene or tuple(SCENES)
    figures = figures_of(scenes, options.rounds, os.getloadavg()[0])
    asyncio.run(measure(scenes, options.rounds, figures))
    figures.show(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
