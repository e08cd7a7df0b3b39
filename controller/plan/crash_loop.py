"""Let a group that fails again and again wait before its next epoch begins; see common/jobset/crash_loop.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from msgspec import structs

from inplace.common.jobset.causes import Trigger, unix_time
from inplace.common.jobset.crash_loop import CrashLoop, after_failure, backoff_of, crash_loop_of
from inplace.common.jobset.scopes import Scope, fields_of_scope, write_scope
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft

OWN_FAULTS: Final = (
    Trigger.WORKER_EXIT,
    Trigger.STALLED,
    Trigger.LOSS_NOT_FINITE,
    Trigger.SLOW,
    Trigger.COMPLETED_EARLY,
    Trigger.JOB_FAILED,
)
CURES: Final = (Trigger.MANUAL, Trigger.RESUME)  # a person did something: what fails next fails for the first time


def pace(draft: Draft, scope: Scope, decision: Decision) -> Decision:
    """Return the decision, or one that begins no epoch yet: its workers would fail as the last ones did.

    It is judged when all slots are there, because the announcements tell the steps. The wait counts from the failure.
    """
    if not scope.synced < decision.synced == scope.synced + 1 or decision.deprecated >= decision.synced:
        return decision
    old, backoff = crash_loop_of(fields_of_scope(draft.status, scope)), backoff_of(draft.jobset.annotations)
    now, now_s = draft.now, draft.now_s
    loop = old if old.epoch == decision.synced else _judged(draft, scope, old)
    left_s = loop.left_s(now_s, backoff)
    if left_s > 0.0:
        if loop != old:
            write_scope(draft.status, scope, {wire.CRASH_LOOP: loop.fields()})
            why = f"; {draft.causes[scope.name]}" if scope.name in draft.causes else ""
            draft.note("CrashLoop", f"{loop.words(now_s)}{why}", warning=True)
        draft.paused[scope.name] = left_s
        draft.look_again(left_s)
        return replace(decision, synced=scope.synced, deprecated=max(decision.deprecated, scope.synced))
    if loop.failures:
        write_scope(draft.status, scope, {wire.CRASH_LOOP: structs.replace(loop, synced_at=now).fields()})
    elif old.failures:
        write_scope(draft.status, scope, {wire.CRASH_LOOP: {}})
    return decision


def lead_on(draft: Draft, scope: Scope, epoch: int, after: int) -> None:
    """Let the wait for an epoch that is skipped hold for the one after."""
    loop = crash_loop_of(fields_of_scope(draft.status, scope))
    if loop.failures and loop.epoch == epoch:
        write_scope(draft.status, scope, {wire.CRASH_LOOP: structs.replace(loop, epoch=after).fields()})


def _judged(draft: Draft, scope: Scope, old: CrashLoop) -> CrashLoop:
    """Return the crash loop after the epoch that ended; one that ended by itself is the only one that counts."""
    end = draft.end_of_epoch(scope)
    if scope.synced == 0 or end.trigger in CURES:
        return CrashLoop()
    if end.trigger not in OWN_FAULTS:
        return old
    began_s, failed_s = unix_time(old.synced_at), unix_time(end.at)
    ran_s = None if began_s is None or failed_s is None else failed_s - began_s
    backoff = backoff_of(draft.jobset.annotations)
    return after_failure(old, backoff, epoch=scope.synced + 1, failed_at=end.at, ran_s=ran_s, progress=end.progress)
