"""The last line of a worker that failed, from a real kubelet and from the agent: it stands in the status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from inplace.common.kube.resources import KubeObject
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, running_group
from testbed.waiting import until
from tests.cli.command import run

pytestmark = pytest.mark.asyncio(loop_scope="session")

LINE = "RuntimeError: CUDA error, token=***"
EPOCHS = 3  # in which a worker fails
FAILS = (
    "import os, json, time\n"
    "if int(os.environ['INPLACE_EPOCH']) <= EPOCHS and os.environ['JOB_COMPLETION_INDEX'] == '1':\n"
    "    time.sleep(5)\n"
    "    WRITE\n"
    "    raise RuntimeError('CUDA error, token=hunter2')\n"
    "os.execv('/usr/bin/python3', ['/usr/bin/python3', '-IS', '/worker.pyc'])"
)
WRITE = (
    "json.dump({'message': {'message': 'RuntimeError: CUDA error, token=hunter2'}}, "
    "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))"
)


def failing(writes: str) -> Callable[[KubeObject], None]:
    """Let the worker of one Pod raise in the first epochs, after it wrote torchelastic's file or nothing."""

    def change(jobset: KubeObject) -> None:
        (worker,) = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
        before = worker["command"][: worker["command"].index("--") + 1]
        worker["command"] = [
            *before,
            "/usr/bin/python3",
            "-IS",
            "-c",
            FAILS.replace("WRITE", writes).replace("EPOCHS", str(EPOCHS)),
        ]
        worker["terminationMessagePolicy"] = "FallbackToLogsOnError"
        worker.pop("args", None)

    return change


@pytest.mark.parametrize(
    ("mode", "writes"), [("containers", "pass"), ("process", WRITE), ("supervisor", WRITE)], ids=lambda it: it[:15]
)
async def test_the_last_line_of_a_worker_stands_in_the_status(cluster: Cluster, mode: str, writes: str) -> None:
    """Their agents tell it in every depth; kubelet shows a container's end for half a second, if at all."""
    async with running_group(cluster, mode, pods=2, change=failing(writes)) as group:
        await group.until_runs(EPOCHS + 1)

        def kept() -> bool:
            return len(group.history.jobset()["status"].get("restartHistory") or ()) == EPOCHS

        await until(kept, "the restarts in the status", timeout_s=SETTLED_S_MAX)
        where = ("--kubeconfig", str(group.cluster.plane.kubeconfig), "-n", group.namespace, "-o", "json")
        listed = json.loads((await asyncio.to_thread(run, "history", "train", *where)).stdout)["restarts"]
    assert [(one["epoch"], one["firstFailure"]["exitCode"]) for one in listed] == [(2, 1), (3, 1), (4, 1)]
    lines = [one["firstFailure"]["lastLine"] for one in listed]
    assert lines == [LINE] * EPOCHS
