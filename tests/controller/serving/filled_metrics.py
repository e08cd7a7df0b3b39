"""The metrics of a controller whose JobSets have a value for every metric."""

from __future__ import annotations

import msgspec
import structlog

from inplace.common.kube.clock import LoopClock
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.metrics import FINISHED, LiveCollector, Metrics
from inplace.controller.spec.causes import Failure, Trigger
from inplace.controller.spec.kinds import JOB_CODEC, Pod
from inplace.controller.tracking.membership import Membership

NAMESPACE = "default"


def jobset(name: str, pods: int) -> KubeObject:
    """Return a JobSet that has restarted once and has a value for every metric."""
    failure = Failure(f"{name}-w-0-3-abcde", "node-0123", "worker", 137, "OOMKilled", "out of memory")
    last = {
        "epoch": 2,
        "trigger": "worker_exit",
        "startedAt": "2026-01-01T00:00:00Z",
        "syncedAt": "2026-01-01T00:00:09Z",
    }
    job = {"name": "w", "replicas": 1, "template": {"spec": {"parallelism": pods, "completions": pods}}}
    return {
        "apiVersion": wire.API_VERSION,
        "kind": wire.KIND,
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1"},
        "spec": {
            "replicatedJobs": [job],
            "failurePolicy": {"maxRestarts": 10, "restartStrategy": wire.IN_PLACE_RESTART},
        },
        "status": wire.status_of_epochs(2, 1) | {wire.LAST_GROUP_RESTART: last | {"firstFailure": failure.fields()}},
    }


def pod(name: str, index: int) -> Pod:
    """Return a Pod at epoch 2."""
    owner = {"kind": "Job", "uid": f"{name}-job", "controller": True}
    metadata = {
        "name": f"{name}-w-0-{index}",
        "namespace": NAMESPACE,
        "uid": f"{name}-{index}",
        "resourceVersion": "1",
        "labels": {wire.JOBSET_UID: name, wire.JOB_COMPLETION_INDEX: str(index)},
        "annotations": wire.epoch_annotations(2),
        "ownerReferences": [owner],
    }
    return msgspec.convert({"metadata": metadata, "status": {"phase": "Running"}}, Pod)


def filled(jobsets: int, pods: int) -> Metrics:
    """Return the metrics of a controller with this number of JobSets; each has restarted."""
    metrics, log = Metrics(), structlog.get_logger()
    membership = Membership(lambda *_: None, lambda *_: None, LoopClock(), log)
    owner = {"kind": wire.KIND, "controller": True}
    for number in range(jobsets):
        name = f"train-{number}"
        membership.jobset_changed(None, jobset(name, pods))
        meta = {"name": f"{name}-w-0", "namespace": NAMESPACE, "uid": f"{name}-job", "resourceVersion": "1"}
        owned = {"labels": {wire.RESTART_ATTEMPT: "0"}, "ownerReferences": [owner | {"uid": name}]}
        membership.job_changed(None, JOB_CODEC.convert({"metadata": meta | owned}))
        for index in range(pods):
            membership.pod_changed(None, pod(name, index))
        metrics.restarts.labels(NAMESPACE, name, FINISHED, Trigger.WORKER_EXIT.value).inc()
        metrics.last_restart_seconds.labels(NAMESPACE, name).set(9.0)
        metrics.lost_pod_seconds.labels(NAMESPACE, name).inc(72.0)
    metrics.registry.register(LiveCollector(membership.counts, list, lambda: [("Pod", 0.1)]))
    return metrics
