"""Let a group that fails again and again wait, and fail it in the end; see common/jobset/crash_loop.py."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from inplace.common.jobset import conditions
from inplace.common.jobset.crash_loop import CrashLoop, after_epoch, backoff_of, crash_loop_of
from inplace.common.jobset.restart_history import history_of
from inplace.common.jobset.scopes import Scope, fields_of_scope, write_scope
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.finish import fail
from inplace.controller.plan.history import note_last_failure


def judge(draft: Draft, scope: Scope, decision: Decision) -> CrashLoop | None:
    """Return the crash loop with which an epoch is to begin; None if no epoch begins.

    It is judged when all slots are there, because the announcements tell the steps.
    """
    if not scope.synced < decision.synced == scope.synced + 1 or decision.deprecated >= decision.synced:
        return None
    old, backoff = crash_loop_of(fields_of_scope(draft.status, scope)), backoff_of(draft.jobset.annotations)
    return (
        old if old.epoch == decision.synced else after_epoch(old, backoff, draft.end_of_epoch(scope), decision.synced)
    )


def fail_if_hopeless(draft: Draft, scope: Scope, loop: CrashLoop | None) -> bool:
    """Fail the JobSet where too many epochs ended without progress; say whether that is so."""
    if loop is None or not loop.is_hopeless(backoff_of(draft.jobset.annotations)):
        return False
    write_scope(draft.status, scope, {wire.CRASH_LOOP: loop.fields()})
    note_last_failure(draft)
    ended = [past for past in history_of(draft.status) if past.scope == scope.name][-loop.epochs :]
    best = f" (the highest step ever is {loop.best})" if loop.best is not None else ""
    told = f"{loop.epochs} epochs in a row without progress{best}: {', '.join(map(str, ended))}"
    fail(draft, conditions.no_progress(told))
    return True


def pace(draft: Draft, scope: Scope, decision: Decision, loop: CrashLoop | None) -> Decision:
    """Return the decision, or one that begins no epoch yet: its workers would fail as the last ones did.

    The wait counts from the failure.
    """
    if loop is None:
        return decision
    old, backoff = crash_loop_of(fields_of_scope(draft.status, scope)), backoff_of(draft.jobset.annotations)
    now, now_s = draft.now, draft.now_s
    left_s = loop.left_s(now_s, backoff)
    if left_s > 0.0:
        if loop != old:
            write_scope(draft.status, scope, {wire.CRASH_LOOP: loop.fields()})
            why = f"; {draft.causes[scope.name]}" if scope.name in draft.causes else ""
            draft.note("CrashLoop", f"{loop.words(now_s)}{why}", warning=True)
        draft.paused[scope.name] = left_s
        draft.look_again(left_s)
        return replace(decision, synced=scope.synced, deprecated=max(decision.deprecated, scope.synced))
    if loop.failures or backoff.epochs_max is not None:
        write_scope(draft.status, scope, {wire.CRASH_LOOP: structs.replace(loop, synced_at=now).fields()})
    elif old != CrashLoop():
        write_scope(draft.status, scope, {wire.CRASH_LOOP: {}})
    return decision


def lead_on(draft: Draft, scope: Scope, epoch: int, after: int) -> None:
    """Let the wait for an epoch that is skipped hold for the one after."""
    loop = crash_loop_of(fields_of_scope(draft.status, scope))
    if loop.epoch == epoch:
        write_scope(draft.status, scope, {wire.CRASH_LOOP: structs.replace(loop, epoch=after).fields()})
