"""A Job leaves its domain under the real scheduler and Job controller; beside Kueue, which has no part in it."""

from __future__ import annotations

from typing import Final

import pytest

from inplace.common.wire import names as wire
from testbed.clients.played_nodes import PlayedPod
from testbed.waiting import until
from tests.cluster.clients.manifests import jobset, replicated_job
from tests.cluster.clients.queue import Object, Queue
from tests.cluster.clients.world import World
from tests.controller.manifests import changed

pytestmark = pytest.mark.asyncio(loop_scope="session")

POOL: Final = "pool"
JOB: Final = "train-workers-0"
POD_SPEC: Final = "template.spec.template.spec"


async def with_pools(world: World, queue: Queue) -> Object:
    """Make two pools of one node each, for this queue's Pods; return a JobSet of one Job of two Pods that takes one."""
    taint = {"key": queue.namespace, "effect": "NoSchedule"}
    for name in ("x", "y"):
        node = f"{queue.namespace}-{name}"
        await world.nodes.add(node, pool=node)
        await world.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
    job = changed(replicated_job(), f"{POD_SPEC}.tolerations", [taint | {"operator": "Exists"}])
    manifest = jobset(job)
    manifest["metadata"]["annotations"] = {wire.EXCLUSIVE_TOPOLOGY: POOL, wire.NODES: "1"}
    return manifest


def nodes_of(pods: list[PlayedPod]) -> set[str]:
    """Return the nodes on which Pods run."""
    return {pod.stored["spec"]["nodeName"] for pod in pods}


async def test_a_pool_without_another_node_is_left(world: World, queue: Queue) -> None:
    """The replacement comes back to the bad node, as nothing else is in the pool: the Job goes to the other pool."""
    await queue.in_place(await with_pools(world, queue))
    pods = await queue.lifted(1)
    (bad,) = nodes_of(pods)
    before = (await queue.jobs())[JOB]["metadata"]["uid"]
    pods[1].restart_containers()

    async def is_to_end() -> bool:
        pod = (await queue.pods())[pods[1].stored["metadata"]["name"]]
        return "activeDeadlineSeconds" in pod["spec"]

    await until(is_to_end, "the Pod whose worker failed is to end")
    await world.nodes.fail(pods[1])
    pods = await queue.lifted(2)
    (node,) = nodes_of(pods)
    assert node != bad
    assert (await queue.jobs())[JOB]["metadata"]["uid"] != before
    status = (await queue.jobset())["status"]
    (counters,) = status["replicatedJobsStatus"]
    assert (counters["jobRestarts"], counters["jobRestartsCountTowardsMax"]) == ([1], [1])
    assert (status[wire.EXEMPT_EPOCHS], status[wire.LAST_GROUP_RESTART]["escalationStep"]) == (1, "LeaveDomain")


async def test_a_pool_that_is_gone_is_left_without_a_recreation(world: World, queue: Queue) -> None:
    """All Pods of the Job are gone, so nothing holds their replacements in the pool."""
    await queue.in_place(await with_pools(world, queue))
    pods = await queue.lifted(1)
    (gone,) = nodes_of(pods)
    before = (await queue.jobs())[JOB]["metadata"]["uid"]
    await world.api.patch(f"/api/v1/nodes/{gone}", {"spec": {"unschedulable": True}})
    for pod in pods:
        await world.api.delete(pod.path)
    pods = await queue.lifted(2)
    (node,) = nodes_of(pods)
    assert node != gone
    assert (await queue.jobs())[JOB]["metadata"]["uid"] == before
