"""Suspend and resume the Jobs as the JobSet says."""

from __future__ import annotations

from inplace.common.jobset import conditions
from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.kinds import Job
from inplace.controller.plan.actions import DeleteJob, ResumeJob, SuspendJob
from inplace.controller.plan.budget import exempt_unless_restarting
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.finish import end_waiting


def follow_suspend(draft: Draft) -> bool:
    """Suspend the Jobs, or resume those that are due."""
    if draft.jobset.suspended:
        draft.set(conditions.IS_SUSPENDED)
        draft.set(conditions.RESTART_SUSPENDED)
        end_waiting(draft)
        for job in draft.buckets.active:
            if not job.spec.suspend and not job.is_leaving:
                draft.add(SuspendJob(job.metadata.name, job.metadata.uid))
        return False
    if draft.order.has_started or not draft.jobset.starts_in_order:
        draft.set(conditions.IS_RESUMED)
    for job in draft.buckets.active:
        if job.spec.suspend and not job.is_leaving:
            _resume(draft, job)
    return False


def _resume(draft: Draft, job: Job) -> None:
    """Resume one Job when it is due and at rest."""
    name, index = draft.jobset.places[job.metadata.name]
    if name not in draft.order.due or not is_at_rest(job) or not draft.may_start_jobs:
        return
    place = draft.place(draft.jobset.replicated_job(name), index)
    if job.group_template == place.group_template:
        draft.add(ResumeJob(job.metadata.name, job.metadata.uid, place))
    else:
        draft.delete(job, DeleteJob.REGROUPED)  # a resume cannot change it; the Job is created anew
    if name in draft.order.expected:
        exempt_unless_restarting(draft, name, Trigger.RESUME)  # its Pods are new and announce the next epoch


def is_at_rest(job: Job) -> bool:
    """Say whether the Job controller has stopped a suspended Job: before that its pod template cannot change.

    A Job that never started is at rest. Its next event wakes us. Source: kubernetes pkg/registry/batch/job/strategy.go.
    """
    stopped = job.condition("Suspended") is not None
    return (stopped or job.status.start_time is None) and not job.status.active
