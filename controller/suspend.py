"""Suspend and resume: the Jobs follow the JobSet."""

from __future__ import annotations

from controller import conditions
from controller.budget import exempt_unless_restarting
from controller.draft import Draft, SuspendJob


def follow_suspend(draft: Draft) -> bool:
    """Suspend the Jobs, or resume those that are due."""
    jobset = draft.jobset
    suspend = jobset.suspended
    if suspend:
        draft.set(conditions.IS_SUSPENDED)
        draft.set(conditions.RESTART_SUSPENDED)
    elif draft.order.has_started or not jobset.starts_in_order:
        draft.set(conditions.IS_RESUMED)
    for job in draft.buckets.active:
        is_due = suspend or jobset.places[job.metadata.name][0] in draft.order.due
        if bool(job.spec.suspend) != suspend and is_due and not job.is_leaving:
            draft.add(SuspendJob(job.metadata.name, job.metadata.uid, suspend))
            if not suspend:
                exempt_unless_restarting(draft)  # its Pods are new and announce the next epoch
    return False
