"""Fail a JobSet whose Pods end before they join more often than `maxRestarts` has room for."""

from __future__ import annotations

from inplace.common.jobset import conditions
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.finish import fail


def fail_never_joined(draft: Draft) -> bool:
    """Count each end before joining as a restart in vain; end the pass when that is one too many."""
    found, policy = draft.observed.never_joined, draft.jobset.failure_policy
    if found is None or policy is None or draft.jobset.suspended or not draft.jobset.is_in_place:
        return False
    if draft.jobset.restarts_so_far + found.count <= policy.restarts_max:
        return False
    fail(draft, conditions.never_joined(str(found)))
    return True
