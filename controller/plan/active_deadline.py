"""
End a JobSet that is active for longer than `spec.activeDeadlineSeconds` (KEP-1186).

`status.startTime` is when it began to run: at its first pass, at a resume, and when all its Jobs are recreated. While
it is suspended there is none. Waiting for other replicatedJobs, for a node or at a barrier counts as active. A group
restart in place and a restart of single Jobs change nothing. docs/adr/0029
"""

from __future__ import annotations

from typing import Final

from inplace.common.jobset import conditions
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.jobset import JobSet
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import DeleteJob
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.finish import REQUEUE_S_MAX, complete, fail

# Upstream counts in nanoseconds of an int64, 292 years; a longer deadline never comes.
DEADLINE_S_MAX: Final = (2**63 - 1) // 10**9


def keep_start_time(draft: Draft) -> bool:
    """Note when the JobSet began to run, and drop that while it is suspended.

    Without a deadline nothing is decided from it, so it waits for another reason to write the status.
    """
    started = draft.status.get(wire.START_TIME)
    if draft.jobset.suspended:
        if started is not None:
            draft.status[wire.START_TIME] = None
    elif started is None and active_deadline_s(draft.jobset) is None:
        draft.carry(wire.START_TIME, draft.observed.now)
    elif started is None:
        draft.status[wire.START_TIME] = draft.observed.now
    return False


def end_at_deadline(draft: Draft) -> bool:
    """Fail the JobSet when its time is over, or look again then; ends the pass when it is over.

    A success is counted first, a failed Job is not asked about any more. The status says Failed once every running Job
    is being deleted, so that a deletion which is refused is not forgotten.
    """
    deadline_s, began_s = active_deadline_s(draft.jobset), unix_time(draft.status.get(wire.START_TIME))
    if deadline_s is None or began_s is None or deadline_s > DEADLINE_S_MAX:
        return False
    now_s = draft.now_s or began_s
    if (left_s := began_s + deadline_s - now_s) > 0:
        draft.look_again(min(left_s, REQUEUE_S_MAX))
        return False
    if complete(draft):
        return True
    running = [job for job in draft.buckets.active if not job.is_leaving]
    for job in running:
        draft.delete(job, DeleteJob.DEADLINE)
    if not running:
        fail(draft, conditions.deadline_exceeded(deadline_s))
        draft.deadline_exceeded = True
    return True


def active_deadline_s(jobset: JobSet) -> int | None:
    """Return spec.activeDeadlineSeconds; None for none."""
    value = (jobset.raw.get("spec") or {}).get("activeDeadlineSeconds")
    return None if value is None else int(value)
