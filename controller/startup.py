"""The two conditions of startupPolicy InOrder. Source: jobset pkg/controllers/startup_policy.go."""

from __future__ import annotations

from controller import conditions
from controller.draft import Draft


def note_startup(draft: Draft) -> bool:
    """Say whether the start in order goes on or is over; a suspended JobSet starts nothing."""
    if not draft.jobset.starts_in_order or draft.jobset.suspended:
        return False
    if draft.order.has_started:
        draft.set(conditions.IN_ORDER_COMPLETED)
        draft.turn_false(conditions.STARTUP_IN_PROGRESS)
    else:
        draft.set(conditions.IN_ORDER_IN_PROGRESS)
        draft.turn_false(conditions.STARTUP_COMPLETED)
    return False
