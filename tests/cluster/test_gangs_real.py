"""spec.scheduling on a real control plane: the scheduler places a gang whole, restarts keep it, a new Pod joins it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import pytest

from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import EVENTS, JOBSETS, POD_GROUPS, PODS, SCHEDULING_WORKLOADS, KubeObject
from inplace.common.wire import names as wire
from testbed.binaries import Binaries
from testbed.clients.played_nodes import PlayedNodes, played_nodes
from testbed.control_plane import ControlPlane
from testbed.go_programs import kubernetes_version
from testbed.kube_client import kube_client
from testbed.waiting import eventually, until
from tests.cluster.features.served import serving
from tests.cluster.test_crd_real import install
from tests.controller.crew import Crew
from tests.controller.manifests import changed, jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZE: Final = 8
CPUS: Final = "spec.replicatedJobs.0.template.spec.template.spec.containers.0.resources"
SERVES: Final = f"--runtime-config={wire.SCHEDULING_API}=true"


def gang() -> KubeObject:
    """Return a JobSet whose eight Pods are a gang; a node has room for one."""
    manifest = jobset(jobs=[replicated_job(pods=SIZE)], scheduling={"schedulingPolicy": {"gang": {}}})
    return changed(manifest, CPUS, {"requests": {"cpu": "600"}})


@asynccontextmanager
async def world(binaries: Binaries, **options: Any) -> AsyncIterator[tuple[KubeClient, PlayedNodes, Crew]]:
    """Run a control plane with seven nodes and the controller; give a JobSet that asks for a gang."""
    async with AsyncExitStack() as ending:
        plane = await ending.enter_async_context(ControlPlane(binaries, with_controllers=True, **options))
        admin = await ending.enter_async_context(kube_client(plane.kubeconfig))
        api = await ending.enter_async_context(plane.client())
        await install(api)
        nodes = await ending.enter_async_context(played_nodes(plane))
        for number in range(SIZE - 1):
            await nodes.add(f"node-{number}")
        await ending.enter_async_context(serving(plane, admin))
        namespace = await plane.create_namespace("gang")
        await admin.create(JOBSETS, namespace, changed(gang(), "metadata.namespace", namespace))
        yield admin, nodes, Crew(admin, namespace, "train")


async def pods(crew: Crew) -> list[KubeObject]:
    """Return the JobSet's Pods that are not over."""
    found: list[KubeObject] = (await crew.client.list(PODS, crew.namespace))["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] != "Failed"]


async def running(crew: Crew) -> int:
    """Return how many Pods run."""
    return sum(pod["status"]["phase"] == "Running" for pod in await pods(crew))


async def bound(crew: Crew) -> int:
    """Return how many Pods have a node."""
    return sum("nodeName" in pod["spec"] for pod in await pods(crew))


async def stored(crew: Crew) -> dict[str, str]:
    """Return the UIDs of the Workload and the PodGroup, by kind."""
    found = {}
    for resource in (SCHEDULING_WORKLOADS, POD_GROUPS):
        for one in (await crew.client.list(resource, crew.namespace))["items"]:
            assert resource.kind not in found, f"expected one {resource.kind}, saw another"
            found[resource.kind] = one["metadata"]["uid"]
    return found


async def refusal(crew: Crew) -> str:
    """Return what the scheduler says of the whole group; "" before it has tried."""
    (group,) = (await crew.client.list(POD_GROUPS, crew.namespace))["items"]
    told = {one["type"]: one for one in group.get("status", {}).get("conditions") or ()}
    one = told.get("PodGroupInitiallyScheduled") or {}
    return str(one.get("reason", "")) if one.get("status") == "False" else ""


async def announce(crew: Crew, epoch: int) -> None:
    """Let every Pod announce an epoch, and wait until it is synced."""
    crew.pods = {
        (pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], number): pod["metadata"]["name"]
        for number, pod in enumerate(await pods(crew))
    }
    await crew.announce_all(epoch)
    await eventually(lambda: synced(crew), epoch)


async def synced(crew: Crew) -> int:
    """Return S."""
    return (await crew.epochs())[0]


@pytest.mark.skipif(kubernetes_version() < "v1.37", reason="scheduling.k8s.io/v1beta1 came with Kubernetes 1.37")
async def test_a_gang_lives_through_restart_replacement_and_suspension(binaries: Binaries) -> None:
    """Seven places bind none of eight Pods, an eighth all; a restart keeps gang and Pods, and a replaced Pod joins."""
    options = {"feature_gates": "GenericWorkload=true", "apiserver_flags": (SERVES,)}
    async with world(binaries, **options) as (admin, nodes, crew):
        await eventually(lambda: count(crew), SIZE)
        await until(lambda: refusal(crew), "the scheduler has tried the gang", also=lambda: bound(crew))
        assert await bound(crew) == 0
        await nodes.add("node-7")
        await eventually(lambda: running(crew), SIZE)

        objects, names = await stored(crew), {pod["metadata"]["uid"] for pod in await pods(crew)}
        assert set(objects) == {"Workload", "PodGroup"}
        await announce(crew, 1)
        await announce(crew, 2)
        assert {pod["metadata"]["uid"] for pod in await pods(crew)} == names
        assert await stored(crew) == objects

        lost, *_ = await pods(crew)
        await admin.delete(PODS, crew.namespace, lost["metadata"]["name"], grace_period_s=0)
        await eventually(lambda: replaced(crew, names), 1)
        assert len({pod["spec"]["schedulingGroup"]["podGroupName"] for pod in await pods(crew)}) == 1
        assert await stored(crew) == objects
        await announce(crew, 3)

        await admin.patch(JOBSETS, crew.namespace, crew.name, {"spec": {"suspend": True}})
        await eventually(lambda: stored(crew), {})
        await eventually(lambda: count(crew), 0)
        await admin.patch(JOBSETS, crew.namespace, crew.name, {"spec": {"suspend": False}})
        await eventually(lambda: running(crew), SIZE)
        assert set((await stored(crew)).values()).isdisjoint(objects.values())


async def test_a_server_without_the_gate_is_told_of_once(binaries: Binaries) -> None:
    """With the gate off there is one Event, no problem and no gang: seven of eight Pods run."""
    async with world(binaries) as (admin, _, crew):
        await eventually(lambda: running(crew), SIZE - 1)
        await eventually(lambda: count(crew), SIZE)
        (event,) = await told(admin, crew)
        assert "scheduled one by one" in event["note"]
        assert "series" not in event
        assert await crew.find_condition("SpecProblem") is None
        assert not any("schedulingGroup" in pod["spec"] for pod in await pods(crew))


async def told(admin: KubeClient, crew: Crew) -> list[KubeObject]:
    """Return the Events that say that there is no gang."""
    found = (await admin.list(EVENTS, crew.namespace))["items"]
    return [event for event in found if event["reason"] == "GangUnavailable"]


async def count(crew: Crew) -> int:
    """Return how many Pods there are."""
    return len(await pods(crew))


async def replaced(crew: Crew, before: set[str]) -> int:
    """Return how many Pods run that were not there before; 0 unless all run."""
    new = [pod for pod in await pods(crew) if pod["metadata"]["uid"] not in before]
    return len(new) if await running(crew) == SIZE else 0
