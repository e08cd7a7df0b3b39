"""Let a group that fails again and again wait, and fail it in the end; see common/jobset/crash_loop.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from inplace.common.jobset import conditions
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.crash_loop import CrashLoop, after_epoch, backoff_of, crash_loop_of
from inplace.common.jobset.in_vain import in_vain
from inplace.common.jobset.restart_history import history_of
from inplace.common.jobset.scopes import Scope, fields_of_scope, write_scope
from inplace.common.jobset.settings import SAME, SAME_MIN
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.finish import fail
from inplace.controller.plan.history import history_so_far, note_last_failure


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


def fail_if_hopeless(draft: Draft, loops: Mapping[str, CrashLoop | None]) -> bool:
    """Fail the JobSet where no restart helps any more; else say in a condition that none helped so far.

    Args:
        draft: the pass.
        loops: by scope, what `judge` returned.

    Returns:
        That it fails.
    """
    backoff, found, is_told = backoff_of(draft.jobset.annotations), None, draft.is_true(conditions.IN_VAIN)
    for name, loop in loops.items():
        scope = draft.jobset.scopes[name]
        if loop is not None and loop.is_hopeless(backoff):
            best = f" (the highest step ever is {loop.best})" if loop.best is not None else ""
            ended = [past for past in history_so_far(draft, scope) if past.scope == name][-loop.epochs :]
            told = f"{loop.epochs} epochs in a row without progress{best}: {', '.join(map(str, ended))}"
            return _fail(draft, scope, loop, told)
        if loop is None and not is_told:
            continue  # it was not in vain when its epoch began
        known = loop or crash_loop_of(fields_of_scope(draft.status, scope))
        ran_s = draft.now_s - (unix_time(known.synced_at) or draft.now_s) if loop is None else 0.0
        if known.failures < SAME_MIN or ran_s >= backoff.long_s:
            continue  # an epoch that runs for so long counts as progress
        past = history_so_far(draft, scope) if loop is not None else history_of(draft.status)
        vain = in_vain(past, known, name, backoff.same_max or SAME)
        if loop is not None and vain is not None and backoff.same_max is not None and not backoff.is_observed:
            return _fail(draft, scope, loop, str(vain))
        found = found or vain
    if found is not None:
        draft.set(conditions.in_vain(str(found)))
    elif is_told and (draft.is_written_anyway or any(loops.values())):
        draft.turn_false(conditions.IN_VAIN)
    return False


def _fail(draft: Draft, scope: Scope, loop: CrashLoop, told: str) -> bool:
    write_scope(draft.status, scope, {wire.CRASH_LOOP: loop.fields()})
    note_last_failure(draft)
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
            draft.note("CrashLoop", f"{loop.words(now_s)}; no restart has helped so far{why}", warning=True)
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
