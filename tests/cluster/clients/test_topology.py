"""Kueue's Topology Aware Scheduling places a group's Pods, by gates, on the Nodes that its Workload names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import pytest_asyncio

from inplace.common.kube.resources import JOBSETS
from inplace.common.wire import names as wire
from testbed.clients.played_nodes import PlayedPod
from testbed.kube_client import kube_client
from testbed.waiting import until
from tests.cluster.clients.manifests import jobset, replicated_job
from tests.cluster.clients.queue import KUEUE, Object, Queue, condition, flavor, is_true, open_queue
from tests.cluster.clients.world import RESERVED, World
from tests.controller.queued import find_bad

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTNAME: Final = "kubernetes.io/hostname"
TOPOLOGY: Final = {
    "apiVersion": KUEUE,
    "kind": "Topology",
    "metadata": {"name": "racks"},
    "spec": {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": HOSTNAME}]},
}
PLACED: Final = flavor("placed", nodeLabels={"capacity": RESERVED}, topologyName="racks")
ANYWHERE: Final = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
ONE_RACK: Final = {"kueue.x-k8s.io/podset-required-topology": "rack"}
GATE: Final = "kueue.x-k8s.io/topology"


@pytest_asyncio.fixture(loop_scope="session")
async def queue(world: World) -> AsyncIterator[Queue]:
    """Give a queue whose flavor has a topology of racks and hosts."""
    for document in (TOPOLOGY, PLACED):
        await world.applier.apply_one(document)
    opened = await open_queue(world, {"placed": 4000})
    yield opened
    for name in [each["metadata"]["name"] for each in (await world.api.get(opened.jobsets))["items"]]:
        await opened.delete(name)
    await until(lambda: _holds_nothing(opened), "no Pod and no Workload: the next scenario needs the hosts")
    await world.api.delete(f"/api/v1/namespaces/{opened.namespace}")


def in_one_rack(cpu: str) -> Object:
    """Return a JobSet of two Pods that must be in one rack."""
    manifest = jobset(replicated_job(cpu=cpu))
    manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = {"annotations": ONE_RACK}
    return manifest


def hosts_of(workload: Object) -> dict[str, int]:
    """Return how many Pods a Workload assigns to each host."""
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    return {
        host: int(count)
        for part in assigned["topologyAssignment"]["slices"]
        for host, count in zip(_values(part), _counts(part), strict=True)
    }


def _values(part: Object) -> list[str]:
    level = part["valuesPerLevel"][-1]
    if "universal" in level:
        return [level["universal"]] * part["domainCount"]
    found = level["individual"]
    return [f"{found.get('prefix', '')}{root}{found.get('suffix', '')}" for root in found["roots"]]


def _counts(part: Object) -> list[int]:
    counts = part["podCounts"]
    return [counts["universal"]] * part["domainCount"] if "universal" in counts else list(counts["individual"])


async def placed(queue: Queue) -> dict[str, str]:
    """Return the Node of each Pod by completion index."""
    return {
        pod.stored["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod.stored["spec"]["nodeName"]
        for pod in queue.played()
        if not pod.is_late
    }


async def test_gates_and_assignment(queue: Queue) -> None:
    """Pods are made with Kueue's gate, and each runs on a host that the Workload's assignment names, in one rack."""
    await queue.in_place(in_one_rack("600"))  # one fits on a host
    await queue.lifted(1)
    template = (await queue.jobs())["train-workers-0"]["spec"]["template"]["spec"]
    assert {"name": GATE} in template["schedulingGates"]
    hosts, found = hosts_of(await queue.workload()), await placed(queue)
    assert hosts == dict.fromkeys(found.values(), 1)
    assert len({host.rpartition("-")[0] for host in hosts}) == 1
    assert [pod["spec"].get("schedulingGates") for pod in (await queue.pods()).values()] == [None, None]


async def test_a_group_restart(queue: Queue) -> None:
    """A group restart in place changes neither Pods nor assignment."""
    await queue.in_place(in_one_rack("600"))
    pods = await queue.lifted(1)
    before, hosts = await placed(queue), hosts_of(await queue.workload())
    pods[0].restart_containers()
    await queue.lifted(2)
    assert (await placed(queue), hosts_of(await queue.workload())) == (before, hosts)
    assert await queue.workloads_so_far() == 1


async def test_a_replaced_pod(queue: Queue) -> None:
    """A Pod that is replaced gets Kueue's gate, and then the host that the assignment has for its index."""
    await queue.in_place(in_one_rack("600"))
    _, gone = await queue.lifted(1)
    before = await placed(queue)
    await queue.world.api.delete(gone.path)
    pods = await queue.lifted(2)
    assert gone not in pods
    assert await placed(queue) == before
    assert condition(await queue.workload(), "Evicted") == {}


