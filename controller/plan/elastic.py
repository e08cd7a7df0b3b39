"""
Elastic Indexed Jobs: parallelism and completions of a replicatedJob change while it runs (KEP-3715).

Both change together, or the Job API refuses the change. In place, the group restarts once, uncounted, at the new size.
When it grows, the first new Pod announces the next epoch: the running Pods go on until a new Pod is there. When it
shrinks there is no new Pod, so the controller deprecates the running epoch, whose workers know the old size. The
barrier waits until the surplus Pods are gone. Source: jobset pkg/controllers/elastic_jobset.go.
"""

from __future__ import annotations

from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.fields import ReplicatedJob
from inplace.controller.plan.actions import ResizeJob
from inplace.controller.plan.budget import exempt_unless_restarting
from inplace.controller.plan.draft import Draft


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
        exempt_unless_restarting(draft, name, Trigger.RESIZE)
        if present is not None and present > size:
            draft.deprecating.add(jobset.scope_of(name).name)
    return False


def wanted_size(job: ReplicatedJob) -> int | None:
    """Return how many Pods one Job of an elastic replicatedJob should have; None for one that is not elastic."""
    indexed = job.form.completion_mode in (None, "Indexed")
    return job.parallelism if indexed and job.parallelism == job.completions >= 1 else None
