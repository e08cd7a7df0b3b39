"""The metrics of a controller whose JobSets have a value for every metric."""

from __future__ import annotations

from inplace.common.jobset.causes import Failure, Trigger
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.metrics import FINISHED, LiveCollector, Metrics
from tests.controller.objects import make_job, make_jobset, make_membership, make_pod

NAMESPACE = "default"


def restarted(name: str, pods: int) -> KubeObject:
    """Return a JobSet that has restarted once and has a value for every metric."""
    failure = Failure(f"{name}-w-0-3-abcde", "node-0123", "worker", 137, "OOMKilled", "out of memory")
    last = {
        "epoch": 2,
        "trigger": "worker_exit",
        "startedAt": "2026-01-01T00:00:00Z",
        "syncedAt": "2026-01-01T00:00:09Z",
        "firstFailure": failure.fields(),
    }
    return make_jobset(name, uid=name, pods=pods) | {
        "status": wire.status_of_epochs(2, 1) | {wire.LAST_GROUP_RESTART: last}
    }


def filled(jobsets: int, pods: int) -> Metrics:
    """Return the metrics of a controller with this number of JobSets; each has restarted."""
    metrics, membership = Metrics(), make_membership()
    for number in range(jobsets):
        name = f"train-{number}"
        membership.jobset_changed(None, restarted(name, pods))
        membership.job_changed(None, make_job(f"{name}-job", owner=name, name=f"{name}-workers-0"))
        for index in range(pods):
            pod = make_pod(index, 2, uid=f"{name}-{index}", job=f"{name}-job", status={"phase": "Running"})
            membership.pod_changed(None, pod)
        metrics.restarts.labels(NAMESPACE, name, FINISHED, Trigger.WORKER_EXIT.value).inc()
        metrics.last_restart_seconds.labels(NAMESPACE, name).set(9.0)
        metrics.lost_pod_seconds.labels(NAMESPACE, name).inc(72.0)
    metrics.registry.register(LiveCollector(membership.counts, list, lambda: [("Pod", 0.1)]))
    return metrics
