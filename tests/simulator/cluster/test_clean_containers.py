"""Real agents in the simulated kubelet: a container in which each new process fails is replaced by a new one."""

from __future__ import annotations

import re

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods
from tests.simulator.cluster.planned_stops import EXAMPLES

# A container is its main process here, which is the worker's parent.
WORKER = """
import os, signal, sys, time
folder = os.environ["CHECKPOINT_DIR"]
spoilt, was_here = f"{folder}/{os.getppid()}", f"{folder}/was-here"
if os.path.exists(spoilt):
    sys.exit(1)
print("trains in epoch", os.environ["INPLACE_EPOCH"], flush=True)
if os.environ["JOB_COMPLETION_INDEX"] == "0" and not os.path.exists(was_here):
    open(spoilt, "w").close()
    open(was_here, "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


def documents(example: str) -> list[KubeObject]:
    """Return two Pods of an example with this worker."""
    found = with_pods(read_manifests(EXAMPLES / example), 2)
    found[-1]["metadata"]["annotations"] = {wire.FAILURES: "backoff=0", wire.RESTART: wire.DEPTH_PROCESS}
    spec = found[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (worker,) = spec["containers"]
    worker["command"] = [*worker["command"][: worker["command"].index("--") + 1], "python3", "-c", WORKER]
    return found


@pytest.mark.parametrize("example", ["train-supervisor.yaml", "train.yaml"], ids=["supervisor", "process"])
@pytest.mark.asyncio
async def test_the_second_failure_in_a_row_gets_a_new_container(example: str) -> None:
    """Two restarts, the second of them with one new container, in the same Pods."""
    found = documents(example)
    name = found[-1]["metadata"]["name"]
    async with Cluster(nodes=1) as cluster:

        def said() -> list[str]:
            files = sorted((cluster.folder / "pods").glob("*/logs/worker/*.log"))
            return re.findall(r"trains in epoch \d+", "".join(file.read_text() for file in files))

        def counts() -> list[int]:
            statuses = ((pod.get("status") or {}).get("containerStatuses") or () for pod in cluster.pods())
            return sorted(one["restartCount"] for each in statuses for one in each)

        await cluster.apply(found)
        async with cluster.clock.timeout(60):
            while said().count("trains in epoch 3") < 2:
                await cluster.clock.sleep(0.1)
        await cluster.until(lambda: counts() == [0, 1], timeout_s=10)
        status = cluster.jobset(name)["status"]
        assert wire.epochs_of_status(status) == (3, 2)
        told = status[wire.LAST_GROUP_RESTART]["firstFailure"]
        assert "the last restart did not help" in told["message"]
