"""
What to do about one JobSet, and what its status should say: `plan(observed) -> Plan`, pure.

`STEPS` is the whole order of one pass; each step is one feature and may end the pass. Level-based: a plan
follows from the state alone, so a plan that was carried out leaves nothing to do, and one that was
interrupted is found again. Source of the order: jobset pkg/controllers/jobset_controller.go, reconcile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from inplace.controller.plan.actions import DeleteJob, Plan
from inplace.controller.plan.agent import bind_agents
from inplace.controller.plan.bad_nodes import avoid_bad_nodes
from inplace.controller.plan.budget import excuse_disruptions
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.epochs import decide_epochs, divide_into_scopes, list_notices, mend_contradictions
from inplace.controller.plan.escalation import replace_bad_spares, replace_pods
from inplace.controller.plan.executions import count_executions
from inplace.controller.plan.failure import fail_or_restart, reset_index_backoff
from inplace.controller.plan.finish import (
    complete,
    delete_active_when_finished,
    delete_after_ttl,
    end_at_deadline,
    fail_never_joined,
    keep_start_time,
)
from inplace.controller.plan.history import correct_last_failure
from inplace.controller.plan.layout import (
    count_jobs,
    create_missing_jobs,
    follow_suspend,
    note_jobs_ready,
    note_startup,
    resize_jobs,
)
from inplace.controller.plan.leaving import leave_bad_domains
from inplace.controller.plan.manual import exchange_members, restart_on_request
from inplace.controller.plan.objects import ensure_claims, ensure_service, keep_gang
from inplace.controller.plan.observed import Observed
from inplace.controller.plan.placement import lift_gates
from inplace.controller.plan.problems.report import refuse_oversize, report_problems
from inplace.controller.plan.waiting import tell_blocked, watch_barriers

Step = Callable[[Draft], bool]
"""One feature. True ends the pass: nothing after it applies."""


def plan(observed: Observed) -> Plan:
    """Decide one pass."""
    draft = Draft(observed)
    for step in STEPS:
        if step(draft):
            break
    return draft.finish()


def leave_alone(draft: Draft) -> bool:
    """End the pass for a JobSet that is being deleted, or that another controller manages.

    One that another controller finished is deleted by its TTL all the same: MultiKueue's, in the managing cluster.
    """
    if draft.jobset.is_leaving:
        return True
    if not draft.jobset.is_ours:
        delete_after_ttl(draft)
        return True
    return False


def delete_previous(draft: Draft) -> bool:
    """Delete the Jobs of earlier restarts, of a finished JobSet too: nothing else would ever stop them."""
    for job in draft.buckets.unreadable:
        draft.warn(
            "UnreadableJob",
            f"job {job.metadata.name} has no readable restart-attempt or job-restart-attempt, neither as label nor as "
            "annotation: it is recreated",
        )
    for job in draft.buckets.previous:
        draft.delete(job, DeleteJob.PREVIOUS)
    return False


STEPS: Final[tuple[Step, ...]] = (
    leave_alone,
    mend_contradictions,
    refuse_oversize,
    count_jobs,
    delete_previous,
    delete_active_when_finished,
    keep_gang,
    correct_last_failure,
    delete_after_ttl,
    keep_start_time,
    divide_into_scopes,
    report_problems,
    note_jobs_ready,
    end_at_deadline,
    fail_or_restart,
    fail_never_joined,
    leave_bad_domains,
    complete,
    bind_agents,
    ensure_service,
    ensure_claims,
    resize_jobs,
    count_executions,
    create_missing_jobs,
    note_startup,
    follow_suspend,
    avoid_bad_nodes,
    lift_gates,
    exchange_members,
    restart_on_request,
    excuse_disruptions,
    decide_epochs,
    list_notices,
    replace_pods,
    replace_bad_spares,
    reset_index_backoff,
    tell_blocked,
    watch_barriers,
)
