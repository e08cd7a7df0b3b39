"""
Use the ladder of `inplace.dev/escalation`: which rung a counted failure takes, and what that changes of its restart.

A use is written in the same status write as the restart that it is for: with D, or with the count of a recreation. A
restart that is counted neither way takes no place. docs/adr/0070
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from inplace.common import wire
from inplace.common.epoch.decision import Decision
from inplace.controller.plan.budget import exempt_next_epoch
from inplace.controller.plan.draft import Draft
from inplace.controller.spec import conditions
from inplace.controller.spec.causes import Trigger, unix_time
from inplace.controller.spec.escalation import (
    FAIL,
    RECREATE_JOBS,
    Use,
    count_uses,
    fitting,
    kept,
    use_of_restart,
    uses_of,
)
from inplace.controller.spec.scopes import Scope


def climb(draft: Draft, scope: Scope, decision: Decision) -> Decision:
    """Take a rung for the restart that a decision begins; return the decision as the rung changes it."""
    if not draft.jobset.ladder or not _begins_counted(draft, scope, decision):
        return decision
    use = _take(draft, scope)
    stays = replace(decision, synced=scope.synced, deprecated=scope.synced)
    if use.rung == FAIL:
        # Where all announced, no failed Job is about to decide otherwise (controller/plan/budget.py).
        return replace(stays, exceeded=decision.synced > scope.synced)
    if use.rung == RECREATE_JOBS:
        _recreate(draft, scope)
        return stays if decision.synced == scope.synced + 1 > decision.deprecated else decision
    return decision


def count_recreation(draft: Draft, scope: Scope | None) -> str:
    """Take a rung for a recreation that counts towards maxRestarts; return its name, "" where there is no ladder.

    A failure that took one when its epoch was deprecated is counted already: its use becomes that of the recreation.

    The scope is that of the Job that failed; None where its replicatedJob opted out.
    """
    if not draft.jobset.ladder:
        return ""
    uses = uses_of(draft.status)
    known = use_of_restart(uses, scope.name, scope.synced + 1) if scope is not None else None
    if known is None or known.recreation:
        return _take(draft, scope, recreation=True).rung
    changed = replace(known, recreation=True, pod="", pod_uid="")
    _write(draft, (changed if use is known else use for use in uses))
    return known.rung


def _begins_counted(draft: Draft, scope: Scope, decision: Decision) -> bool:
    """Say whether a restart begins that maxRestarts counts and allows."""
    is_running = scope.synced > scope.deprecated
    is_over = scope.synced < decision.synced == scope.synced + 1 or decision.deprecated >= scope.synced
    now = draft.jobset.scopes_in(draft.status)[scope.name]  # with what this pass has exempted
    policy = draft.jobset.failure_policy
    is_allowed = policy is not None and decision.restarts <= policy.restarts_max and not decision.exceeded
    return is_running and is_over and now.last_exempt <= scope.synced and is_allowed


def _take(draft: Draft, scope: Scope | None, *, recreation: bool = False) -> Use:
    """Write a use of the first rung that has room, or that none has; tell it."""
    ladder, now = draft.jobset.ladder, draft.observed.now_micro or draft.observed.now
    now_s = unix_time(now) or 0.0
    old = uses_of(draft.status)
    uses = (*(use for use in old if _ends_the_jobset(draft, use)), *kept(ladder, old, now_s, now))
    rung = fitting(ladder, uses, now_s)
    name, epoch = (scope.name, scope.synced + 1) if scope is not None else ("", 0)
    use = Use(
        FAIL if rung is None else rung.name,
        now,
        epoch,
        name,
        recreation=recreation or (rung is not None and rung.name == RECREATE_JOBS),
    )
    _write(draft, (*uses, use))
    draft.rungs.append(use.rung)
    if rung is not None:
        used = count_uses(rung, uses, now_s) + 1
        draft.note("RestartRung", f"rung {rung.name}, use {used} of {rung.uses_max} in {rung.window_s} s")
    return use


def _ends_the_jobset(draft: Draft, use: Use) -> bool:
    """Say whether another scope found no rung a moment ago, and that is not decided yet."""
    scope = draft.jobset.scopes.get(use.scope)
    return use.rung == FAIL and scope is not None and use.epoch == scope.synced + 1


def _recreate(draft: Draft, scope: Scope) -> None:
    """Recreate all Jobs: counted once, as a recreation."""
    cause = draft.causes.get(scope.name)
    trigger = cause.trigger if cause is not None else Trigger.UNKNOWN
    others = [other for other in draft.jobset.scopes.values() if other.name != scope.name]
    exempt_next_epoch(draft, (*others, scope), trigger)
    draft.status["restarts"] = draft.jobset.restarts + 1
    draft.status["restartsCountTowardsMax"] = draft.jobset.restarts_counted + 1
    draft.set(conditions.restarting(None, f"rung {RECREATE_JOBS}: all jobs are recreated", "Escalation"))


def _write(draft: Draft, uses: Iterable[Use]) -> None:
    draft.status[wire.RUNG_USES] = [use.fields() for use in uses]
