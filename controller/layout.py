"""What must exist: the Service, a Job in every place, suspended or not."""

from __future__ import annotations

from controller import conditions
from controller.draft import CreateJob, CreateService, Draft, SuspendJob
from controller.jobs import build_job, build_service


def ensure_service(draft: Draft) -> bool:
    """Create the headless Service; one that exists is left alone, whoever owns it."""
    if draft.jobset.network.dns_hostnames and not draft.observed.has_service:
        draft.add(CreateService(build_service(draft.jobset)))
    return False


def create_missing_jobs(draft: Draft) -> bool:
    """Create a Job in every place whose name is free; BlockingRecreate waits for previous Jobs to be gone."""
    policy = draft.jobset.failure_policy
    if policy is not None and policy.strategy == "BlockingRecreate" and draft.buckets.previous:
        return False
    for job in draft.jobset.replicated_jobs:
        for index in range(job.replicas):
            if draft.jobset.job_name(job.name, index) not in draft.observed.jobs:
                draft.add(CreateJob(build_job(draft.jobset, job, index)))
    return False


def follow_suspend(draft: Draft) -> bool:
    """Suspend or resume the Jobs that exist."""
    suspend = draft.jobset.suspended
    if suspend:
        draft.set(conditions.IS_SUSPENDED)
        draft.set(conditions.RESTART_SUSPENDED)
    else:
        draft.set(conditions.IS_RESUMED)
    for job in draft.buckets.active:
        if bool(job.spec.suspend) != suspend and not job.is_leaving:
            draft.add(SuspendJob(job.metadata.name, job.metadata.uid, suspend))
    return False
