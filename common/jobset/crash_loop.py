"""
Restarts in vain: how long the group waits before the next one, and when the JobSet is to fail because none helps.

A restart was in vain if the workers failed again without progress. Progress is a higher step than ever before; where
no Pod tells steps, an epoch that ran for 60 s or more. The first failure, and the first one after progress, never wait.
After that the next epoch begins 5 s after the failure at the earliest, then 10 s, 20 s, and so on up to 300 s.

    inplace.dev/failures: "backoff=5,backoff-max=300"     the first wait and the longest one; the default
    inplace.dev/failures: "backoff=0"                     never wait
    inplace.dev/failures: "3"                             three failed epochs in a row without progress fail the JobSet
    inplace.dev/failures: "no-progress=3,short=600"       the same; without steps, 600 s are progress
    inplace.dev/failures: "same=3"                        three in a row by one error from one place fail the JobSet

The steps come with the announcements that end a restart (common/wire/last_progress.py). `status.crashLoop` (in a
divided JobSet one in each scope) is what is remembered, so another controller waits no longer and no shorter.
docs/adr/0021. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from msgspec import Meta, field
from msgspec.structs import replace

from inplace.common.jobset.causes import Trigger, unix_time
from inplace.common.jobset.last_restart import EpochEnd
from inplace.common.jobset.settings import BACKOFF_MAX_S, BACKOFF_S, FAILURES, MODE, OBSERVE
from inplace.common.jobset.status_record import StatusRecord
from inplace.common.wire import names as wire
from inplace.common.wire.last_progress import LONG_S

DOUBLINGS_MAX: Final = 12  # 5 s * 2^12 is beyond every limit
OWN_FAULTS: Final = (
    Trigger.WORKER_EXIT,
    Trigger.STALLED,
    Trigger.LOSS_NOT_FINITE,
    Trigger.SLOW,
    Trigger.COMPLETED_EARLY,
    Trigger.JOB_FAILED,
)
CURES: Final = (Trigger.MANUAL, Trigger.RESUME)  # a person did something: what fails next fails for the first time
HARMLESS: Final = (Trigger.RESIZE, Trigger.JOIN, Trigger.DISRUPTED)  # nothing failed

Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class Backoff:
    """What follows failures without progress.

    Args:
        first_s: how long the group waits after the second one; 0: never.
        max_s: at most.
        long_s: an epoch that ran so long is progress where no Pod tells steps.
        epochs_max: so many failed epochs in a row fail the JobSet; None: it goes on.
        same_max: so many failures in a row by one error from one place fail it; None: it goes on.
        is_observed: then it goes on, too, and it is told.
    """

    first_s: int = BACKOFF_S
    max_s: int = BACKOFF_MAX_S
    long_s: float = LONG_S
    epochs_max: int | None = None
    same_max: int | None = None
    is_observed: bool = False

    def wait_s(self, failures: int) -> int:
        """Return the wait after so many failures in a row without progress."""
        if failures < 2:
            return 0
        return min(self.max_s, self.first_s << min(failures - 2, DOUBLINGS_MAX))


class CrashLoop(StatusRecord, frozen=True):
    """status.crashLoop: what came since the last progress.

    Args:
        failures: how many times in a row the workers failed by their own fault.
        since: when the first of these was seen; RFC 3339.
        epoch: to which the newest restart leads.
        until: before which that epoch does not begin; "" if it does not wait.
        synced_at: when that epoch began; "" while it has not.
        best: the highest step of any epoch; None while none was told.
        epochs: how many in a row failed, whoever was at fault; status.restartHistory says how.
    """

    failures: Count = 0
    since: str = ""
    epoch: int = 0
    until: str = ""
    synced_at: str = ""
    best: int | None = field(default=None, name="bestStep")
    epochs: Count = field(default=0, name="failedEpochs")

    def left_s(self, now_s: float, backoff: Backoff) -> float:
        """Return how long the epoch still waits; a time that no clock of ours can have written is not waited for."""
        until_s = unix_time(self.until)
        left_s = 0.0 if until_s is None else until_s - now_s
        return left_s if 0.0 < left_s <= backoff.wait_s(self.failures) else 0.0

    def is_beyond(self, backoff: Backoff) -> bool:
        """Say whether so many epochs failed in a row that the JobSet is to fail, or to be told of."""
        return backoff.epochs_max is not None and self.epochs >= backoff.epochs_max

    def is_hopeless(self, backoff: Backoff) -> bool:
        """Say whether the JobSet is to fail."""
        return self.is_beyond(backoff) and not backoff.is_observed

    def words(self, now_s: float, *, waits: bool = True) -> str:
        """Say it for a person; `waits`: the epoch has not begun."""
        since_s, until_s = unix_time(self.since), unix_time(self.until)
        in_s = f" in {_seconds(now_s - since_s)}" if since_s is not None and now_s >= since_s else ""
        count = self.failures - 1
        restarts = "1 restart" if count == 1 else f"{count} restarts"
        next_s = f", next in {_seconds(max(0.0, until_s - now_s))}" if waits and until_s is not None else ""
        return f"crash loop: {restarts}{in_s}{next_s}"


def backoff_of(annotations: Mapping[str, Any]) -> Backoff:
    """Return what follows failures without progress."""
    given = FAILURES.read_or_default(annotations)
    first_s = given.get("backoff", BACKOFF_S)
    max_s = max(first_s, given.get("backoff-max", BACKOFF_MAX_S))
    is_observed = given.get(MODE.name) == OBSERVE
    return Backoff(first_s, max_s, given.get("short", LONG_S), given.get("no-progress"), given.get("same"), is_observed)


def crash_loop_of(fields: Mapping[str, Any]) -> CrashLoop:
    """Read status.crashLoop, or that of a scope; what another program wrote there is passed over."""
    return CrashLoop.read(fields.get(wire.CRASH_LOOP))


def after_epoch(old: CrashLoop, backoff: Backoff, end: EpochEnd, epoch: int) -> CrashLoop:
    """Return the crash loop after an epoch; the restart leads to the next one, `epoch`."""
    if epoch == 1 or end.trigger in CURES:
        return CrashLoop()
    step = end.progress.step if end.progress is not None else None
    began_s, ended_s = unix_time(old.synced_at), unix_time(end.at)
    ran_s = None if began_s is None or ended_s is None or ended_s < began_s else ended_s - began_s
    progress = _made_progress(old, step, ran_s, backoff.long_s, told=end.progress is not None)
    best = max((one for one in (old.best, step) if one is not None), default=None)
    loop = CrashLoop(epoch=epoch, best=best)
    if not progress:
        loop = replace(loop, failures=old.failures, since=old.since, epochs=old.epochs)
    if progress is False and end.trigger not in HARMLESS:
        loop = replace(loop, epochs=loop.epochs + 1)
    return _with_failure(loop, backoff, end.at) if end.trigger in OWN_FAULTS else loop


def _with_failure(loop: CrashLoop, backoff: Backoff, failed_at: str) -> CrashLoop:
    failures = loop.failures + 1
    failed_s, wait_s = unix_time(failed_at), backoff.wait_s(failures)
    until = "" if failed_s is None or not wait_s else _text(failed_s + wait_s)
    return replace(loop, failures=failures, since=loop.since or failed_at, until=until)


def _made_progress(old: CrashLoop, step: int | None, ran_s: float | None, long_s: float, *, told: bool) -> bool | None:
    """Say whether an epoch made progress; None if nobody knows."""
    if step is not None:
        return old.best is None or step > old.best
    if told and old.best is not None:
        return False  # a Pod that tells no step, where Pods told steps before, made none
    return None if ran_s is None else ran_s >= long_s


def _seconds(value_s: float) -> str:
    return f"{value_s:.0f} s" if value_s >= 1.0 else f"{value_s:.1f} s"


def _text(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="microseconds")
