"""A real kubelet that cannot pull an image: what the JobSet says of a container's own image and of a volume's."""

from __future__ import annotations

import time

import pytest

from inplace.common.kube.resources import EVENTS, JOBSETS, KubeObject
from testbed.node import manifests
from testbed.node.archives import BUSYBOX_IMAGE
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running
from testbed.waiting import until
from tests.cluster.node.test_added_agent import PODS, written

pytestmark = pytest.mark.asyncio(loop_scope="session")

NOWHERE = "127.0.0.1:1/train:1"  # nothing listens there, so the runtime is refused at once
TOLD_S_MAX = 10.0
BACK_OFF_S_MAX = 60.0  # kubelet's first ones are 10 and 20 s


def without_image(namespace: str, kind: str) -> KubeObject:
    """Return the JobSet of ten lines with an image that nobody has."""
    jobset = written(namespace, NOWHERE if kind == "own" else BUSYBOX_IMAGE, ["sleep", "100000"])
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    if kind == "volume":
        pod["volumes"] = [{"name": "data", "image": {"reference": NOWHERE, "pullPolicy": "IfNotPresent"}}]
        pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return jobset


def reasons(group: Group) -> set[str]:
    """Return what the workers' containers wait for."""
    statuses = [one for pod in group.pods() for one in pod["status"].get("containerStatuses") or ()]
    return {(one["state"].get("waiting") or {}).get("reason", "") for one in statuses}


@pytest.mark.parametrize(
    ("kind", "subject"),
    [("own", f"container worker, image {NOWHERE}"), ("volume", "container worker, an image volume")],
)
async def test_an_image_that_cannot_be_pulled(cluster: Cluster, kind: str, subject: str) -> None:
    """Within 10 s of kubelet's first word, with all Pods; the same, and one Event, while kubelet tries again."""
    group = Group(cluster, await cluster.plane.create_namespace(), pods=PODS, restarts_max=10)

    async def message() -> str:
        stored = await cluster.client.get(JOBSETS, group.namespace, manifests.JOBSET)
        told = (stored.get("status") or {}).get("conditions") or ()
        return next((str(one["message"]) for one in told if one["type"] == "ContainersBlocked"), "")

    async with running(group, [without_image(group.namespace, kind)]):
        errors = {"ErrImagePull", "ImagePullBackOff"}
        await until(lambda: reasons(group) & errors, "an error", timeout_s=SETTLED_S_MAX, also=group.state)
        began_s = time.monotonic()
        await until(message, "the condition", timeout_s=SETTLED_S_MAX, also=group.state)
        took_s = time.monotonic() - began_s
        told = await message()
        print(f"{kind}: told after {took_s:.1f} s: {told}")
        assert told.startswith(f"{PODS} Pods: image cannot be pulled: {subject}: ErrImagePull: ")
        assert NOWHERE in told
        assert took_s < TOLD_S_MAX
        for reason in ("ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"):

            def waits(reason: str = reason) -> bool:
                return reason in reasons(group)

            await until(waits, reason, timeout_s=BACK_OFF_S_MAX, also=group.state)
        assert await message() == told
        events = (await cluster.client.list(EVENTS, group.namespace))["items"]
        assert [one["reason"] for one in events].count("ImageCannotBePulled") == 1
