"""
Cut a node off: its kubelet, agents and workers go on, and reach nothing.

Kubernetes hears nothing of the node, gives its verdict, and deletes its Pods as soon as they tolerate that no longer.
The fault is not in the catalogue: it takes minutes, and the seeds of a soak keep their meaning. `run_partition` draws
random groups, with and without leases, and random faults of the catalogue beside it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Final

from inplace.common.kube.client import MERGE_PATCH
from inplace.common.kube.resources import NODES
from inplace.common.wire.mode import Mode
from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.disturbance import Disturbance, DisturbanceKind
from inplace.simulator.campaign.fault import Fault, FaultSite
from inplace.simulator.campaign.network import Ending
from inplace.simulator.campaign.run import Outcome, ScheduledFault, draw_strikes, run_scenario
from inplace.simulator.campaign.scenario import draw_scenario
from inplace.simulator.campaign.world import World
from inplace.simulator.cluster.node_loss import evict

PARTITION: Final = "node-partition"
LEASE_S: Final = 15  # the shortest
MODES: Final = (Mode.SUPERVISOR, Mode.PROCESS)  # whose agents can keep a lease
VERDICT_S: Final = (1.0, 5.0, 20.0, 45.0)  # Kubernetes' own is 40 to 50 s; a lease of 15 s is over before or after it
CUT_FROM_S, CUT_TO_S = 3.0, 20.0
OUTGROWING: Final = ("resize",)  # where each Pod has a node of its own, a group that grows finds too few of them
UNTIL_S: Final = 100.0  # then the node reaches everything again, if it did not before


async def partition(world: World, node: str, verdict_s: float) -> Disturbance:
    """Cut a node off, and let Kubernetes give its verdict after so many seconds; return what cuts it off."""
    cut = cut_off(world, node)
    await give_verdict(world, node, verdict_s)
    return cut


def cut_off(world: World, node: str) -> Disturbance:
    """Let nothing of a node reach anything; return what cuts it off."""
    pods = [pod["metadata"]["name"] for pod in world.pods if pod["spec"].get("nodeName") == node]
    behind = {f"kubelet/{node}", *(f"agent/{name}" for name in pods)}
    cut = Disturbance(PARTITION, DisturbanceKind.LOSE, float("inf"), lambda client: client in behind)
    world.note_fault(PARTITION, node)
    world.judge.note_cause(2 * len(pods))  # each worker may end with its lease, and each Pod is replaced
    world.components.deafen(node)
    world.network.disturbances.append(cut)
    world.network.end_streams(Ending.SILENT, lambda stream: stream.client in behind)
    return cut


async def give_verdict(world: World, node: str, after_s: float) -> None:
    """Say after so many seconds that the node is gone, and delete its Pods when they tolerate that no longer."""
    await world.clock.sleep(after_s)
    world.trace.add("verdict", node)
    await evict(world.client("node-lifecycle"), world.clock, node)


async def heal(world: World, node: str, cut: Disturbance) -> None:
    """Let the node reach everything again."""
    with suppress(ValueError):  # when all faults end, this one does
        world.network.disturbances.remove(cut)
    world.components.undeafen(node)
    if node not in world.kubelets:
        return  # it died meanwhile; who lets it return takes its taints away
    await world.client("user").patch(NODES, None, node, {"spec": {"taints": None}}, kind=MERGE_PATCH)


async def _strike(world: World, rng: Random, _name: str) -> None:
    """Cut a node off that runs Pods; it heals after a random time, or when all faults end."""
    nodes = sorted({pod["spec"]["nodeName"] for pod in world.pods if "nodeName" in pod["spec"]} & world.kubelets.keys())
    if not nodes:
        return
    node, verdict_s, heals_s = rng.choice(nodes), rng.choice(VERDICT_S), rng.choice((10.0, 30.0, 60.0, 1e9))
    calm = asyncio.Event()
    world.at_calm.append(calm.set)
    cut = cut_off(world, node)
    verdict = world.group.create_task(give_verdict(world, node, verdict_s), name=f"verdict on {node}")
    with suppress(TimeoutError):
        async with world.clock.timeout(heals_s):
            await calm.wait()
    verdict.cancel()
    await heal(world, node, cut)


NODE_PARTITION: Final = Fault(PARTITION, FaultSite.NODE, "a node with its Pods reaches nothing, and heals", _strike)


def run_partition(seed: int, *, leased: bool) -> Outcome:
    """Run one group with a partition and other faults beside it.

    Args:
        seed: decides everything; with and without leases the group and the faults are the same.
        leased: the agents keep leases, and Kubernetes replaces their Pods at its verdict.
    """
    drawn = draw_scenario(Random(f"{seed}/scenario"))
    rng = Random(f"{seed}/partition")
    mode = rng.choice(MODES)
    lease = LEASE_S if leased else None
    scenario = replace(drawn, mode=mode, pods_per_node=1, limits=None, fence_after_s=lease, replaces_early=False)
    faults = [fault for fault in CATALOGUE.values() if fault.name not in OUTGROWING]
    others = draw_strikes(Random(f"{seed}/strikes"), faults) if rng.random() < 0.75 else ()
    moments = [(strike.at_s, strike.fault) for strike in others] + [(rng.uniform(CUT_FROM_S, CUT_TO_S), NODE_PARTITION)]
    strikes = [ScheduledFault(number, *moment) for number, moment in enumerate(sorted(moments, key=lambda one: one[0]))]
    return run_scenario(seed, scenario, tuple(strikes), until_s=UNTIL_S)
