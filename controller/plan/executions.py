"""
Count the executions of a JobSet (KEP-1282): `status.executionAttempts`, and an annotation on its Jobs and Pods.

The first run is execution 0. A resume and a recreation of all Jobs each begin the next one; a restart of single Jobs
and a group restart in place do not. A Job carries the number of the execution in which it began to run. Jobs that are
older than this field, or that never ran, carry none; they are left as they are. docs/adr/0029
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inplace.common.jobset.buckets import execution_of
from inplace.common.jobset.conditions import SUSPENDED
from inplace.common.jobset.jobset import COUNTERS
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft

# The API's limit on the two lists of replicatedJobsStatus; a replicatedJob of more Jobs restarts as a whole JobSet.
JOB_COUNTERS_MAX: Final = 1024


def count_executions(draft: Draft) -> bool:
    """Begin an execution: the first with any write of the status, one after a resume BEFORE a Job is touched."""
    jobset, counted = draft.jobset, draft.execution
    if jobset.suspended:
        runs_still = any(not job.spec.suspend for job in draft.buckets.current)
        if counted is None and runs_still and not jobset.is_true(SUSPENDED):
            draft.carry(wire.EXECUTION_ATTEMPTS, jobset.restarts)  # the first pass after an upgrade suspends it
        return False
    if jobset.is_true(SUSPENDED) and not _is_resuming(draft, counted):
        first = jobset.restarts + 1 if jobset.restarts else 0
        draft.status[wire.EXECUTION_ATTEMPTS] = first if counted is None else counted + 1
        draft.is_urgent = True
    elif counted is None:
        draft.carry(wire.EXECUTION_ATTEMPTS, jobset.restarts)
    return False


def recreate_all_jobs(draft: Draft, *, counted: bool) -> None:
    """Say in the status that every Job is of an earlier attempt; `counted` restarts use up maxRestarts."""
    restarts, execution = draft.jobset.restarts + 1, draft.execution
    draft.status["restarts"] = restarts
    if counted:
        draft.status["restartsCountTowardsMax"] = draft.jobset.restarts_counted + 1
    draft.status[wire.EXECUTION_ATTEMPTS] = restarts if execution is None else execution + 1
    if not draft.jobset.suspended:
        draft.status[wire.START_TIME] = draft.observed.now


def recreate_jobs(draft: Draft, replicated_job: str, indexes: Sequence[int], counted: Sequence[int]) -> None:
    """Say in the status that some Jobs of a replicatedJob are of an earlier attempt; `counted` use up maxRestarts."""
    replicas = draft.jobset.replicated_job(replicated_job).replicas
    changes = {"jobRestarts": indexes} | ({"jobRestartsCountTowardsMax": counted} if counted else {})
    draft.status[COUNTERS] = [
        dict(entry) | {name: _bumped(entry, name, replicas, which) for name, which in changes.items()}
        if entry.get("name") == replicated_job
        else entry
        for entry in draft.status[COUNTERS]
    ]
    draft.is_urgent = True


def _bumped(entry: Mapping[str, Any], name: str, replicas: int, which: Sequence[int]) -> list[int]:
    """Return one list of counters, a zero for each Job where there was none, with some of them raised."""
    old = list(entry.get(name) or ())[:JOB_COUNTERS_MAX]
    new = old + [0] * (min(replicas, JOB_COUNTERS_MAX) - len(old))
    for index in which:
        new[index] += 1
    return new


def _is_resuming(draft: Draft, counted: int | None) -> bool:
    """Say whether this resume was counted by an earlier pass.

    The write that counts also turns Suspended False, except where replicatedJobs are resumed in order. There, Jobs that
    wait for their turn have a smaller number than the status, or none.
    """
    active = [job for job in draft.buckets.active if not job.is_leaving]
    if any(not job.spec.suspend for job in active):
        return True  # or it was resumed before all of its Jobs were suspended
    if counted is None or not draft.jobset.starts_in_order:
        return False
    return any((number := execution_of(job)) is None or number < counted for job in active)
