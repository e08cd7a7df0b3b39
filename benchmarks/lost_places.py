"""Groups and Jobs without spares that lose places of their Pods, for benchmarks.places; each returns its moments."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from inplace.common.kube.resources import JOBS, PODS, KubeObject
from inplace.common.protocol.lease import LENGTH_S_MIN
from testbed.node import archives, manifests, registry, settings
from testbed.node.cluster import Cluster, until_given_up
from testbed.node.evidence import lives
from testbed.node.group import Group, running_group
from testbed.waiting import until

MODE: Final = "process"  # what the controller adds by default
DRAINED: Final = 4
"""Pods of one Job that are deleted at once, of twice as many."""

REPLACED_S_MAX: Final = 180.0
"""For what waits for the Job controller: a plain Job that loses four Pods waits for 80 s."""

RESTARTS_MAX: Final = 1000
Moments = dict[str, float]
MomentsOf = Callable[[Group, set[str], int, float], Awaitable[Moments]]
"""Of a group: the uids of its Pods before, how many it lost, and when."""


async def drained(cluster: Cluster) -> Moments:
    """Delete four of eight Pods at once, as a drain does."""
    async with running_group(cluster, MODE, pods=2 * DRAINED, restarts_max=RESTARTS_MAX) as group:
        await group.until_ready()
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
            await group.until_ready()
            before, victim = group.uids(), group.live_on(second)[0]
            await cluster.cordon(second, on=True)
            group.expect_lost([victim])
            died_s = await group.kill(group.pods().index(victim), "worker")
            return await _moments(group, before, 1, died_s)
    finally:
        await cluster.lose(second)


async def dead_node(cluster: Cluster) -> Moments:
    """Power a node off, whose peers fail with it as collectives do; a third node is free for the replacement."""
    return await lose_node(cluster, peers_fail=True)


async def dead_node_pull(cluster: Cluster) -> Moments:
    """Do the same where the third node has to pull the worker's image of 1 GB."""
    with tempfile.TemporaryDirectory(prefix="registry-") as folder:
        async with registry.registry(worker_archive(), Path(folder)) as image:
            return await lose_node(cluster, peers_fail=True, image=image)


def worker_archive() -> Path:
    """Return the archive of the worker's image."""
    return next(path for path in archives.build() if path.name == "worker.tar")


async def dead_node_hangs(cluster: Cluster) -> Moments:
    """Power a node off, whose peers train on as if nothing had happened: nothing tells that the epoch is over."""
    return await lose_node(cluster, peers_fail=False)


async def lose_node(
    cluster: Cluster, *, peers_fail: bool, image: str = "", spares: int = 0, moments_of: MomentsOf | None = None
) -> Moments:
    """Run a group with leases, a Pod a node, and power a node off whose Pod trains; from Kubernetes' verdict."""

    def change(jobset: KubeObject) -> None:
        if image:
            manifests.run_image(jobset, image)
        manifests.fence_after(jobset, LENGTH_S_MIN)
        manifests.fill_nodes(jobset, os.cpu_count() or 1)

    more = [await cluster.add_node() for _ in range(2)]
    try:
        async with running_group(
            cluster, MODE, pods=2, spares=spares, restarts_max=RESTARTS_MAX, change=change
        ) as group:
            await group.until_ready(spares)
            training = {life.uid for life in lives(group.evidence)}
            members = [pod for pod in group.live() if pod["metadata"]["uid"] in training]
            ghost = next(pod for pod in members if group.node_of(pod) in more)
            dying, before = group.node_of(ghost), group.uids()
            group.expect_lost([ghost])
            died_s = time.monotonic()
            await dying.power_off()
            for member in members if peers_fail else ():
                if member is not ghost:
                    group.order(member, "exit 3")
            verdict_s = await until_given_up(cluster, dying)
            moments = await (moments_of or _moments)(group, before, 1, verdict_s) | {"died": verdict_s - died_s}
            await cluster.client.delete(PODS, group.namespace, ghost["metadata"]["name"], grace_period_s=0)
            return moments
    finally:
        for node in more:
            await cluster.lose(node)


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
    judge(group)
    first_s: dict[str, float] = {}
    for version in group.history.versions:
        if version.kind == "Pod" and version.uid not in before:
            first_s.setdefault(version.uid, version.seen_s)
    born_s = [life.born_s for life in lives(group.evidence) if life.epoch == 2]
    return since(began_s, {"created": max(first_s.values()), "all_new": max(born_s)})


def judge(group: Group) -> None:
    """End the benchmark if a restart broke a rule."""
    if broken := group.broken():
        raise SystemExit("expected restarts that break no rule, saw:\n" + "\n".join(broken))


def since(began_s: float, at_s: Mapping[str, float]) -> Moments:
    """Return moments of the monotonic clock in seconds after another one."""
    return {name: moment_s - began_s for name, moment_s in at_s.items()}
