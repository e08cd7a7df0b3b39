"""The end of a JobSet: completed, failed, and what happens to what still runs."""

from __future__ import annotations

from controller import conditions
from controller.draft import DeleteJob, Draft


def complete(draft: Draft) -> bool:
    """Complete the JobSet when its success policy is met; ends the pass then."""
    successful = draft.buckets.successful
    if not successful:
        return False
    policy, places = draft.jobset.success_policy, draft.jobset.places

    def counts(replicated_job: str) -> bool:
        return not policy.targets or replicated_job in policy.targets

    succeeded = sum(counts(places[job.metadata.name][0]) for job in successful)
    expected = 1 if policy.operator == "Any" else sum(counts(replicated_job) for replicated_job, _ in places.values())
    if succeeded < expected:
        return False
    draft.set(conditions.ALL_JOBS_COMPLETED)
    draft.set(conditions.RESTART_COMPLETED)
    draft.status["terminalState"] = conditions.COMPLETED
    return True


def fail(draft: Draft, condition: conditions.Condition) -> None:
    """Fail the JobSet for good."""
    draft.set(condition)
    draft.set(conditions.RESTART_FAILED)
    draft.status["terminalState"] = conditions.FAILED


def delete_active_when_finished(draft: Draft) -> bool:
    """Stop what still runs of a finished JobSet; finished Jobs stay, for their logs."""
    for job in draft.buckets.active if draft.jobset.is_finished else ():
        draft.delete(job, DeleteJob.FINISHED)
    return False
