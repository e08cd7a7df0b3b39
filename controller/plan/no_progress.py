"""Fail a JobSet whose epochs end without progress; see common/jobset/no_progress.py."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from inplace.common.jobset import conditions
from inplace.common.jobset.causes import Trigger, unix_time
from inplace.common.jobset.no_progress import FAILURE_CHARS_MAX, FailedEpoch, after_epoch, streak_of
from inplace.common.jobset.scopes import Scope, fields_of_scope, write_scope
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft

HARMLESS: Final = (Trigger.MANUAL, Trigger.RESIZE, Trigger.RESUME, Trigger.JOIN, Trigger.DISRUPTED)


def judge_progress(draft: Draft, scope: Scope, decision: Decision) -> conditions.Condition | None:
    """Note in the write of S how the epoch before it ended; return Failed when too many ended without progress."""
    limit = draft.jobset.no_progress
    is_sync = scope.synced < decision.synced == scope.synced + 1 and decision.synced > decision.deprecated
    if limit is None or not is_sync:
        return None
    streak = streak_of(fields_of_scope(draft.status, scope))
    if scope.synced > 0:
        end = draft.end_of_epoch(scope)
        step = end.progress.step if end.progress is not None else None
        seconds = _seconds(streak.synced_at, end.at)
        ended = FailedEpoch(scope.synced, step, seconds, end.words[:FAILURE_CHARS_MAX])
        streak = after_epoch(streak, limit, ended, end.progress, failed=end.trigger not in HARMLESS)
    if limit.short_s is not None:
        streak = replace(streak, synced_at=draft.now)
    write_scope(draft.status, scope, {wire.NO_PROGRESS_FIELD: streak.fields()})
    return conditions.no_progress(str(streak)) if len(streak.epochs) >= limit.epochs else None


def _seconds(synced_at: str, ended_at: str) -> int | None:
    """Return how long an epoch ran; None if nobody knows, or a clock was set back."""
    from_s, to_s = unix_time(synced_at), unix_time(ended_at)
    return None if from_s is None or to_s is None or to_s < from_s else int(to_s - from_s)
