"""Faults of workers, Pods, kubelets and nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from random import Random

from inplace.common.kube.client import MERGE_PATCH
from inplace.common.kube.resources import NODES, PODS, KubeObject
from inplace.simulator.campaign.containers import Training
from inplace.simulator.campaign.disturbance import DisturbanceKind
from inplace.simulator.campaign.fault import FaultSite, accepted, fault
from inplace.simulator.campaign.scenario import NAMESPACE
from inplace.simulator.campaign.world import World
from inplace.simulator.cluster.node_loss import give_up

NODE = FaultSite.NODE
GRACE_S = 15  # longer than a restart takes
CUT_OFF_S = 4.0  # twice as long as containers that obey SIGTERM take to end
FINALIZER = "campaign.inplace.dev/stuck"


@fault("worker-oom", NODE, "a worker is killed by the kernel (137)", codes=(137,))
@fault("worker-exit", NODE, "a worker fails with an exit code of its own", codes=(1, 2, 77, 255))
async def _worker_ends(world: World, rng: Random, name: str, codes: Sequence[int]) -> None:
    _end(world, name, _one_worker(world, rng), rng.choice(codes))


@fault("workers-die-together", NODE, "several workers fail within a tenth of a second, as peers of a dead worker do")
async def _workers_die(world: World, rng: Random, name: str) -> None:
    workers = list(world.machine.workers.values())
    for training in rng.sample(workers, rng.randint(0, len(workers))):
        _end(world, name, training, 1)
        await world.clock.sleep(rng.uniform(0.0, 0.1))


@fault("worker-completes", NODE, "a worker ends with success, and then another one fails")
async def _worker_completes(world: World, rng: Random, name: str) -> None:
    workers = list(world.machine.workers.values())
    if len(workers) > 1:
        first, second = rng.sample(workers, 2)
        _end(world, name, first, 0)
        await world.clock.sleep(rng.uniform(0.0, 1.0))
        _end(world, name, second, 1)


def _one_worker(world: World, rng: Random) -> Training | None:
    workers = list(world.machine.workers.values())
    return rng.choice(workers) if workers else None


def _end(world: World, name: str, training: Training | None, code: int) -> None:
    if training is not None and not training.ended.done():
        world.note_fault(name, f"{training.pod['metadata']['name']} with {code}")
        world.judge.note_cause()
        training.end(code)


@fault("pod-evicted", NODE, "a Pod is evicted, and its Job creates another")
async def _evicted(world: World, rng: Random, name: str) -> None:
    if (pod := _one_pod(world, rng)) is not None:
        await _ask(world, name, pod, evict(world, pod["metadata"]["name"]))


async def evict(world: World, pod: str) -> None:
    """Evict a Pod, as `kubectl drain` does."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    await world.client("user").raw("POST", PODS.path(NAMESPACE, pod, subresource="eviction"), body=body)


@fault("pod-deleted", NODE, "a user deletes a Pod")
async def _deleted(world: World, rng: Random, name: str) -> None:
    if (pod := _one_pod(world, rng)) is not None:
        await _ask(world, name, pod, world.client("user").delete(PODS, NAMESPACE, pod["metadata"]["name"]))


@fault("pod-slow-to-die", NODE, "a user deletes a Pod whose containers ignore SIGTERM until their grace period ends")
async def _slow_to_die(world: World, rng: Random, name: str) -> None:
    if (pod := _one_pod(world, rng)) is not None:
        world.machine.deaf.add(pod["metadata"]["uid"])
        deletion = world.client("user").delete(PODS, NAMESPACE, pod["metadata"]["name"], grace_period_s=GRACE_S)
        await _ask(world, name, pod, deletion)


@fault("pod-force-deleted", NODE, "a Pod is deleted without grace period: its object goes before its containers")
async def _force_deleted(world: World, rng: Random, name: str) -> None:
    if (pod := _one_pod(world, rng)) is not None:
        if rng.random() < 0.5 and not await _left_behind(world, name, pod):
            return
        deletion = world.client("user").delete(PODS, NAMESPACE, pod["metadata"]["name"], grace_period_s=0)
        await _ask(world, name, pod, deletion)


async def _left_behind(world: World, name: str, pod: KubeObject) -> bool:
    """Delete a Pod while its kubelet cannot write; return whether the containers have ended."""
    kubelet, uid = f"kubelet/{pod['spec'].get('nodeName', '')}", pod["metadata"]["uid"]
    world.network.disturb(name, DisturbanceKind.REFUSE, CUT_OFF_S, lambda who: who == kubelet)
    await _ask(world, name, pod, world.client("user").delete(PODS, NAMESPACE, pod["metadata"]["name"]))
    await world.clock.sleep(CUT_OFF_S / 2)
    return uid not in world.judge.running and uid not in world.machine.agents


@fault("pod-stuck-terminating", NODE, "a finalizer keeps a deleted Pod's object for seconds")
async def _stuck(world: World, rng: Random, name: str) -> None:
    if (pod := _one_pod(world, rng)) is None:
        return
    meta = pod["metadata"]
    if not await _hold(world, meta["name"], [FINALIZER]):
        return

    async def let_go() -> None:
        await _hold(world, meta["name"], None)

    world.at_calm.append(let_go)
    await _ask(world, name, pod, world.client("user").delete(PODS, NAMESPACE, meta["name"]))
    await world.clock.sleep(rng.uniform(1.0, 10.0))
    await let_go()


