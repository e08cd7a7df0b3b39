"""Bring the Jobs to what the spec says: create, count, resize, suspend and resume them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inplace.common.jobset import conditions
from inplace.common.jobset.buckets import is_ready
from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.conditions import RESTART_JOBS_READY
from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import COUNTERS
from inplace.common.jobset.kinds import Job
from inplace.controller.plan.actions import DeleteJob, ResizeJob, ResumeJob, SuspendJob
from inplace.controller.plan.budget import exempt_unless_restarting
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.finish import end_waiting
from inplace.controller.plan.order import not_due


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


# Elastic Indexed Jobs: parallelism and completions of a replicatedJob change while it runs (KEP-3715).
#
# Both change together, or the Job API refuses the change. In place, the group restarts once, uncounted, at the new
# size. When it grows, the first new Pod announces the next epoch: the running Pods go on until a new Pod is there. When
# it shrinks there is no new Pod, so the controller deprecates the running epoch, whose workers know the old size. The
# barrier waits until the surplus Pods are gone. Source: jobset pkg/controllers/elastic_jobset.go.


def resize_jobs(draft: Draft) -> bool:
    """Give every active Job the size that its template says."""
    jobset = draft.jobset
    sizes = {job.name: wanted_size(job) for job in jobset.replicated_jobs}
    for job in draft.buckets.active:
        name = jobset.places[job.metadata.name][0]
        size, present = sizes[name], job.spec.parallelism
        if size is None or (present, job.spec.completions) == (size, size) or job.is_leaving:
            continue
        draft.add(ResizeJob(job.metadata.name, job.metadata.uid, size))
        if jobset.suspended or name not in draft.order.expected:
            continue  # nobody runs in it, or not in the group
        scope = jobset.scope_of(name)
        ranks = scope.ranks
        if ranks is not None and not ranks.pods and all(slot < size for slot in ranks.slots()):
            continue  # spares come, or go
        exempt_unless_restarting(draft, name, Trigger.RESIZE)
        if present is not None and present > size:
            draft.deprecating.add(scope.name)
    return False


def wanted_size(job: ReplicatedJob) -> int | None:
    """Return how many Pods one Job of an elastic replicatedJob should have; None for one that is not elastic."""
    indexed = job.form.completion_mode in (None, "Indexed")
    return job.parallelism if indexed and job.parallelism == job.completions >= 1 else None


# Count the Jobs for status.replicatedJobsStatus, and detect the end of a restart.


def count_jobs(draft: Draft) -> bool:
    """Count the Jobs of each replicatedJob; written sorted by name, descending, as upstream does."""
    jobset, buckets = draft.jobset, draft.buckets
    old = {entry.get("name"): entry for entry in jobset.status.get(COUNTERS) or ()}
    places = jobset.places
    counts = {
        job.name: dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        for job in jobset.replicated_jobs
    }
    for job in buckets.active:
        count = counts[places[job.metadata.name][0]]
        count["ready"] += is_ready(job)
        count["active"] += (job.status.active or 0) > 0
        count["suspended"] += bool(job.spec.suspend)
    for job in buckets.successful:
        counts[places[job.metadata.name][0]]["succeeded"] += 1
    for job in buckets.failed + buckets.left:
        counts[places[job.metadata.name][0]]["failed"] += 1
    new = [{**old.get(name, {}), "name": name, **counts[name]} for name in sorted(counts, reverse=True)]
    if _by_name(new) != _by_name(old.values()):
        draft.status[COUNTERS] = new
    draft.status.setdefault("restarts", 0)
    return False


def note_jobs_ready(draft: Draft) -> bool:
    """Note that a restart is over once every Job is ready or done."""
    if not draft.jobset.suspended:
        ended = len(draft.buckets.successful) + len(draft.buckets.left)
        done = sum(is_ready(job) for job in draft.buckets.active) + ended
        if done == len(draft.jobset.places):
            draft.set(RESTART_JOBS_READY)
    return False


def _by_name(entries: Iterable[Mapping[str, Any]]) -> dict[Any, Mapping[str, Any]]:
    return {entry.get("name"): entry for entry in entries}


# Report which replicatedJobs wait for which at the start, and set the conditions of InOrder.
#
# Source: jobset pkg/controllers/startup_policy.go.


def note_startup(draft: Draft) -> bool:
    """Say who waits for whom, and whether the start in order goes on or is over; a suspended JobSet starts nothing."""
    if not draft.jobset.has_order or draft.jobset.suspended:
        return False
    waiting = "; ".join(not_due(draft.jobset, draft.order))
    draft.set(conditions.start_waiting(waiting) if waiting else conditions.ALL_DUE, quietly=True)
    if not draft.jobset.starts_in_order:
        return False
    if draft.order.has_started:
        draft.set(conditions.IN_ORDER_COMPLETED)
        draft.turn_false(conditions.STARTUP_IN_PROGRESS)
    else:
        draft.set(conditions.IN_ORDER_IN_PROGRESS)
        draft.turn_false(conditions.STARTUP_COMPLETED)
    return False


# Suspend and resume the Jobs as the JobSet says.


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
