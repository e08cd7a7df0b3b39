"""The step ReplacePod on a real node: kubelet ends the Pod whose worker failed, and its Job makes another one."""

from __future__ import annotations

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from testbed.node.cluster import Cluster
from testbed.node.group import Group, running_group

pytestmark = pytest.mark.asyncio(loop_scope="session")


def with_escalation(jobset: KubeObject) -> None:
    """Replace the first Pod that fails, then restart in place."""
    annotations = jobset["metadata"].setdefault("annotations", {})
    annotations[wire.ESCALATION] = "ReplacePod=1,InPlace=2,window=3600"


def not_over(group: Group) -> set[str]:
    """Return the UIDs of the Pods that have not ended."""
    return {pod["metadata"]["uid"] for pod in group.live()}


async def test_the_pod_that_failed_is_another_one_after(cluster: Cluster, mode: str) -> None:
    """One Pod is new and the others are the same; no two epochs ever ran at once; the next failure is in place."""
    async with running_group(cluster, mode, change=with_escalation) as group:
        await group.until_runs(1)
        before, failing = group.uids(), group.pods()[0]
        group.expect_lost([failing])
        group.order(failing, "exit 3")
        await group.until_runs(2)
        live = not_over(group)
        assert before - live == {failing["metadata"]["uid"]}
        assert len(live) == len(before)
        assert group.broken() == []

        group.order(next(pod for pod in group.pods() if pod["metadata"]["uid"] in live), "exit 3")
        await group.until_runs(3)
        assert not_over(group) == live
        assert group.broken() == []
