"""Planted bugs of the wait after restarts in vain, which its exploration must find; as `tests.model.planted`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.model.explore import Result
from tests.model.pacing import PacingConfig, explore_pacing
from tests.model.plan_code import PlanCode

SILENT: Final = PacingConfig(3, "worker")


@dataclass(frozen=True, slots=True)
class PacingBug:
    """One planted bug.

    Args:
        name: what is wrong.
        code: with the mistake in it.
        config: where it shows.
        slow: takes too long for --quick.
    """

    name: str
    code: PlanCode
    config: PacingConfig = SILENT
    slow: bool = False

    def hunt(self) -> Result:
        """Explore the code with the bug in it, where it shows."""
        return explore_pacing(self.config, self.code)


_FORGIVEN: Final = "return CrashLoop(1, failed_at, epoch, best=best)"
_COUNTED: Final = "loop = old if old.epoch == decision.synced else _judged(draft, scope, old, now)"
_FAILED_AT: Final = 'failed_at = str(entry.get("startedAt") or cause.seen_at or now)'
_WRITTEN: Final = "{wire.CRASH_LOOP: replace(loop, synced_at=now).fields()}"

PACING_BUGS: Final = (
    PacingBug(
        "pacing: a first failure waits",
        PlanCode(
            "crash_loop",
            _FORGIVEN,
            "return CrashLoop(2, failed_at, epoch, _text(unix_time(failed_at) + 30), best=best)",
        ),
    ),
    PacingBug(
        "pacing: a higher step does not forgive",
        PlanCode("crash_loop", "step > old.best", "False"),
        PacingConfig(3, "worker", tells=True),
    ),
    PacingBug(
        "pacing: the same step forgives",
        PlanCode("crash_loop", "step > old.best", "step >= old.best"),
        PacingConfig(3, "worker", tells=True),
    ),
    PacingBug("pacing: a long run does not forgive", PlanCode("pacing", _WRITTEN, "{wire.CRASH_LOOP: loop.fields()}")),
    PacingBug(
        "pacing: S is written before the wait is over", PlanCode("pacing", "if left_s > 0.0:", "if left_s > 30.0:")
    ),
    PacingBug(
        "pacing: the wait has no longest",
        PlanCode("crash_loop", "min(self.max_s, self.first_s << ", "(self.first_s << "),
        PacingConfig(4, "worker"),
    ),
    PacingBug(
        "pacing: the wait is never over",
        PlanCode("crash_loop", "until_s - now_s\n", "float(backoff.wait_s(self.failures))\n"),
    ),
    PacingBug(
        "pacing: the count is not written with S",
        PlanCode("pacing", "    if loop.failures:\n", "    if not loop.failures:\n"),
    ),
    PacingBug(
        "pacing: each pass counts the failure again",
        PlanCode("pacing", _COUNTED, "loop = _judged(draft, scope, old, now)"),
    ),
    PacingBug(
        "pacing: the wait counts from the announcement",
        PlanCode("pacing", _FAILED_AT, "failed_at = now"),
        PacingConfig(3, "worker crash"),
    ),
    PacingBug(
        "pacing: another clock's time is waited for",
        PlanCode("crash_loop", "0.0 < left_s <= backoff.wait_s(self.failures)", "0.0 < left_s"),
        PacingConfig(3, "worker clock"),
    ),
    PacingBug(
        "pacing: a lost Pod counts",
        PlanCode("pacing", "    if trigger not in OWN_FAULTS:\n        return old\n", ""),
        PacingConfig(3, "worker lost"),
    ),
    PacingBug(
        "pacing: a restart that a person asks for waits",
        PlanCode("pacing", "scope.synced == 0 or trigger in CURES", "scope.synced == 0"),
        PacingConfig(3, "worker asked"),
    ),
    PacingBug(
        "pacing: D passes the S that is held back",
        PlanCode("pacing", "deprecated=max(decision.deprecated, scope.synced)", "deprecated=decision.synced"),
    ),
)
