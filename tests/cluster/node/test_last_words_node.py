"""The last line of a worker that failed, from a real kubelet and from the agent: it stands in the status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from inplace.common.kube.resources import KubeObject
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, running_group
from testbed.node.patience import until
from tests.cli.command import run

pytestmark = pytest.mark.asyncio(loop_scope="session")

LINE = "RuntimeError: CUDA error, token=***"
FAILS = (
    "import os, json, time\n"
    "if os.environ['INPLACE_EPOCH'] == '1' and os.environ['JOB_COMPLETION_INDEX'] == '1':\n"
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
    """Let the worker of one Pod raise in the first epoch, after it wrote torchelastic's file or nothing."""

    def change(jobset: KubeObject) -> None:
        (worker,) = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
        before = worker["command"][: worker["command"].index("--") + 1]
        worker["command"] = [*before, "/usr/bin/python3", "-IS", "-c", FAILS.replace("WRITE", writes)]
        worker["terminationMessagePolicy"] = "FallbackToLogsOnError"
        worker.pop("args", None)

    return change


@pytest.mark.parametrize(
    ("mode", "writes"), [("guarded", "pass"), ("guarded_process", WRITE), ("supervisor", WRITE)], ids=lambda it: it[:15]
)
async def test_the_last_line_of_a_worker_stands_in_the_status(cluster: Cluster, mode: str, writes: str) -> None:
    """From kubelet's termination message in depth `containers`, and from the agent where no container ends."""
    async with running_group(cluster, mode, pods=2, change=failing(writes)) as group:
        await group.until_runs(2)
        await until(lambda: group.history.jobset()["status"].get("restartHistory"), "history", timeout_s=SETTLED_S_MAX)
        status = group.history.jobset()["status"]
        failure = status["lastGroupRestart"]["firstFailure"]
        where = ("--kubeconfig", str(group.cluster.plane.kubeconfig), "-n", group.namespace, "-o", "json")
        listed = json.loads((await asyncio.to_thread(run, "history", "train", *where)).stdout)
    assert (failure["exitCode"], failure.get("lastLine")) == (1, LINE), status
    (entry,) = listed["restarts"]
    assert (entry["epoch"], entry["firstFailure"]["lastLine"]) == (2, LINE)
