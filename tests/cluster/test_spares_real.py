"""The PriorityClass of spares on a real kube-apiserver, with Kubernetes' own Job controller: who may have it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

import pytest

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import Forbidden
from inplace.common.kube.resources import EVENTS, JOBS, JOBSETS, PODS
from inplace.common.wire import names as wire
from inplace.simulator.cluster.manifests import spare_manifests
from testbed.binaries import Binaries
from testbed.clients.apply import Applier
from testbed.control_plane import ControlPlane
from testbed.kube_client import kube_client
from testbed.waiting import eventually
from tests.cluster.features.served import serving
from tests.cluster.test_crd_real import install
from tests.controller.crew import Crew
from tests.controller.manifests import changed, jobset, replicated_job
from tests.deploy.test_spares import job, pod

pytestmark = pytest.mark.asyncio(loop_scope="session")

POD_SPEC: Final = "spec.replicatedJobs.0.template.spec.template.spec"
ONLY_SPARES: Final = "only spares of a JobSet may have the PriorityClass inplace-spare"


@pytest.mark.attack
async def test_only_spares_have_the_class(binaries: Binaries) -> None:
    """A quota that leaves the class out lets no ordinary Pod in; the real Job controller makes spares."""
    async with AsyncExitStack() as ending:
        plane = await ending.enter_async_context(ControlPlane(binaries, with_controllers=True))
        admin = await ending.enter_async_context(kube_client(plane.kubeconfig))
        api = await ending.enter_async_context(plane.client())
        await install(api)
        await Applier(api).apply(list(spare_manifests()))
        await ending.enter_async_context(serving(plane, admin, "--agent-image=agent:1"))
        namespace = await plane.create_namespace("tenant")
        await eventually(lambda: refused(admin, namespace, of="pod"), True)
        assert await refused(admin, namespace, of="job")

        group = changed(jobset(jobs=[replicated_job(pods=1)]), f"{POD_SPEC}.containers.0.command", ["train"])
        disguised = changed(group, f"{POD_SPEC}.priorityClassName", wire.SPARE_PRIORITY_CLASS)
        disguised = changed(disguised, "spec.replicatedJobs.0.template.metadata", {"labels": {wire.SPARE_OF: "train"}})
        await admin.create(JOBSETS, namespace, changed(disguised, "metadata", {"name": "disguised"}))
        await eventually(lambda: is_told(admin, namespace), True)

        honest = changed(group, "metadata", {"name": "train", "annotations": {wire.SPARES: "1"}})
        await admin.create(JOBSETS, namespace, honest)
        crew = Crew(admin, namespace, "train")
        await eventually(lambda: pods_of(admin, namespace, wire.JOBSET_NAME), ["train"])
        crew.pods["train-workers-0", 0] = (await admin.list(PODS, namespace))["items"][0]["metadata"]["name"]
        await crew.announce_all(1)
        await eventually(lambda: pods_of(admin, namespace, wire.SPARE_OF), ["train"])
        classes = [each["spec"].get("priorityClassName") for each in (await admin.list(PODS, namespace))["items"]]
        assert sorted(classes, key=str) == [None, wire.SPARE_PRIORITY_CLASS]


async def refused(client: KubeClient, namespace: str, *, of: str) -> bool:
    """Return whether the policy refuses a tenant's own Pod or Job; nothing is stored."""
    resource, made = (PODS, pod()) if of == "pod" else (JOBS, job())
    try:
        await client.create(resource, namespace, made, dry_run=True)
    except Forbidden as error:
        return ONLY_SPARES in str(error)
    return False


async def is_told(client: KubeClient, namespace: str) -> bool:
    """Return whether an Event of the JobSet has the policy's words."""
    found = (await client.list(EVENTS, namespace))["items"]
    return any(ONLY_SPARES in event["note"] for event in found if event["regarding"]["name"] == "disguised")


async def pods_of(client: KubeClient, namespace: str, label: str) -> list[str]:
    """Return the value of a label by Pod that has it."""
    found = (await client.list(PODS, namespace, query={"labelSelector": label}))["items"]
    return [each["metadata"]["labels"][label] for each in found]
