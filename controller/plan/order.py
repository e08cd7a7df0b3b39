"""
In which order replicatedJobs start, and which of them a group restart in place waits for.

Without startupPolicy InOrder and without dependsOn all start at once, and the barrier waits for all. Otherwise a
replicatedJob is *due* when those before it have started far enough. The barrier waits only for due ones: agents hold
their workers back until all expected Pods are there, so the barrier must not wait for a replicatedJob that itself waits
for another one to be Ready.

Once its Jobs run, a replicatedJob stays expected, although a group restart makes those before it not Ready for a while.
It leaves the group when all its Jobs completed and others waited for that: an initializer does not run again because a
worker died. Source: jobset pkg/controllers/startup_policy.go, depends_on.go; docs/adr/0023.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inplace.common.jobset.buckets import Buckets, is_ready
from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import COMPLETE, JobSet
from inplace.common.jobset.kinds import Job


@dataclass(frozen=True, slots=True)
class StartOrder:
    """How far the start is.

    Args:
        due: names of the replicatedJobs that may start now, or have.
        expected: names of those that the barrier of a group waits for.
        has_started: every one is up, or was and is not started over.
    """

    due: frozenset[str]
    expected: frozenset[str]
    has_started: bool = True


@dataclass(frozen=True, slots=True)
class _Standing:
    """How far one replicatedJob is.

    Args:
        is_up: each of its Jobs is ready or finished.
        is_complete: each of its Jobs succeeded.
        is_running: some Job of the current attempt is not suspended.
    """

    is_up: bool
    is_complete: bool
    is_running: bool


def order_of(jobset: JobSet, buckets: Buckets) -> StartOrder:
    """Say how far the start of a JobSet is; O(Jobs) where there is an order, O(replicatedJobs) elsewhere."""
    names = frozenset(job.name for job in jobset.replicated_jobs)
    if not jobset.has_order or jobset.oversize:
        return StartOrder(names, names - jobset.opted_out)
    standings = _standings(jobset, buckets)
    if jobset.starts_in_order:
        due, has_started = _due_in_order(jobset, standings)
        gone = {name for name, standing in standings.items() if standing.is_complete}
    else:
        broken = {name for name, _ in broken_dependencies(jobset)}
        due = frozenset(
            job.name for job in jobset.replicated_jobs if job.name not in broken and _dependencies_hold(job, standings)
        )
        has_started = due == names
        awaited = jobset.awaited_to_complete
        gone = {name for name, standing in standings.items() if standing.is_complete and name in awaited}
    running = frozenset(name for name, standing in standings.items() if standing.is_running)
    return StartOrder(due, (due | running) - gone - jobset.opted_out, has_started)


def broken_dependencies(jobset: JobSet) -> Iterator[tuple[str, str]]:
    """Yield (replicatedJob, what it depends on) where that is no replicatedJob before it: it never starts."""
    before: set[str] = set()
    for job in jobset.replicated_jobs:
        for entry in job.depends_on:
            if entry.get("name") not in before:
                yield job.name, str(entry.get("name"))
        before.add(job.name)


def not_due(jobset: JobSet, order: StartOrder) -> Iterator[str]:
    """Yield for each replicatedJob that may not start yet what it waits for, in words."""
    due = [job.name for job in jobset.replicated_jobs if job.name in order.due]
    for job in jobset.replicated_jobs:
        if job.name in order.due:
            continue
        if jobset.starts_in_order:
            yield f"replicatedJob {job.name} waits for {due[-1]} to be up"
        else:
            needs = [f"{entry.get('name')} to be {entry.get('status')}" for entry in job.depends_on]
            yield f"replicatedJob {job.name} waits for {' and '.join(needs)}"


def _due_in_order(jobset: JobSet, standings: Mapping[str, _Standing]) -> tuple[frozenset[str], bool]:
    """Return those up to the first that is not up yet.

    Under in-place restart the order has passed whatever stands before one that runs: a group restart, which makes
    every Pod not Ready, does not start the sequence over.
    """
    jobs = jobset.replicated_jobs
    due = []
    for position, job in enumerate(jobs):
        due.append(job.name)
        passed = jobset.is_in_place and any(standings[later.name].is_running for later in jobs[position + 1 :])
        if not (standings[job.name].is_up or passed):
            has_passed = jobset.is_in_place and position == len(jobs) - 1 and jobset.startup_completed
            return frozenset(due), has_passed and standings[job.name].is_running
    return frozenset(due), True


def _dependencies_hold(job: ReplicatedJob, standings: Mapping[str, _Standing]) -> bool:
    """Say whether all that a replicatedJob waits for is there."""
    on = [(standings[str(entry.get("name"))], entry.get("status")) for entry in job.depends_on]
    return all(standing.is_complete if status == COMPLETE else standing.is_up for standing, status in on)


def _standings(jobset: JobSet, buckets: Buckets) -> Mapping[str, _Standing]:
    up, complete, running = (dict.fromkeys((job.name for job in jobset.replicated_jobs), 0) for _ in range(3))
    for job in buckets.current:
        name = jobset.places[job.metadata.name][0]
        succeeded = _is_complete(job)
        complete[name] += succeeded
        up[name] += succeeded or job.condition("Failed") is not None or is_ready(job)
        running[name] += not job.spec.suspend
    return {
        job.name: _Standing(
            is_up=up[job.name] == job.replicas,
            is_complete=complete[job.name] == job.replicas,
            is_running=running[job.name] > 0,
        )
        for job in jobset.replicated_jobs
    }


def _is_complete(job: Job) -> bool:
    return job.condition("Failed") is None and job.condition("Complete") is not None
