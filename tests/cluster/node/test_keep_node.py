"""A worker's folder in memory on a real kubelet: it outlives restarts, has its size, and goes with the Pod."""

from __future__ import annotations

import pytest

from inplace.common.wire import names as wire
from testbed.node.archives import BUSYBOX_IMAGE
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running
from testbed.waiting import until
from tests.cluster.node.test_added_agent import PODS, written

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 8
COUNTS = f"""
cd "$INPLACE_KEEP_DIR" || exit 3
read runs < runs || runs=0
echo $((runs + 1)) > runs
full=$(dd if=/dev/zero of=more bs=1M count={MIB + 1} 2>&1 | grep -o 'No space left.*')
echo "epoch=$INPLACE_EPOCH run=$(cat runs) kib=$(df -k . | awk 'NR == 2 {{ print $2 }}') more: $full"
exec sleep 100000
"""
"""Count the runs in the folder, and write more than fits into it."""


@pytest.mark.parametrize("depth", ["process", "containers"])
async def test_what_a_worker_keeps_outlives_restarts_and_goes_with_the_pod(cluster: Cluster, depth: str) -> None:
    """Each run finds what the one before left, a full folder is an error of the write alone, and a new Pod is empty."""
    group = Group(cluster, await cluster.plane.create_namespace(), pods=PODS, restarts_max=10)
    jobset = written(group.namespace, BUSYBOX_IMAGE, ["sh", "-c", COUNTS])
    jobset["metadata"]["annotations"] = {wire.RESTART: f"depth={depth},keep={MIB}Mi", wire.FAILURES: "backoff=0"}

    async def print_runs(epoch: int, *runs: int) -> None:
        end = f"kib={MIB * 1024} more: No space left on device"
        lines = [f"epoch={epoch} run={run} {end}" for run in sorted(runs)]

        def holds() -> bool:
            printed = group.printed("worker").splitlines()
            return sorted(line[line.index("epoch=") :] for line in printed if f"epoch={epoch} " in line) == lines

        await until(holds, f"{lines}", timeout_s=SETTLED_S_MAX, also=group.state)

    async with running(group, [jobset]):
        await print_runs(1, 1, 1)
        before = group.uids()
        await group.kill(0, "worker")
        await print_runs(2, 2, 2)
        assert group.uids() == before
        await group.delete(group.pods()[0])
        await print_runs(3, 1, 3)
