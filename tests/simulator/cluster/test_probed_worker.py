"""A probed worker, and an init container of each try, below the kubelet that a demo has."""

from __future__ import annotations

from functools import partial

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster

TIMEOUT_S = 60.0
PODS = 2
LOAD_S = 3  # beyond the liveness probe's patience
WAIT_S = 6  # of a crash loop, beyond it too
# The lock is the init container's to remove.
TRAINS = f"""
import os, socket, sys, time
lock = os.environ["SCRATCH"] + "/run.lock"
if os.path.exists(lock):
    sys.exit("another run holds " + lock)
open(lock, "w").close()
time.sleep({LOAD_S})
listener = socket.create_server((os.environ["POD_IP"], 9000))
open(os.environ["SCRATCH"] + "/serves-" + os.environ["INPLACE_EPOCH"], "w").close()
while True:
    listener.accept()[0].close()
"""
UNLOCKS = "import os; lock = os.environ['SCRATCH'] + '/run.lock'; os.path.exists(lock) and os.unlink(lock)"
ASKED = {"tcpSocket": {"port": 9000}, "periodSeconds": 1}


def jobset(**annotations: str) -> KubeObject:
    """Return a JobSet as a user writes it."""
    env = [
        {"name": "SCRATCH", "value": "/scratch"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    common: KubeObject = {"image": "x", "env": env, "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    worker = {"name": "worker", "command": ["python3", "-c", TRAINS], **common}
    worker |= {"startupProbe": {**ASKED, "failureThreshold": 20}, "livenessProbe": {**ASKED, "failureThreshold": 2}}
    pod = {
        "initContainers": [{"name": "unlock", "command": ["python3", "-c", UNLOCKS], **common}],
        "containers": [worker],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }
    job = {"name": "w", "template": {"spec": {"parallelism": PODS, "completions": PODS, "template": {"spec": pod}}}}
    policy = {"maxRestarts": 10, "restartStrategy": wire.IN_PLACE_RESTART}
    metadata = {"name": "live", "namespace": "default", "annotations": annotations}
    spec = {"failurePolicy": policy, "replicatedJobs": [job]}
    return {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "metadata": metadata, "spec": spec}


def statuses(cluster: Cluster) -> list[KubeObject]:
    """Return what kubelet says of the workers' containers."""
    return [one for pod in cluster.pods() for one in pod["status"].get("containerStatuses", ())]


def serving(cluster: Cluster, epoch: int) -> bool:
    """Say whether every worker of an epoch serves, and kubelet knows it."""
    served = len(list(cluster.folder.glob(f"pods/*/volumes/scratch/serves-{epoch}")))
    return served == PODS and all(one["started"] for one in statuses(cluster))


def restarts(cluster: Cluster) -> set[int]:
    """Return how often the workers' containers were started again."""
    return {one["restartCount"] for one in statuses(cluster)}


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_probed_worker_waits_and_loads_in_peace() -> None:
    """It loads for longer than liveness waits, and then waits at the barrier for longer; kubelet ends nobody."""
    async with Cluster(nodes=1, adds_agent=True) as cluster:
        await cluster.apply([jobset(**{wire.FAILURES: f"backoff={WAIT_S}", wire.RESTART: "clean-after=0"})])
        for epoch in (1, 2, 3):
            await cluster.until(partial(serving, cluster, epoch), timeout_s=TIMEOUT_S)
            assert restarts(cluster) == {epoch - 1}
            if epoch < 3:
                cluster.kill_worker("default", str(cluster.pods()[1]["metadata"]["name"]), supervised=True)
        assert wire.epochs_of_status(cluster.jobset("live")["status"]) == (3, 2)
