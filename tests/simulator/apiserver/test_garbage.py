"""A garbage collector that is behind deletes one generation after the other."""

from __future__ import annotations

import asyncio
from random import Random

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.resources import CONFIG_MAPS, KubeObject
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, InMemoryTransport
from inplace.simulator.cluster import virtual_time

DELAY_S = 6.0
NAMES = ("grandparent", "parent", "child")


def test_each_generation_follows_one_delay_after_its_owner() -> None:
    """While the collector is behind, an owner's name is free again before the last objects below it are deleted."""

    async def main() -> list[set[str]]:
        server = ApiServer(clock=LoopClock(1.8e9), rng=Random(1), options=ApiServerOptions(gc_delay_s=DELAY_S))
        server.load([])
        client = KubeClient(InMemoryTransport(server, user="user"), user_agent="user", field_manager="user")
        left: list[set[str]] = []
        async with asyncio.TaskGroup() as group:
            collecting = group.create_task(server.run())
            owner: KubeObject | None = None
            for name in NAMES:
                owner = await client.create(CONFIG_MAPS, "default", _config_map(name, owner))
            await client.delete(CONFIG_MAPS, "default", NAMES[0], propagation="Background")
            await asyncio.sleep(DELAY_S / 2)
            for _ in NAMES:
                left.append({name for name in NAMES if server.store.get(("", "configmaps"), "default", name)})
                await asyncio.sleep(DELAY_S)
            collecting.cancel()
        return left

    assert virtual_time.run(main()) == [{"parent", "child"}, {"child"}, set()]


def _config_map(name: str, owner: KubeObject | None) -> KubeObject:
    obj: KubeObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    if owner is not None:
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"]}
        obj["metadata"]["ownerReferences"] = [reference | {"uid": owner["metadata"]["uid"]}]
    return obj
