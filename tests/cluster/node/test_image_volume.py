"""The agent's image as a volume of the container of a worker that is one static program (docs/adr/0085)."""

from __future__ import annotations

import pytest

from inplace.common.kube.resources import KubeObject
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.node.settings import PAUSE
from testbed.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


def _run_pause(jobset: KubeObject) -> None:
    """Let the guard come with a Python of its own into the container of a program that waits for ever."""
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    worker |= {"image": PAUSE, "command": [*worker["command"][: worker["command"].index("--") + 1], "/pause"]}


def _pids(group: Group) -> list[list[int]]:
    """Return guard and worker of each Pod."""
    return [group.processes(pod, "worker") for pod in group.pods()]


@pytest.mark.parametrize(("mode", "kubelet_restarts"), [("containers", 2), ("process", 0)])
async def test_a_worker_without_a_python_restarts_in_place(cluster: Cluster, mode: str, kubelet_restarts: int) -> None:
    """In both depths, twice: every worker is new, and no Pod is."""
    async with running_group(cluster, mode, pods=2, change=_run_pause) as group:
        seen = set[int]()
        for epoch in (1, 2, 3):

            def runs(epoch: int = epoch) -> bool:
                workers = {pids[-1] for pids in _pids(group) if len(pids) == 2}
                return group.epoch == epoch and len(workers) == 2 and workers.isdisjoint(seen)

            await until(runs, f"two new workers of epoch {epoch}", timeout_s=SETTLED_S_MAX, also=group.state)
            seen.update(pids[-1] for pids in _pids(group))
            if epoch == 1:
                uids = group.uids()
            if epoch < 3:
                await group.kill(0, "worker")
        assert group.uids() == uids

        def restarts() -> list[int]:
            return [status["restartCount"] for pod in group.pods() for status in pod["status"]["containerStatuses"]]

        wanted = [kubelet_restarts] * 2
        await until(lambda: restarts() == wanted, f"{wanted} restarts", timeout_s=SETTLED_S_MAX, also=group.state)
