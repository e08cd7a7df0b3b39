"""
Restarts in vain: how long the group waits before the next one.

A restart was in vain if the workers failed again without progress. Progress is a higher step than ever before; where
no Pod tells steps, an epoch that ran for `LONG_S` or more. The first failure, and the first one after progress, never
wait. After that the next epoch begins 5 s after the failure at the earliest, then 10 s, 20 s, and so on up to 300 s.

    inplace.dev/failures: "backoff=5,backoff-max=300"     the first wait and the longest one; the default
    inplace.dev/failures: "backoff=0"                     never wait

`status.crashLoop` (in a divided JobSet one in each scope) is what is remembered, so another controller waits no longer
and no shorter. docs/adr/0021. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from msgspec import Meta, field
from msgspec.structs import replace

from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.settings import BACKOFF_MAX_S, BACKOFF_S, FAILURES
from inplace.common.jobset.status_record import StatusRecord
from inplace.common.protocol.stall import LastProgress
from inplace.common.wire import names as wire
from inplace.common.wire.last_progress import LONG_S

DOUBLINGS_MAX: Final = 12  # 5 s * 2^12 is beyond every limit

Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a group waits after failures without progress.

    Args:
        first_s: after the second failure; 0: never.
        max_s: at most.
    """

    first_s: int = BACKOFF_S
    max_s: int = BACKOFF_MAX_S

    def wait_s(self, failures: int) -> int:
        """Return the wait after so many failures in a row without progress."""
        if failures < 2:
            return 0
        return min(self.max_s, self.first_s << min(failures - 2, DOUBLINGS_MAX))


class CrashLoop(StatusRecord, frozen=True):
    """status.crashLoop: the failures in a row without progress.

    Args:
        failures: how many.
        since: when the first of them was seen; RFC 3339.
        epoch: to which the newest restart leads.
        until: before which that epoch does not begin; "" if it does not wait.
        synced_at: when that epoch began; "" while it has not.
        best: the highest step of any epoch; None while none was told.
    """

    failures: Count = 0
    since: str = ""
    epoch: int = 0
    until: str = ""
    synced_at: str = ""
    best: int | None = field(default=None, name="bestStep")

    def left_s(self, now_s: float, backoff: Backoff) -> float:
        """Return how long the epoch still waits; a time that no clock of ours can have written is not waited for."""
        until_s = unix_time(self.until)
        left_s = 0.0 if until_s is None else until_s - now_s
        return left_s if 0.0 < left_s <= backoff.wait_s(self.failures) else 0.0

    def words(self, now_s: float, *, waits: bool = True) -> str:
        """Say it for a person; `waits`: the epoch has not begun."""
        since_s, until_s = unix_time(self.since), unix_time(self.until)
        in_s = f" in {_seconds(now_s - since_s)}" if since_s is not None and now_s >= since_s else ""
        count = self.failures - 1
        restarts = "1 restart" if count == 1 else f"{count} restarts"
        next_s = f", next in {_seconds(max(0.0, until_s - now_s))}" if waits and until_s is not None else ""
        return f"crash loop: {restarts}{in_s}{next_s}"


def backoff_of(annotations: Mapping[str, Any]) -> Backoff:
    """Return how long the group waits after failures without progress."""
    given = FAILURES.read_or_default(annotations)
    first_s = given.get("backoff", BACKOFF_S)
    return Backoff(first_s, max(first_s, given.get("backoff-max", BACKOFF_MAX_S)))


def crash_loop_of(fields: Mapping[str, Any]) -> CrashLoop:
    """Read status.crashLoop, or that of a scope; what another program wrote there is passed over."""
    return CrashLoop.read(fields.get(wire.CRASH_LOOP))


def after_failure(
    old: CrashLoop, backoff: Backoff, *, epoch: int, failed_at: str, ran_s: float | None, progress: LastProgress | None
) -> CrashLoop:
    """Return the crash loop after one more failure.

    Args:
        old: before it.
        backoff: how long to wait.
        epoch: to which the restart leads.
        failed_at: when the failure was seen; RFC 3339.
        ran_s: how long the epoch that failed ran; None if nobody knows.
        progress: of its Pod that was furthest behind; None if no Pod told.
    """
    step = progress.step if progress is not None else None
    best = max((one for one in (old.best, step) if one is not None), default=None)
    if old.failures == 0 or _made_progress(old, step, ran_s, told=progress is not None):
        return CrashLoop(1, failed_at, epoch, best=best)
    failures = old.failures + 1
    failed_s, wait_s = unix_time(failed_at), backoff.wait_s(failures)
    until = "" if failed_s is None or not wait_s else _text(failed_s + wait_s)
    return replace(old, failures=failures, epoch=epoch, until=until, synced_at="", best=best)


def _made_progress(old: CrashLoop, step: int | None, ran_s: float | None, *, told: bool) -> bool:
    if step is not None:
        return old.best is None or step > old.best
    if told and old.best is not None:
        return False  # a Pod that tells no step, where Pods told steps before, made none
    return ran_s is not None and ran_s >= LONG_S


def _seconds(value_s: float) -> str:
    return f"{value_s:.0f} s" if value_s >= 1.0 else f"{value_s:.1f} s"


def _text(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="microseconds")
