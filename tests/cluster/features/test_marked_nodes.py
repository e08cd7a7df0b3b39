"""Marked nodes on a real API server, with the controller's own rights: what it reads, the status, the end of a Pod."""

from __future__ import annotations

from typing import Any, Final

import pytest

from inplace.common.kube.resources import NODES, PODS, KubeObject
from inplace.common.wire import names as wire
from testbed.waiting import eventually
from tests.cluster.features.stage import Stage
from tests.cluster.features.test_placement import bind, node
from tests.controller.manifests import jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB: Final = "train-workers-0"
UNHEALTHY: Final = [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "gpu-3", "health": "Unhealthy"}]}]


async def running_on(stage: Stage, pod: str, name: str) -> None:
    """Bring the group's Pod to a node, and to its first epoch."""
    await bind(stage, pod, name)
    await stage.announce_all(1)
    await eventually(stage.epochs, (1, 0))
    await stage.set_worker(pod)


async def with_a_gpu(stage: Stage, pod: str) -> None:
    """Make a Pod anew whose container asks for a GPU: the API server takes no device that it did not ask for."""
    made = await stage.client.get(PODS, stage.namespace, pod)
    await stage.client.delete(PODS, stage.namespace, pod, grace_period_s=0)
    kept = {name: made["metadata"][name] for name in ("name", "labels", "annotations", "ownerReferences")}
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "worker:1"} | limits]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}
    await stage.client.create(PODS, stage.namespace, body)


async def leaves(stage: Stage, pod: str) -> tuple[Any, list[tuple[str, str]]]:
    """Return the deadline of a Pod, and which Pods the status says leave."""
    spec: KubeObject = (await stage.client.get(PODS, stage.namespace, pod))["spec"]
    uses = (await stage.status()).get(wire.ESCALATION_USES) or ()
    return spec.get("activeDeadlineSeconds"), [(use["escalationStep"], use["pod"]) for use in uses]


@pytest.mark.parametrize("change", [{"unschedulable": True}, {"taints": [{"key": "broken", "effect": "NoSchedule"}]}])
async def test_a_marked_node_is_left(stage: Stage, change: KubeObject) -> None:
    """The Pod is ended, the status names it; S waits."""
    await stage.start(jobset(jobs=[replicated_job(pods=1)]))
    await stage.make_pods()
    pod, name = stage.pods[JOB, 0], await node(stage)
    await running_on(stage, pod, name)
    await stage.client.patch(NODES, None, name, {"spec": change})
    await stage.set_worker(pod, exit_code=1)
    await eventually(lambda: leaves(stage, pod), (1, [("LeaveNode", pod)]))
    assert await stage.epochs() == (1, 1)


async def test_an_unhealthy_device_is_seen(stage: Stage) -> None:
    """The API server keeps what kubelet says of devices, and the controller reads it."""
    await stage.start(jobset(jobs=[replicated_job(pods=1)]))
    await stage.make_pods()
    pod, name = stage.pods[JOB, 0], await node(stage)
    await with_a_gpu(stage, pod)
    await running_on(stage, pod, name)
    ended: KubeObject = {"name": "worker", "image": "worker:1", "imageID": "", "ready": False, "restartCount": 0}
    ended |= {"containerID": f"containerd://{pod}-1", "state": {"terminated": {"exitCode": 1}}}
    await stage.set_pod(pod, containerStatuses=[ended | {"allocatedResourcesStatus": UNHEALTHY}])
    await eventually(lambda: leaves(stage, pod), (1, [("LeaveNode", pod)]))
    await stage.says_soon("PodLeavesNode")
    assert "device nvidia.com/gpu gpu-3 is unhealthy" in (await stage.events())["PodLeavesNode"][1]
