"""The end of a JobSet: completed, failed, and what happens to what still runs."""

from __future__ import annotations

from collections.abc import Iterable

from controller import conditions
from controller.draft import DeleteJob, Draft
from controller.rules import first_failed


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


def fail(draft: Draft, condition: conditions.Condition) -> None:
    """Fail the JobSet for good."""
    draft.set(condition)
    draft.set(conditions.RESTART_FAILED)
    draft.status["terminalState"] = conditions.FAILED
    end_waiting(draft)


def end_waiting(draft: Draft) -> None:
    """Say that nothing restarts and nobody waits any more, in the write that says why."""
    draft.turn_false(conditions.IN_PLACE_RESTARTING)
    draft.turn_false(conditions.BARRIER_WAITING)
    draft.turn_false(conditions.START_WAITING)


def delete_active_when_finished(draft: Draft) -> bool:
    """Stop what still runs of a finished JobSet; finished Jobs stay, for their logs."""
    for job in draft.buckets.active if draft.jobset.is_finished else ():
        draft.delete(job, DeleteJob.FINISHED)
    return False
