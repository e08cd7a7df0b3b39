"""Taints on a real kube-apiserver: what the policy lets the controller do to a Node, and what a tenant makes of it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from inplace.common.jobset.node_taints import read_taint, tainting, untainting
from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import EVENTS, JOBSETS, NODES, WORKLOADS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.manifests import read_manifests
from testbed.api_client import ApiClient, UnexpectedStatus
from testbed.binaries import Binaries
from testbed.clients.apply import Applier
from testbed.control_plane import ControlPlane
from testbed.kube_client import kube_client
from testbed.waiting import eventually
from tests.cluster.features.served import serving
from tests.cluster.test_crd_real import install
from tests.controller.crew import Crew
from tests.controller.queued import HOST, KUEUE, admit, in_namespace, place
from tests.deploy.test_taints import ALLOWED, CONTROL_PLANE, OF_CONTROL_PLANE, REFUSED, RIGHT, TAINT, THEIRS, documents

pytestmark = pytest.mark.asyncio(loop_scope="session")

NODE = "/api/v1/nodes/n0"
MASTERS = (CONTROL_PLANE, "node-role.kubernetes.io/master")
NODES_OF_TEST: Final = {"victim-a": {}, "control-plane": {CONTROL_PLANE: ""}, "bad": {}}


async def refusal(client: ApiClient, patch: dict[str, Any]) -> str:
    """Return why a dry run of a merge patch is refused; "" if it is not."""
    try:
        await client.patch(NODE, patch, dryRun="All")
    except UnexpectedStatus as error:
        return str(error)
    return ""


async def test_what_the_controller_may_do_to_a_node(binaries: Binaries) -> None:
    """One taint NoSchedule, one label and one annotation; the test on the embedded server has the same cases."""
    async with ControlPlane(binaries) as plane, plane.client() as admin:
        await admin.post("/api/v1/namespaces", {"metadata": {"name": "inplace-system"}})
        metadata = {"name": "n0", "labels": {"rack": "a"}, "annotations": {"note": "x"}}
        await admin.post("/api/v1/nodes", {"metadata": metadata, "spec": {}})
        await admin.patch(NODE, {"spec": {"taints": [THEIRS]}})  # the server makes each new Node not-ready
        kinds = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        await Applier(admin).apply([one for kind in kinds for one in documents(kind)])
        kubeconfig = await plane.service_account_kubeconfig("inplace-system", "inplace-controller")
        async with plane.client(kubeconfig) as controller:

            async def is_active() -> bool:
                return "the JobSet controller may" in await refusal(controller, REFUSED["a cordon"])

            await eventually(is_active, True)
            said = {claim: await refusal(controller, patch) for claim, patch in REFUSED.items()}
            assert [claim for claim, words in said.items() if "the JobSet controller may" not in words] == []
            assert {claim: await refusal(controller, patch) for claim, patch in ALLOWED.items()} == dict.fromkeys(
                ALLOWED, ""
            )
            before = await admin.get(NODE)
            tainted = await controller.patch(NODE, tainting(before, TAINT))
            # Every controller may list nodes (deploy/rbac); the overlay adds the patch alone.
            (listed,) = (await admin.get("/api/v1/nodes", labelSelector=wire.BAD_NODE))["items"]
            assert read_taint(listed) == TAINT
            after = await controller.patch(NODE, untainting(tainted))
            assert read_taint(after) is None
            assert after["spec"] == before["spec"]
            for claim, change in OF_CONTROL_PLANE.items():
                await admin.patch(NODE, change)
                said[claim] = await refusal(controller, tainting(await admin.get(NODE), TAINT))
                await admin.patch(NODE, {"metadata": {"labels": dict.fromkeys(MASTERS)}, "spec": {"taints": [THEIRS]}})
            assert ["no node of the control plane" in said[claim] for claim in OF_CONTROL_PLANE] == [True] * 3


async def started(client: KubeClient, wanted: KubeObject, where: str) -> Crew:
    """Bring a JobSet of one Pod to epoch 1, on a node that Kueue chose as far as its Pod can tell."""
    namespace, name = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
    crew = Crew(client, namespace, name)
    await client.create(JOBSETS, namespace, wanted)
    await eventually(lambda: has_job(crew), True)
    await crew.make_pods()
    await place(crew, 0, where)
    await crew.announce_all(1)
    await eventually(crew.epochs, (1, 0))
    await crew.set_worker(crew.pod_at(0))
    return crew


async def has_job(crew: Crew) -> bool:
    """Return whether the Job is there."""
    return bool(await crew.jobs())


async def fail(crew: Crew) -> None:
    """Let the worker die, and wait until the controller knows the node as bad."""
    await crew.set_worker(crew.pod_at(0), exit_code=1)
    await eventually(crew.epochs, (1, 1))


async def tainted(client: KubeClient) -> list[str]:
    """Return the nodes that have our taint."""
    return [node["metadata"]["name"] for node in (await client.list(NODES))["items"] if read_taint(node) is not None]


async def stays(client: KubeClient, crew: Crew, words: str) -> bool:
    """Return whether an Event says so that a Pod stays on its node."""
    found = (await client.list(EVENTS, crew.namespace))["items"]
    return any(words in event["note"] for event in found if event["reason"] == "PodStaysOnNode")


async def is_served(client: KubeClient) -> bool:
    """Return whether Workloads can be listed."""
    try:
        await client.list(WORKLOADS)
    except NotFound:
        return False
    return True


@pytest.mark.attack
async def test_a_tenant_does_not_choose_which_nodes_are_tainted(binaries: Binaries) -> None:
    """He forges Kueue's annotation and names nodes; an honest group's bad node is tainted all the same."""
    async with AsyncExitStack() as ending:
        plane = await ending.enter_async_context(ControlPlane(binaries))
        admin = await ending.enter_async_context(kube_client(plane.kubeconfig))
        api = await ending.enter_async_context(plane.client())
        await install(api)
        await Applier(api).apply([KUEUE])
        await eventually(lambda: is_served(admin), True)
        for name, labels in NODES_OF_TEST.items():
            await admin.create(NODES, None, {"metadata": {"name": name, "labels": {HOST: name} | labels}})
        await Applier(api).apply(read_manifests(RIGHT))  # BEFORE the controller looks for taints: it asks every 30 s
        await ending.enter_async_context(serving(plane, admin, "--taint-bad-nodes=2/600"))

        evil = await plane.create_namespace("evil")
        for number, name in enumerate(("victim-a", "control-plane", "bad")):
            wanted = in_namespace(evil, name=f"evil-{number}", pods=1)
            wanted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {HOST: name}
            crew = await started(admin, wanted, name)
            await fail(crew)
            await eventually(lambda crew=crew, name=name: stays(admin, crew, name), True)  # type: ignore[misc]
        assert await tainted(admin) == []

        one, other = [
            await started(admin, in_namespace(await plane.create_namespace("team"), pods=1), "bad") for _ in range(2)
        ]
        await admit(one)
        await admit(other)
        await fail(one)
        await eventually(lambda: stays(admin, one, f"saw those of {one.namespace} alone"), True)
        assert await tainted(admin) == []
        await fail(other)
        await eventually(lambda: tainted(admin), ["bad"])
