"""Planted bugs of the wait after restarts in vain, which its exploration must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from msgspec.structs import replace as changed

from inplace.common.jobset import crash_loop
from inplace.common.jobset.causes import Trigger, trigger_of, unix_time
from inplace.common.jobset.crash_loop import Backoff, CrashLoop, after_epoch, backoff_of, crash_loop_of
from inplace.common.jobset.scopes import Scope, write_scope
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan import crash_loop as pacing
from inplace.controller.plan.draft import Draft
from tests.model.pacing import PacingConfig, explore_pacing
from tests.planted.bug import checked
from tests.planted.mistake import instead_of, within


def _where(faults: int, kinds: str, *, tells: bool = False) -> Callable[[], Any]:
    return partial(explore_pacing, PacingConfig(faults, kinds, tells))


_SILENT: Final = _where(3, "worker")
_TOLD: Final = _where(3, "worker", tells=True)


def _waits_at_first(original: Callable[..., CrashLoop], *args: Any, **kwargs: Any) -> CrashLoop:
    loop = original(*args, **kwargs)
    return changed(loop, failures=2, until=_after(loop.since, 30)) if loop.failures == 1 else loop


def _writes_no_count(
    original: Callable[..., Decision], draft: Draft, scope: Scope, decision: Decision, loop: CrashLoop | None
) -> Decision:
    paced = original(draft, scope, decision, loop)
    if paced.synced > scope.synced:
        write_scope(draft.status, scope, {wire.CRASH_LOOP: {}})
    return paced


def _waits_from_now(
    original: Callable[..., CrashLoop | None], draft: Draft, scope: Scope, decision: Decision
) -> CrashLoop | None:
    loop = original(draft, scope, decision)
    if loop is None or not loop.until or loop == crash_loop_of(draft.status):
        return loop
    wait_s = backoff_of(draft.jobset.annotations).wait_s(loop.failures)
    return changed(loop, until=_after(draft.now, wait_s))


def _deprecates_what_waits(
    original: Callable[..., Decision], draft: Draft, scope: Scope, decision: Decision, loop: CrashLoop | None
) -> Decision:
    paced = original(draft, scope, decision, loop)
    return paced if paced.synced == decision.synced else replace(paced, deprecated=decision.synced)


def _after(time: str, wait_s: float) -> str:
    return crash_loop._text((unix_time(time) or 0.0) + wait_s)


PACING_BUGS: Final = (
    checked("pacing: a first failure waits", _SILENT, instead_of(after_epoch, _waits_at_first), stories="crash_loop"),
    checked(
        "pacing: a higher step does not forgive",
        _TOLD,
        instead_of(
            crash_loop._made_progress,
            lambda original, old, step, ran_s, long_s, *, told: (
                original(old, step, ran_s, long_s, told=told) and (step is None or old.best is None)
            ),
        ),
        stories="crash_loop",
    ),
    checked(
        "pacing: the same step forgives",
        _TOLD,
        instead_of(
            crash_loop._made_progress,
            lambda original, old, step, ran_s, long_s, *, told: (
                original(old, step, ran_s, long_s, told=told) or (step is not None and step == old.best)
            ),
        ),
        stories="crash_loop",
    ),
    checked(
        "pacing: a long run does not forgive",
        _SILENT,
        instead_of(
            CrashLoop.fields,
            lambda original, self: original(changed(self, synced_at="") if isinstance(self, CrashLoop) else self),
        ),
        stories="crash_loop",
    ),
    checked(
        "pacing: S is written before the wait is over",
        _SILENT,
        instead_of(
            CrashLoop.left_s,
            lambda original, self, now_s, backoff: left_s if (left_s := original(self, now_s, backoff)) > 30.0 else 0.0,
        ),
        stories="crash_loop",
    ),
    checked(
        "pacing: the wait has no longest",
        _where(4, "worker"),
        instead_of(Backoff.wait_s, lambda original, self, failures: original(replace(self, max_s=10**9), failures)),
    ),
    checked(
        "pacing: the wait is never over",
        _SILENT,
        instead_of(
            CrashLoop.left_s,
            lambda original, self, now_s, backoff: float(backoff.wait_s(self.failures)) if self.until else 0.0,
        ),
        stories="crash_loop",
    ),
    checked(
        "pacing: the count is not written with S",
        _SILENT,
        instead_of(pacing.pace, _writes_no_count),
        stories="crash_loop",
    ),
    checked(
        "pacing: each pass counts the failure again",
        _SILENT,
        within(pacing.judge, instead_of(crash_loop_of, lambda original, fields: changed(original(fields), epoch=0))),
    ),
    checked(
        "pacing: the wait counts from the announcement",
        _where(3, "worker crash"),
        instead_of(pacing.judge, _waits_from_now),
    ),
    checked(
        "pacing: another clock's time is waited for",
        _where(3, "worker clock"),
        instead_of(
            CrashLoop.left_s, lambda original, self, now_s, backoff: max(0.0, (unix_time(self.until) or 0.0) - now_s)
        ),
    ),
    checked(
        "pacing: a lost Pod counts",
        _where(3, "worker lost"),
        within(
            pacing.judge,
            instead_of(
                trigger_of,
                lambda original, entry: Trigger.WORKER_EXIT if original(entry) is Trigger.POD_LOST else original(entry),
            ),
        ),
    ),
    checked(
        "pacing: a restart that a person asks for waits",
        _where(3, "worker asked"),
        instead_of(
            after_epoch,
            lambda original, old, backoff, end, epoch: (
                loop if (loop := original(old, backoff, end, epoch)).failures or epoch == 1 else old
            ),
        ),
        stories="crash_loop",
    ),
    checked(
        "pacing: D passes the S that is held back",
        _SILENT,
        instead_of(pacing.pace, _deprecates_what_waits),
        stories="crash_loop",
    ),
)
