"""Which container of a real kubelet has a token mounted: the agent's alone, unless the Pod's author asks for more."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running
from testbed.waiting import until
from tests.cluster.node.test_added_agent import PODS, WORKERS, written

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.attack]

MOUNT = "/secrets/kubernetes.io/serviceaccount "


@pytest.mark.parametrize(
    ("automount", "holders"),
    [(None, {"inplace-agent"}), (False, {"inplace-agent"}), (True, {"inplace-agent", "worker"})],
)
async def test_whose_container_has_a_token(cluster: Cluster, automount: bool | None, holders: set[str]) -> None:
    """Each container's own table of mounts says it, once all workers run."""
    group = Group(cluster, await cluster.plane.create_namespace(), pods=PODS, restarts_max=10)
    jobset = written(group.namespace, *WORKERS["busybox"])
    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["spec"] |= {} if automount is None else {"automountServiceAccountToken": automount}
    async with running(group, [jobset]):
        await until(
            lambda: [len(group.processes(pod, "worker")) for pod in group.pods()] == [2] * PODS,  # behind guards
            "all workers",
            timeout_s=SETTLED_S_MAX,
            also=group.state,
        )
        for pod in group.pods():
            first = {name: group.processes(pod, name)[0] for name in ("inplace-agent", "worker")}
            mounts = {name: Path(f"/proc/{pid}/mountinfo").read_text() for name, pid in first.items()}
            assert {name for name, table in mounts.items() if MOUNT in table} == holders
