"""
Report which replicatedJobs wait for which at the start, and set the conditions of InOrder.

Source: jobset pkg/controllers/startup_policy.go.
"""

from __future__ import annotations

from inplace.common.jobset import conditions
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.order import not_due


def note_startup(draft: Draft) -> bool:
    """Say who waits for whom, and whether the start in order goes on or is over; a suspended JobSet starts nothing."""
    if not draft.jobset.has_order or draft.jobset.suspended:
        return False
    waiting = "; ".join(not_due(draft.jobset, draft.order))
    draft.set(conditions.start_waiting(waiting) if waiting else conditions.ALL_DUE, quietly=True)
    if not draft.jobset.starts_in_order:
        return False
    if draft.order.has_started:
        draft.set(conditions.IN_ORDER_COMPLETED)
        draft.turn_false(conditions.STARTUP_IN_PROGRESS)
    else:
        draft.set(conditions.IN_ORDER_IN_PROGRESS)
        draft.turn_false(conditions.STARTUP_COMPLETED)
    return False
