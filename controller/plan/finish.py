"""
Finish a JobSet: completed or failed, then clean up running Jobs, and delete it after its TTL.

A controller wrote the time of finishing by its own clock, and now is our clock's time. If the clocks differ and a
JobSet seems to finish in the future, it is deleted later, never earlier: the TTL counts from the written time. Source:
jobset pkg/controllers/ttl_after_finished.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from inplace.common.jobset import conditions
from inplace.common.jobset.causes import Failure, unix_time
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Job
from inplace.common.jobset.rules import first_failed
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import DeleteJob, DeleteJobSet
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.history import note_last_failure

# A clock that is corrected, or a longer sleep than the event loop likes, is found within the hour.
REQUEUE_S_MAX: Final = 3600.0
SPARES_END_S: Final = 30.0  # an agent sees the end within a second; a Pod without one never ends


def complete(draft: Draft) -> bool:
    """Complete the JobSet when its success policy is met; ends the pass then.

    A Job that was left failed is not waited for. When no other is left that counts, the JobSet has failed.
    """
    policy, places = draft.jobset.success_policy, draft.jobset.places

    def counted(names: Iterable[str]) -> int:
        return sum(not policy.targets or places[name][0] in policy.targets for name in names)

    done = [job for job in draft.buckets.active if _is_done(draft, job)]
    succeeded = counted(job.metadata.name for job in (*draft.buckets.successful, *done))
    left = counted(job.metadata.name for job in draft.buckets.left)
    total = counted(places)
    if left and left == total:
        fail(draft, conditions.none_can_succeed(first_failed(draft.buckets.left).metadata.name))
        return True
    if not (draft.buckets.successful or done) or succeeded < (1 if policy.operator == "Any" else total - left):
        return False
    draft.set(conditions.ALL_JOBS_COMPLETED)
    draft.set(conditions.RESTART_COMPLETED)
    draft.status["terminalState"] = conditions.COMPLETED
    end_waiting(draft)
    return True


def _is_done(draft: Draft, job: Job) -> bool:
    """Say whether all members of a Job with spares have completed: its other Pods train nothing any more."""
    place = draft.jobset.places.find(job.metadata.name)
    return place is not None and place[0] in draft.observed.done


def fail(draft: Draft, condition: conditions.Condition, failure: Failure | None = None) -> None:
    """Fail the JobSet for good; `failure` is that of a Job, where no Pod was seen to fail."""
    note_last_failure(draft, failure)
    draft.set(condition)
    draft.set(conditions.RESTART_FAILED)
    draft.status["terminalState"] = conditions.FAILED
    end_waiting(draft)


def end_waiting(draft: Draft) -> None:
    """End the conditions of restarts and waiting barriers, and drop all notices, in the write that says why."""
    draft.turn_false(conditions.IN_PLACE_RESTARTING)
    draft.turn_false(conditions.BARRIER_WAITING)
    draft.turn_false(conditions.START_WAITING)
    draft.turn_false(conditions.CONTAINERS_BLOCKED)
    if wire.NOTICES in draft.status:
        draft.status[wire.NOTICES] = None


def delete_active_when_finished(draft: Draft) -> bool:
    """Stop what still runs of a finished JobSet; finished Jobs stay, for their logs. Spares may end by themselves."""
    jobset = draft.jobset
    for job in draft.buckets.active if jobset.is_finished else ():
        left_s = _spares_end_in_s(draft) if jobset.is_true(conditions.COMPLETED) and _has_spares(jobset, job) else 0.0
        if left_s > 0.0:
            draft.look_again(left_s)
        else:
            draft.delete(job, DeleteJob.FINISHED)
    return False


def _has_spares(jobset: JobSet, job: Job) -> bool:
    place = jobset.places.find(job.metadata.name)
    is_member = place is not None and place[0] not in jobset.opted_out
    return place is not None and is_member and jobset.scope_of(place[0]).has_spares


def _spares_end_in_s(draft: Draft) -> float:
    """Return for how long the spares of a completed JobSet may still end, so that their Job completes, too."""
    try:
        ended_s = _finished_at(draft.jobset).timestamp()
    except ValueError:
        return 0.0
    return min(SPARES_END_S, ended_s + SPARES_END_S - draft.now_s)


def delete_after_ttl(draft: Draft) -> bool:
    """Delete a finished JobSet whose time has come, or look again when it has; ends the pass of a finished one."""
    jobset = draft.jobset
    if not jobset.is_finished:
        return False
    ttl_s = jobset.ttl_s
    if ttl_s is None:
        return True
    try:
        left_s = _finished_at(jobset).timestamp() + ttl_s - datetime.fromisoformat(draft.observed.now).timestamp()
    except ValueError as error:
        draft.warn("TTLUnknown", f"expected a time when the jobset finished, saw {error}: it is not deleted by its TTL")
        return True
    if left_s <= 0:
        draft.add(DeleteJobSet(jobset.uid))
    else:
        draft.look_again(min(left_s, REQUEUE_S_MAX))
    return True


def _finished_at(jobset: JobSet) -> datetime:
    """Return when the terminal condition became True.

    Raises:
        ValueError: no time was written.
    """
    for condition in jobset.status.get("conditions") or ():
        if condition.get("type") in (conditions.COMPLETED, conditions.FAILED) and condition.get("status") == "True":
            return datetime.fromisoformat(str(condition.get("lastTransitionTime")))
    raise ValueError("no terminal condition")


# End a JobSet that is active for longer than `spec.activeDeadlineSeconds` (KEP-1186).
#
# `status.startTime` is when it began to run: at its first pass, at a resume, and when all its Jobs are recreated. While
# it is suspended there is none. Waiting for other replicatedJobs, for a node or at a barrier counts as active. A group
# restart in place and a restart of single Jobs change nothing. docs/adr/0029
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


# Fail a JobSet whose Pods end before they join more often than `maxRestarts` has room for.


def fail_never_joined(draft: Draft) -> bool:
    """Count each end before joining as a restart in vain; end the pass when that is one too many."""
    found, policy = draft.observed.never_joined, draft.jobset.failure_policy
    if found is None or policy is None or draft.jobset.suspended or not draft.jobset.is_in_place:
        return False
    if draft.jobset.restarts_so_far + found.count <= policy.restarts_max:
        return False
    fail(draft, conditions.never_joined(str(found)))
    return True
