"""Let a group that fails again and again wait before its next epoch begins; see controller/spec/crash_loop.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft
from inplace.controller.spec.causes import Trigger, trigger_of, unix_time
from inplace.controller.spec.crash_loop import CrashLoop, after_failure, backoff_of, crash_loop_of
from inplace.controller.spec.last_restart import UNSEEN, entry_of
from inplace.controller.spec.scopes import Scope, fields_of_scope, write_scope

OWN_FAULTS: Final = (Trigger.WORKER_EXIT, Trigger.STALLED, Trigger.COMPLETED_EARLY, Trigger.JOB_FAILED)
CURES: Final = (Trigger.MANUAL, Trigger.RESUME)  # a person did something: what fails next fails for the first time


def pace(draft: Draft, scope: Scope, decision: Decision) -> Decision:
    """Return the decision, or one that begins no epoch yet: its workers would fail as the last ones did.

    It is judged when all slots are there, because the announcements tell the steps. The wait counts from the failure.
    """
    if not scope.synced < decision.synced == scope.synced + 1 or decision.deprecated >= decision.synced:
        return decision
    old, backoff = crash_loop_of(fields_of_scope(draft.status, scope)), backoff_of(draft.jobset.annotations)
    now = draft.observed.now_micro or draft.observed.now
    loop = old if old.epoch == decision.synced else _judged(draft, scope, old, now)
    now_s = unix_time(now) or 0.0
    left_s = loop.left_s(now_s, backoff)
    if left_s > 0.0:
        if loop != old:
            write_scope(draft.status, scope, {wire.CRASH_LOOP: loop.fields()})
            draft.note("CrashLoop", f"{loop.words(now_s)}{_cause_words(draft, scope)}", warning=True)
        draft.paused[scope.name] = left_s
        draft.look_again(left_s)
        return replace(decision, synced=scope.synced, deprecated=max(decision.deprecated, scope.synced))
    if loop.failures:
        write_scope(draft.status, scope, {wire.CRASH_LOOP: replace(loop, synced_at=now).fields()})
    elif old.failures:
        write_scope(draft.status, scope, {wire.CRASH_LOOP: {}})
    return decision


def lead_on(draft: Draft, scope: Scope, epoch: int, after: int) -> None:
    """Let the wait for an epoch that is skipped hold for the one after."""
    loop = crash_loop_of(fields_of_scope(draft.status, scope))
    if loop.failures and loop.epoch == epoch:
        write_scope(draft.status, scope, {wire.CRASH_LOOP: replace(loop, epoch=after).fields()})


def _judged(draft: Draft, scope: Scope, old: CrashLoop, now: str) -> CrashLoop:
    """Return the crash loop after the epoch that ended; one that ended by itself is the only one that counts."""
    cause, entry = draft.causes.get(scope.name, UNSEEN), entry_of(draft.status, scope) or {}
    trigger = trigger_of(entry) if entry else cause.trigger
    if scope.synced == 0 or trigger in CURES:
        return CrashLoop()
    if trigger not in OWN_FAULTS:
        return old
    failed_at = str(entry.get("startedAt") or cause.seen_at or now)
    began_s, failed_s = unix_time(old.synced_at), unix_time(failed_at)
    ran_s = None if began_s is None or failed_s is None else failed_s - began_s
    silent = draft.observed.silent.get(scope.name)
    return after_failure(
        old,
        backoff_of(draft.jobset.annotations),
        epoch=scope.synced + 1,
        failed_at=failed_at,
        ran_s=ran_s,
        progress=silent.progress if silent is not None else None,
    )


def _cause_words(draft: Draft, scope: Scope) -> str:
    cause = draft.causes.get(scope.name)
    return f"; {cause}" if cause is not None else ""
