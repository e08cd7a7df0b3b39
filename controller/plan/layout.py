"""Create a Job in every place that is due."""

from __future__ import annotations

from inplace.controller.plan.actions import CreateJob
from inplace.controller.plan.budget import exempt_unless_restarting
from inplace.controller.plan.draft import Draft
from inplace.controller.spec.causes import Trigger


def create_missing_jobs(draft: Draft) -> bool:
    """Create a Job in every place that is due and free; BlockingRecreate waits for previous Jobs to be gone."""
    jobset, policy = draft.jobset, draft.jobset.failure_policy
    if policy is not None and policy.strategy == "BlockingRecreate" and draft.buckets.previous:
        return False
    if not draft.may_create_jobs:
        return False
    present = {jobset.places[job.metadata.name][0] for job in draft.buckets.current}
    for job in jobset.replicated_jobs:
        if job.name not in draft.order.due and not (jobset.suspended and jobset.starts_in_order):
            continue
        names = [jobset.job_name(job.name, index) for index in range(job.replicas)]
        missing = [index for index, name in enumerate(names) if name not in draft.observed.jobs]
        for index in missing:
            draft.add(CreateJob(jobset, job, index, draft.execution))
        is_joining = job.name in draft.order.expected and job.name not in present
        if missing and jobset.has_order and is_joining:
            exempt_unless_restarting(draft, job.name, Trigger.JOIN)  # its Pods join the group, which restarts for them
    return False
