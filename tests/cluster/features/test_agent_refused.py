"""What stops an agent that the controller adds, on a real API server and with the shipped permissions."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager

import pytest
import yaml

from inplace.common.injection.pod import InjectOptions
from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import Forbidden
from inplace.common.kube.resources import NAMESPACES, PODS, KubeObject, Resource
from inplace.common.wire import names as wire
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.api.object_events import CORE_EVENTS
from testbed.control_plane import ControlPlane
from testbed.kube_client import create
from testbed.waiting import eventually
from tests.cluster.features.served import ACCOUNT, NAMESPACE, RBAC, ServedController
from tests.cluster.features.stage import Stage
from tests.cluster.test_controller_real import running
from tests.controller.manifests import changed, jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
IMAGE = "registry.example.com/inplace-agent:1"
SAID = f'failed to pull and unpack image "{IMAGE}": {IMAGE}: not found'  # containerd's


def plain(name: str = "train", **annotations: str) -> KubeObject:
    """Return an in-place JobSet of two Pods of 1 CPU."""
    manifest = jobset(name=name, jobs=[replicated_job(pods=2)], annotations=annotations)
    container = "spec.replicatedJobs.0.template.spec.template.spec.containers.0"
    manifest = changed(manifest, f"{container}.command", ["train"])
    return changed(manifest, f"{container}.resources", {"requests": {"cpu": "1"}})


async def adding(
    plane: ControlPlane, admin: KubeClient, *, opt_in: bool = False
) -> AbstractAsyncContextManager[object]:
    """Return a controller that adds agents, as the served one's account."""
    await create(admin, yaml.safe_load_all((RBAC.parent / "agents.yaml").read_text()))
    kubeconfig = await plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    settings = JobSettings(agent=InjectOptions(agent_image=IMAGE), opt_in=opt_in)
    return running(plane, None, kubeconfig=kubeconfig, job_settings=settings)


async def test_a_container_that_kubelet_cannot_start(stage: Stage) -> None:
    """The condition says how many, which and why within 10 s of the first Pod, and ends with them."""
    await stage.start(plain())
    await stage.make_pods()
    began_s = time.monotonic()
    waiting = {"name": "inplace-agent", "image": IMAGE, "imageID": "", "ready": False, "restartCount": 0}
    waiting |= {"state": {"waiting": {"reason": "ErrImagePull", "message": SAID}}}
    for pod in stage.pods.values():
        await stage.set_pod(pod, phase="Pending", initContainerStatuses=[waiting])
    told = f"2 Pods: image cannot be pulled: container inplace-agent, image {IMAGE}: ErrImagePull: {SAID}"
    await stage.becomes("ContainersBlocked", "True", "ImageCannotBePulled", told)
    assert time.monotonic() - began_s < 10.0
    await stage.says("ImageCannotBePulled", "Warning", told)
    for pod in stage.pods.values():
        await stage.set_pod(pod, phase="Running", initContainerStatuses=[])
    await stage.becomes("ContainersBlocked", "False", "ContainersStart", "kubelet can start every container again")


async def test_a_quota_that_the_agents_exceed(
    plane: ControlPlane, admin: KubeClient, controller: ServedController, stage: Stage
) -> None:
    """The server refuses the second Pod; the JobSet says what the agent adds, and that it would fit without."""
    hard = {"requests.cpu": "2"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": hard}}
    await admin.create(QUOTAS, stage.namespace, quota)
    used = {"status": {"hard": hard, "used": {"requests.cpu": "1"}}}  # no controller of quotas runs here
    await admin.patch(QUOTAS, stage.namespace, "team", used, subresource="status")
    async with controller.replaced(), await adding(plane, admin):
        ((name, job),) = (await stage.start(plain(**{wire.BARRIER: "1"}))).items()
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": f"{name}-1-"}}
        spec = job["spec"]["template"]["spec"] | {"serviceAccountName": "default", "nodeName": "nowhere"}
        with pytest.raises(Forbidden) as refused:
            await admin.create(PODS, stage.namespace, pod | {"spec": spec})
        assert "exceeded quota: team" in str(refused.value)
        about = {"kind": "Job", "namespace": stage.namespace, "name": name}
        event = {
            "metadata": {"name": f"{name}.1", "namespace": stage.namespace},
            "involvedObject": about | {"uid": job["metadata"]["uid"]},
            "reason": "FailedCreate",
            "message": f"Error creating: {refused.value}",
            "type": "Warning",
        }
        await admin.create(CORE_EVENTS, stage.namespace, {"apiVersion": "v1", "kind": "Event"} | event)

        async def told() -> bool:
            return "PodsRefused" in await stage.events()

        await eventually(told, True)
        kind, note = (await stage.events())["PodsRefused"]
    assert kind == "Warning"
    assert note.startswith(
        f"job {name}: the API server refuses its pods: exceeded quota team: requests.cpu: a Pod asks for 1010m, of "
        "which 10m for the agent (20m in all 2 Pods of workers), and 1 of 2 is left; without the agent it would fit; "
    )


async def test_a_namespaces_label(
    plane: ControlPlane, admin: KubeClient, controller: ServedController, stage: Stage
) -> None:
    """Under --agent-opt-in the label asks for the namespace's JobSets, as soon as it is there."""
    async with controller.replaced(), await adding(plane, admin, opt_in=True):
        (before,) = (await stage.start(plain("first"))).values()
        assert "initContainers" not in before["spec"]["template"]["spec"]
        await admin.patch(NAMESPACES, None, stage.namespace, {"metadata": {"labels": {wire.AGENT: wire.AGENT_ON}}})
        found: list[str] = []

        async def is_added() -> bool:
            (job,) = (await stage.start(plain(f"later-{len(found)}"))).values()
            found.append(job["metadata"]["name"])
            return "initContainers" in job["spec"]["template"]["spec"]

        await eventually(is_added, True)
        assert len(found) <= 5