async def _hold(world: World, pod: str, finalizers: list[str] | None) -> bool:
    body = {"metadata": {"finalizers": finalizers}}
    return await accepted(world.client("user").patch(PODS, NAMESPACE, pod, body, kind=MERGE_PATCH))


async def _ask(world: World, name: str, pod: KubeObject, request: Awaitable[object]) -> None:
    if await accepted(request):
        world.judge.note_cause_of(pod)
        world.note_fault(name, pod["metadata"]["name"])


def _one_pod(world: World, rng: Random) -> KubeObject | None:
    return rng.choice(world.pods) if world.pods else None


@fault("node-death-and-return", NODE, "a node dies, its Pods are marked Failed, and it comes back", returns=True)
@fault(
    "node-death", NODE, "a node dies with all its containers, and comes back empty after the last fault", returns=False
)
async def _die(world: World, rng: Random, name: str, *, returns: bool) -> None:
    for_s = rng.uniform(0.5, 12.0) if returns else 1e9
    if not world.kubelets:
        return
    node = rng.choice(sorted(world.kubelets))
    world.note_fault(name, node)
    world.remove_node(node)
    giving_up = give_up(world.client("node-lifecycle"), world.clock, node, world.scenario.timings.node_lost_s)
    given_up = world.group.create_task(giving_up)
    calm = asyncio.Event()
    world.at_calm.append(calm.set)
    try:
        async with world.clock.timeout(for_s):
            await calm.wait()
    except TimeoutError:
        pass
    await given_up  # AFTER the Pods are given up: this kubelet cannot take back Pods that it lost
    await world.add_node(node)
    await world.client("user").patch(NODES, None, node, {"spec": {"taints": None}}, kind=MERGE_PATCH)


@fault("node-cordoned", NODE, "a node is cordoned for seconds, and a worker fails on it")
async def _cordoned(world: World, rng: Random, name: str) -> None:
    if (training := _one_worker(world, rng)) is None:
        return

    async def cordon(on: bool) -> None:
        node, body = training.pod["spec"]["nodeName"], {"spec": {"unschedulable": on or None}}
        await accepted(world.client("user").patch(NODES, None, node, body, kind=MERGE_PATCH))

    await cordon(True)
    world.at_calm.append(lambda: cordon(False))
    _end(world, name, training, 1)
    await world.clock.sleep(rng.uniform(0.5, 12.0))
    await cordon(False)


@fault("node-drained", NODE, "a node is cordoned, its Pods are evicted a moment later, and it is opened again")
async def _drained(world: World, rng: Random, name: str) -> None:
    nodes = sorted({pod["spec"]["nodeName"] for pod in world.pods if "nodeName" in pod["spec"]})
    if not nodes:
        return
    node = rng.choice(nodes)

    async def cordon(on: bool) -> None:
        body = {"spec": {"unschedulable": on or None}}
        await accepted(world.client("user").patch(NODES, None, node, body, kind=MERGE_PATCH))

    await cordon(True)
    world.at_calm.append(lambda: cordon(False))
    await world.clock.sleep(rng.choice((0.0, rng.uniform(0.0, 4.0))))
    for pod in [pod for pod in world.pods if pod["spec"].get("nodeName") == node]:
        if not world.is_calm:
            await _ask(world, name, pod, evict(world, pod["metadata"]["name"]))
    await world.clock.sleep(rng.uniform(0.5, 12.0))
    await cordon(False)


@fault("nodes-full", NODE, "a Pod is deleted, and for seconds no node has room for another")
async def _full(world: World, rng: Random, name: str) -> None:
    if (pod := _one_pod(world, rng)) is None:
        return

    async def room_again() -> None:
        await set_room(world, world.scenario.pods_per_node + 1)

    await set_room(world, 0)
    world.at_calm.append(room_again)
    await _ask(world, name, pod, world.client("user").delete(PODS, NAMESPACE, pod["metadata"]["name"]))
    await world.clock.sleep(rng.uniform(1.0, 15.0))
    if not world.is_calm:  # or it would give room within the checks that come then
        await room_again()


async def set_room(world: World, pods: int) -> None:
    """Let so many Pods fit on each node, without closing it to those that are there."""
    body = {"status": {"allocatable": {"pods": str(pods)}}}
    for _, node in list(world.servers[0].store.collection(("", "nodes")).objects):
        await accepted(world.client("user").patch(NODES, None, node, body, kind=MERGE_PATCH, subresource="status"))


@fault("kubelet-pause", NODE, "a kubelet pauses for seconds while its containers run on")
async def _kubelet_pause(world: World, rng: Random, name: str) -> None:
    if not world.kubelet_processes:
        return
    node = rng.choice(sorted(world.kubelet_processes))
    process = world.kubelet_processes[node]
    world.note_fault(name, node)
    process.pause()
    world.at_calm.append(process.resume)
    await world.clock.sleep(rng.uniform(0.5, 8.0))
    process.resume()


@fault("term-ignored", NODE, "the containers of a Pod ignore SIGTERM")
async def _term_ignored(world: World, rng: Random, name: str) -> None:
    if (pod := _one_pod(world, rng)) is not None:
        world.machine.deaf.add(pod["metadata"]["uid"])
        world.note_fault(name, pod["metadata"]["name"])


@fault("disk-full", NODE, "no Pod can store its epoch on its disk")
async def _disk_full(world: World, rng: Random, name: str) -> None:  # noqa: ARG001
    world.machine.full_disks = True
    for disk in world.machine.disks.values():
        disk.full = True
    world.note_fault(name, "all")
