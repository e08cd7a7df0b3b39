"""Groups with spares that lose places of members, for benchmarks.places: they go on before a new Pod is there."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Final

from benchmarks.lost_places import DRAINED, MODE, RESTARTS_MAX, Moments, judge, lose_node, since
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from testbed.node import manifests
from testbed.node.cluster import Cluster
from testbed.node.evidence import WorkerRecord, lives
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.waiting import until

MEMBERS: Final = 2 * DRAINED
SAVE_S: Final = 10


async def member(cluster: Cluster) -> Moments:
    """Delete one of eight members; there is one spare."""
    return await _deleted(cluster, 1)


async def spared_drained(cluster: Cluster) -> Moments:
    """Delete four of eight members at once, as a drain does; there are four spares."""
    return await _deleted(cluster, DRAINED)


async def _deleted(cluster: Cluster, lost: int) -> Moments:
    """Delete the members of the lowest ranks; there are as many spares."""
    async with running_group(cluster, MODE, pods=MEMBERS, spares=lost, restarts_max=RESTARTS_MAX) as group:
        await group.until_ready(spares=lost)
        before, members = group.uids(), _members(group)
        began_s = time.monotonic()
        await asyncio.gather(*(group.delete(pod) for pod in members[:lost]))
        return await spared_moments(group, before, lost, began_s)


async def spared_dead_node(cluster: Cluster) -> Moments:
    """Power a node off, whose peers fail with it; the spare is on a third node."""
    return await lose_node(cluster, peers_fail=True, spares=1, moments_of=spared_moments)


async def moved(cluster: Cluster) -> Moments:
    """Cordon the node of rank 0; its workers save first, and a spare on another node plays the rank."""
    return await _moved(cluster, members=2, count=1)


async def moved_together(cluster: Cluster) -> Moments:
    """Cordon four of twelve nodes together, and drain them once their ranks have moved: that is one restart."""
    return await _moved(cluster, members=MEMBERS, count=DRAINED)


async def _moved(cluster: Cluster, members: int, count: int) -> Moments:
    """Run a Pod a node, and cordon those of the lowest ranks; there are as many spares."""

    def change(jobset: KubeObject) -> None:
        jobset["metadata"].setdefault("annotations", {})[wire.RESTART] = f"depth=process,save-within={SAVE_S}"
        manifests.fill_nodes(jobset, os.cpu_count() or 1)

    more = [await cluster.add_node() for _ in range(members + count - 1)]
    nodes = [node for node in cluster.nodes if node.is_on]
    try:
        async with running_group(
            cluster, MODE, pods=members, spares=count, restarts_max=RESTARTS_MAX, change=change
        ) as group:
            await group.until_ready(spares=count)
            before, leaving = group.uids(), _members(group)[:count]
            began_s = time.monotonic()
            await asyncio.gather(*(cluster.cordon(group.node_of(pod), on=True) for pod in leaving))
            moments = await spared_moments(group, before, count, began_s)
            if unsaved := [life for life in _workers(group, 1) if life.ended != "saved"]:
                raise SystemExit(f"expected that all workers save, saw {unsaved}")
            await asyncio.gather(*(group.delete(pod) for pod in leaving))
            await _until_left(group, leaving)
            if group.epochs() != (2, 1):
                raise SystemExit(f"expected one restart, saw S, D = {group.epochs()}")
            return moments
    finally:
        for node in nodes:
            await cluster.cordon(node, on=False)
        for node in more:
            await cluster.lose(node)


async def _until_left(group: Group, leaving: Sequence[KubeObject]) -> None:
    """Return when these Pods are gone."""
    uids = {pod["metadata"]["uid"] for pod in leaving}
    await until(lambda: not uids & group.uids(), "the drained Pods are gone", timeout_s=SETTLED_S_MAX, also=group.state)


async def spared_moments(group: Group, before: set[str], lost: int, began_s: float) -> Moments:
    """Wait until the members run their next epoch, in Pods that were there before; return when what happened.

    `gap` is for how long not all members trained.
    """
    await group.until_runs(2)
    judge(group)
    old, new = group.ranks(1), group.ranks(2)
    exchanged = [rank for rank, uid in new.items() if old[rank] != uid]
    if len(exchanged) != lost or not set(new.values()) <= before:
        raise SystemExit(f"expected that {lost} spares play {lost} ranks, saw {old} and then {new}")
    new_s = max(life.born_s for life in _workers(group, 2))
    gap_s = new_s - min(life.alive_s for life in _workers(group, 1))
    return since(began_s, {"all_new": new_s}) | {"gap": gap_s}


def _workers(group: Group, epoch: int) -> Sequence[WorkerRecord]:
    return [life for life in lives(group.evidence) if life.epoch == epoch]


def _members(group: Group) -> list[KubeObject]:
    """Return the Pods of the first epoch's members, by rank."""
    pods = {pod["metadata"]["uid"]: pod for pod in group.live()}
    return [pods[uid] for _, uid in sorted(group.ranks(1).items())]
