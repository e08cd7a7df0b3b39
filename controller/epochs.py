"""Group restarts in place: what the ledger decided, as status and actions."""

from __future__ import annotations

from common import wire
from common.epoch.errors import InvariantError
from common.epoch.ledger import Decision
from controller import conditions
from controller.draft import COUNTERS, COUNTERS_HOLD_RESTART_S, DeleteJob, Draft
from controller.finish import fail
from controller.kinds import Job


def decide_epochs(draft: Draft) -> bool:
    """Write S and D, fail after one restart too many, recreate Jobs whose Pods cannot restart in place."""
    decision = draft.observed.decision
    if decision is None or draft.jobset.suspended:
        return False
    if decision.exceeded:
        fail(draft, conditions.reached_max_restarts())
        return True
    synced, deprecated = draft.jobset.epochs
    if decision.synced < synced or decision.deprecated < deprecated:
        raise InvariantError(f"S and D only grow: decided {decision!r}, status says {synced} and {deprecated}")
    wanted = decision.deprecated if not draft.is_shrinking else max(decision.deprecated, synced)
    if (decision.synced, wanted) != (synced, deprecated):
        draft.status |= wire.status_of_epochs(decision.synced, wanted)
    if decision.synced <= decision.deprecated or decision.synced == 0:
        draft.hold_s = COUNTERS_HOLD_RESTART_S if COUNTERS in draft.jobset.status else 0.0
    for job in draft.buckets.active + draft.buckets.successful:
        if _cannot_restart(draft, decision, job):
            draft.delete(job, DeleteJob.COMPLETED_PODS)
    return False


def _cannot_restart(draft: Draft, decision: Decision, job: Job) -> bool:
    """Say whether some Pod of a Job completed, so that it cannot join the restart that is under way.

    The Job's own count is asked as well: a completed Pod may be gone (kubectl delete, Pod garbage
    collection), and the Job controller never replaces it.
    """
    synced, deprecated = draft.jobset.epochs
    restarting = synced > 0 and decision.synced == synced and deprecated >= synced
    place = draft.jobset.places[job.metadata.name]
    if place[0] not in draft.order.expected:
        return False
    return place in decision.recreate or (restarting and (job.status.succeeded or 0) > 0)