async def test_a_pod_leaves_its_bad_node(queue: Queue) -> None:
    """The controller taints it, Kueue pins the replacement to another host, and the taint goes with the JobSet."""
    manifest = in_one_rack("600")
    manifest["metadata"]["annotations"] = {wire.NODES: "1"}
    manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = {"annotations": ANYWHERE}
    await queue.in_place(manifest)
    failed, other = await queue.lifted(1)
    before = await placed(queue)
    bad = failed.stored["spec"]["nodeName"]
    assert await our_taint(queue, bad) is None
    async with second_opinion(queue, bad):
        failed.restart_containers()
        assert other in await until(lambda: _has_restarted(queue), "two Pods lifted at epoch 2")
        assert failed.is_late
        after = await placed(queue)
        assert bad not in after.values()
        assert len(set(after.values()) & set(before.values())) == 1
        assert hosts_of(await queue.workload()) == dict.fromkeys(after.values(), 1)
        assert condition(await queue.workload(), "Evicted") == {}
        assert await queue.workloads_so_far() == 1
        assert await our_taint(queue, bad) == "NoSchedule"
        await queue.delete("train")
        await until(lambda: _is_untainted(queue, bad), "no taint left behind")


async def test_one_namespace_alone_moves_nothing(queue: Queue) -> None:
    """The Pod restarts on the host that Kueue chose, which is not tainted."""
    manifest = in_one_rack("600")
    manifest["metadata"]["annotations"] = {wire.NODES: "1"}
    await queue.in_place(manifest)
    failed, _ = await queue.lifted(1)
    before = await placed(queue)
    failed.restart_containers()
    await queue.lifted(2)
    assert await placed(queue) == before
    assert await our_taint(queue, failed.stored["spec"]["nodeName"]) is None


async def test_a_bad_node_without_another_host(queue: Queue) -> None:
    """Kueue takes the admission back at once, and the group starts anew where it has room: in the other rack."""
    manifest = in_one_rack("600")
    manifest["metadata"]["annotations"] = {wire.NODES: "1"}
    await queue.in_place(manifest)
    failed, _ = await queue.lifted(1)
    rack = set((await placed(queue)).values())
    async with second_opinion(queue, failed.stored["spec"]["nodeName"]):
        failed.restart_containers()
        await until(lambda: _has_restarted(queue), "two Pods lifted at epoch 2")
        assert rack.isdisjoint((await placed(queue)).values())
        assert condition(await queue.workload(), "Evicted") != {}


async def test_no_room_in_one_rack(queue: Queue) -> None:
    """A group that fits in no rack waits suspended, although the quota would suffice, and no Pod is made."""
    await queue.submit(in_one_rack("900"))
    await queue.admitted()
    second = in_one_rack("900")
    second["metadata"]["name"] = "second"
    third = in_one_rack("900")
    third["metadata"]["name"] = "third"
    await queue.submit(second)
    await queue.admitted("second")
    await queue.submit(third)

    async def waits() -> bool:
        return condition(await queue.workload("third"), "QuotaReserved").get("status") == "False"

    await until(waits, "a Workload without quota")
    assert not is_true(await queue.workload("third"), "Admitted")
    assert [name for name in await queue.pods() if name.startswith("third")] == []


@asynccontextmanager
async def second_opinion(queue: Queue, node: str) -> AsyncIterator[None]:
    """Let a JobSet of another namespace find a node bad as well: one namespace alone taints nothing."""
    namespace = await queue.world.plane.create_namespace("opinion")
    async with kube_client(queue.world.plane.kubeconfig) as client:
        await find_bad(client, namespace, node)
        yield
        await client.delete(JOBSETS, namespace, "opinion")


async def our_taint(queue: Queue, node: str) -> str | None:
    """Return the effect of the taint that our controller put on a node; None if there is none."""
    taints = (await queue.world.api.get(f"/api/v1/nodes/{node}"))["spec"].get("taints") or ()
    return next((str(one["effect"]) for one in taints if one["key"] == wire.BAD_NODE), None)


async def _has_restarted(queue: Queue) -> list[PlayedPod]:
    """Return the two Pods of epoch 2, beside one that ended; none as long as they do not run."""
    found = [pod for pod in queue.played() if not pod.is_late]
    return found if [pod.lifts[-1:] for pod in found] == [[2], [2]] else []


async def _is_untainted(queue: Queue, node: str) -> bool:
    return await our_taint(queue, node) is None


async def _holds_nothing(queue: Queue) -> bool:
    return not await queue.pods() and not await queue.workloads()
