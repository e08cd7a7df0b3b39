"""Ten lines on a real kubelet: the controller adds the agent to the Pods of images that know nothing of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from inplace.common.kube.resources import JOBSETS, KubeObject
from testbed.node import manifests
from testbed.node.archives import BUSYBOX_IMAGE, GLIBC_IMAGE, MUSL_IMAGE
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running
from testbed.node.settings import PAUSE
from testbed.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MINIMAL = Path(__file__).parents[3] / "examples" / "minimal.yaml"
PODS = 2
BY_GUARDS_S_MAX = 5.0  # 0.1 s on a quiet machine; what kubelet restarts takes longer than a second at its best
WORKERS = {
    "busybox": (BUSYBOX_IMAGE, ["sleep", "100000"]),
    "musl": (MUSL_IMAGE, ["/pause"]),
    "distroless": (PAUSE, ["/pause"]),
    "entrypoint": (GLIBC_IMAGE, None),
    "static entrypoint": (PAUSE, None),
}
UNGUARDED = "static entrypoint"  # no loader is in its container that could put a guard before it


def written(namespace: str, image: str, command: list[str] | None) -> KubeObject:
    """Return examples/minimal.yaml with the image and the command of a user, for fewer Pods."""
    jobset: KubeObject = yaml.safe_load(MINIMAL.read_text())
    jobset["metadata"] |= {"name": manifests.JOBSET, "namespace": namespace}
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec["parallelism"] = PODS
    (worker,) = spec["template"]["spec"]["containers"]
    worker |= {"image": image, "imagePullPolicy": "IfNotPresent", "command": command}
    if command is None:
        del worker["command"]
    return jobset


@pytest.mark.parametrize("kind", WORKERS)
async def test_ten_lines_restart_in_place(cluster: Cluster, kind: str) -> None:
    """After a SIGKILL every worker is new, no Pod is, and the JobSet is as its user wrote it."""
    image, command = WORKERS[kind]
    group = Group(cluster, await cluster.plane.create_namespace(), pods=PODS, restarts_max=10)
    jobset = written(group.namespace, image, command)
    async with running(group, [jobset]):

        def workers() -> set[int]:
            """Return the workers' processes: the last one of each Pod, behind its guard if it has one."""
            found = [group.processes(pod, "worker") for pod in group.pods()]
            return {pids[-1] for pids in found if len(pids) == (1 if kind == UNGUARDED else 2)}

        await until(lambda: len(workers()) == PODS, "all workers", timeout_s=SETTLED_S_MAX, also=group.state)
        before, uids = workers(), group.uids()
        killed_s = await group.kill(0, "worker")
        await until(
            lambda: len(workers()) == PODS and workers().isdisjoint(before),
            "all workers anew",
            timeout_s=SETTLED_S_MAX,
            also=group.state,
        )
        took_s = time.monotonic() - killed_s
        assert group.uids() == uids
        assert took_s < BY_GUARDS_S_MAX or kind == UNGUARDED, (
            f"expected guards to restart the workers, it took {took_s}"
        )
        stored = await cluster.client.get(JOBSETS, group.namespace, manifests.JOBSET)
        assert "inplace-agent" not in str(stored["spec"])
        print(f"{kind}: all workers new after {took_s:.3f} s, 0 Pods recreated")
