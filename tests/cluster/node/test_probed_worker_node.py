"""A worker that kubelet probes, and an init container of each try, are on a real kubelet as they are without us."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import yaml

from inplace.common.kube.resources import KubeObject
from testbed.node import manifests
from testbed.node.archives import WORKER_IMAGE
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running
from testbed.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

MINIMAL = Path(__file__).parents[3] / "examples" / "minimal.yaml"
PODS = 2
LOAD_S = 8  # beyond the liveness probe's patience
PATIENCE_S = 3
OUTAGE_S = 25.0  # beyond the startup probe's patience
STARTUP_S = 20
# It loads, answers on its port, and takes steps. The lock is the init container's to remove.
TRAINS = f"""
import os, socket, sys, time
lock = "/scratch/run.lock"
if os.path.exists(lock):
    sys.exit("another run holds " + lock)
open(lock, "w").close()
time.sleep({LOAD_S})
listener = socket.create_server(("", 9000))
print("epoch", os.environ["INPLACE_EPOCH"], "serves", flush=True)
while True:
    listener.accept()[0].close()
"""
UNLOCKS = "import os; os.path.exists('/scratch/run.lock') and os.unlink('/scratch/run.lock')"
ASKED = {"tcpSocket": {"port": 9000}, "periodSeconds": 1}


def written(namespace: str, *, probes: bool) -> KubeObject:
    """Return examples/minimal.yaml with a lock, an init container that removes it, and a probed worker."""
    jobset: KubeObject = yaml.safe_load(MINIMAL.read_text())
    jobset["metadata"] |= {"name": manifests.JOBSET, "namespace": namespace}
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec["parallelism"] = PODS
    pod = spec["template"]["spec"]
    (worker,) = pod["containers"]
    scratch = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    image = {"image": WORKER_IMAGE, "imagePullPolicy": "IfNotPresent"}
    worker |= {**image, "command": ["/usr/bin/python3", "-IS", "-c", TRAINS], **scratch}
    if probes:
        worker["startupProbe"] = {**ASKED, "failureThreshold": STARTUP_S}
        worker["livenessProbe"] = {**ASKED, "failureThreshold": PATIENCE_S}
    unlock = ["/usr/bin/python3", "-IS", "-c", UNLOCKS]
    pod["initContainers"] = [{"name": "unlock", **image, "command": unlock, **scratch}]
    pod["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    return jobset


def restarts(group: Group) -> set[int]:
    """Return how often kubelet started the workers' containers again."""
    return {status["restartCount"] for pod in group.pods() for status in pod["status"].get("containerStatuses", ())}


def serving(group: Group, epoch: int) -> bool:
    """Say whether every worker of an epoch serves, and kubelet knows it."""
    started = [status.get("started") for pod in group.pods() for status in pod["status"].get("containerStatuses", ())]
    return group.printed("worker").count(f"epoch {epoch} serves") == PODS and started == [True] * PODS


@pytest.mark.parametrize("outage_s", [0.0, OUTAGE_S], ids=["reload", "outage"])
async def test_a_probed_worker_restarts_as_it_does_without_us(cluster: Cluster, outage_s: float) -> None:
    """It comes back at epoch 2, in its Pod, and kubelet's probes end nobody, at the barrier and while it loads."""
    group = Group(cluster, await cluster.plane.create_namespace(), pods=PODS, restarts_max=10)
    async with running(group, [written(group.namespace, probes=True)]):
        await until(lambda: serving(group, 1), "epoch 1 serves", timeout_s=SETTLED_S_MAX, also=group.state)
        uids = group.uids()
        killed_s = await group.kill(0, "worker")
        if outage_s:
            await until(lambda: group.epochs()[1] == 1, "D", timeout_s=SETTLED_S_MAX, also=group.state)
            await cluster.controller.stop(kill=True)
            await asyncio.sleep(outage_s)
            cluster.controller.start()
        await until(lambda: serving(group, 2), "epoch 2 serves", timeout_s=SETTLED_S_MAX, also=group.state)
        print(f"all serve {time.monotonic() - killed_s - outage_s - LOAD_S:.2f} s after kill, outage and load")
        await asyncio.sleep(2 * PATIENCE_S)
        assert (group.epochs(), restarts(group), group.uids()) == ((2, 1), {1}, uids)


async def test_an_init_container_runs_before_each_try(cluster: Cluster) -> None:
    """A lock that the init container removes keeps no run from starting."""
    group = Group(cluster, await cluster.plane.create_namespace(), pods=PODS, restarts_max=10)
    async with running(group, [written(group.namespace, probes=False)]):
        for epoch in (1, 2, 3):
            await until(
                lambda epoch=epoch: group.printed("worker").count(f"epoch {epoch} serves") == PODS,  # type: ignore[misc]
                f"epoch {epoch} serves",
                timeout_s=SETTLED_S_MAX,
                also=group.state,
            )
            if epoch < 3:
                await group.kill(0, "worker")
        assert group.epochs() == (3, 2)
