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
from inplace.common.jobset.causes import Failure
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.rules import first_failed
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import DeleteJob, DeleteJobSet
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.history import note_last_failure

# A clock that is corrected, or a longer sleep than the event loop likes, is found within the hour.
REQUEUE_S_MAX: Final = 3600.0


def complete(draft: Draft) -> bool:
    """Complete the JobSet when its success policy is met; ends the pass then.

    A Job that was left failed is not waited for. When no other is left that counts, the JobSet has failed.
    """
    policy, places = draft.jobset.success_policy, draft.jobset.places

    def counted(names: Iterable[str]) -> int:
        return sum(not policy.targets or places[name][0] in policy.targets for name in names)

    succeeded = counted(job.metadata.name for job in draft.buckets.successful)
    left = counted(job.metadata.name for job in draft.buckets.left)
    total = counted(places)
    if left and left == total:
        fail(draft, conditions.none_can_succeed(first_failed(draft.buckets.left).metadata.name))
        return True
    if not draft.buckets.successful or succeeded < (1 if policy.operator == "Any" else total - left):
        return False
    draft.set(conditions.ALL_JOBS_COMPLETED)
    draft.set(conditions.RESTART_COMPLETED)
    draft.status["terminalState"] = conditions.COMPLETED
    end_waiting(draft)
    return True


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
    """Stop what still runs of a finished JobSet; finished Jobs stay, for their logs."""
    for job in draft.buckets.active if draft.jobset.is_finished else ():
        draft.delete(job, DeleteJob.FINISHED)
    return False


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
