"""Create a Job in every place that is due."""

from __future__ import annotations

from inplace.common.jobset.causes import Trigger
from inplace.controller.plan.budget import exempt_unless_restarting
from inplace.controller.plan.draft import Draft


def create_missing_jobs(draft: Draft) -> bool:
    """Create a Job in every place that is due and free; BlockingRecreate waits for previous Jobs to be gone."""
    jobset, policy = draft.jobset, draft.jobset.failure_policy
    if policy is not None and policy.strategy == "BlockingRecreate" and draft.buckets.previous:
        return False
    if not draft.may_start_jobs:
        return False
    present = {jobset.places[job.metadata.name][0] for job in draft.buckets.current}
    for job in jobset.replicated_jobs:
        if job.name not in draft.order.due and not (jobset.suspended and jobset.starts_in_order):
            continue
        names = [jobset.job_name(job.name, index) for index in range(job.replicas)]
        missing = [index for index, name in enumerate(names) if name not in draft.observed.jobs]
        for index in missing:
            draft.add(draft.place(job, index))
        is_joining = job.name in draft.order.expected and job.name not in present
        if missing and jobset.has_order and is_joining:
            exempt_unless_restarting(draft, job.name, Trigger.JOIN)  # its Pods join the group, which restarts for them
    return False
