"""What of a JobSet, a Job or a Pod decides how Pods are counted: if it has changed, they are read again."""

from __future__ import annotations

from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Job, Pod
from inplace.common.wire import names as wire


def division(jobset: JobSet) -> tuple[object, ...]:
    """Return what decides how many ledgers there are."""
    return jobset.is_in_place, jobset.is_ours, not jobset.oversize, jobset.scopes.keys()


def current(jobset: JobSet) -> tuple[object, ...]:
    """Return what decides which Pods are current, and which of their notices are failures."""
    restart_on = jobset.annotations.get(wire.RESTART_ON)
    return jobset.restarts, jobset.job_restarts, jobset.replaced_pods, restart_on


def side(job: Job) -> tuple[object, ...]:
    """Return what decides where a Job stands; the rest are counters."""
    finished = job.condition("Failed") is not None, job.condition("Complete") is not None
    meta = job.metadata
    return job.owner_uid, job.is_leaving, finished, meta.labels, meta.annotations, job.spec.suspend


def readable(pod: Pod) -> tuple[object, object]:
    """Return what may be unreadable in a Pod."""
    return pod.metadata.labels, pod.metadata.annotations
