"""
Epochs that end without progress: when the JobSet is to fail because restarting does not help.

    inplace.dev/failures: "3"                        three failed epochs in a row without a higher step than ever before
    inplace.dev/failures: "no-progress=3,short=600"  the same; where nobody knows the step, an epoch below 600 s counts

The steps come with the announcements that end a restart (common/wire/last_progress.py). `status.noProgress` (in a
divided JobSet one in each scope) has the highest step and the epochs since, written with S. docs/adr/0021. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import field
from msgspec.structs import replace

from inplace.common.bare.record import record
from inplace.common.jobset.settings import FAILURES
from inplace.common.jobset.status_record import StatusRecord
from inplace.common.protocol.stall import LastProgress
from inplace.common.wire import names as wire

FAILURE_CHARS_MAX: Final = 200


@record
class NoProgressLimit:
    """How many epochs in a row may end without progress.

    Args:
        short_s: an epoch without a known step counts if it was shorter; None: it does not count.
    """

    epochs: int
    short_s: int | None = None


class FailedEpoch(StatusRecord, frozen=True):
    """One epoch that ended without progress.

    Args:
        step: the last one of its Pod that was furthest behind; None if nobody knows.
        seconds: how long it ran; None if nobody knows.
        failure: the first one, in words.
    """

    epoch: int = 0
    step: int | None = None
    seconds: int | None = None
    failure: str = field(default="", name="firstFailure")

    def __str__(self) -> str:
        """Say it for a person."""
        where = f" at step {self.step}" if self.step is not None else ""
        after = f" after {self.seconds} s" if self.seconds is not None and not where else ""
        return f"epoch {self.epoch} ended{where}{after} ({self.failure})"


class Streak(StatusRecord, frozen=True):
    """status.noProgress: the epochs since the last progress.

    Args:
        best: the highest step of any epoch; None while none was told.
        synced_at: when the running epoch was synced; "" if nobody asks how long it runs.
        epochs: those without progress, the oldest first.
    """

    best: int | None = field(default=None, name="bestStep")
    synced_at: str = ""
    epochs: tuple[FailedEpoch, ...] = ()

    def __str__(self) -> str:
        """Say it for a person."""
        best = f"; the highest step ever is {self.best}" if self.best is not None else ""
        return f"{len(self.epochs)} epochs in a row without progress: {', '.join(map(str, self.epochs))}{best}"


def no_progress_of(annotations: Mapping[str, Any]) -> NoProgressLimit | None:
    """Return the limit; None for none."""
    given = FAILURES.read_or_default(annotations)
    return NoProgressLimit(given["no-progress"], given.get("short")) if "no-progress" in given else None


def streak_of(fields: Mapping[str, Any]) -> Streak:
    """Read status.noProgress, or that of a scope."""
    return Streak.read(fields.get(wire.NO_PROGRESS_FIELD))


def after_epoch(
    old: Streak, limit: NoProgressLimit, ended: FailedEpoch, progress: LastProgress | None, *, failed: bool
) -> Streak:
    """Return the streak after an epoch.

    Args:
        old: before it.
        limit: what counts.
        ended: the epoch.
        progress: of its Pod that was furthest behind; None if no Pod told.
        failed: something failed in it; an epoch that a person or a resize ended is no sign of anything.
    """
    if ended.step is not None and (old.best is None or ended.step > old.best):
        return replace(old, best=ended.step, epochs=())
    # A Pod that tells no step, where Pods told steps before, made none.
    is_known = ended.step is not None or (progress is not None and old.best is not None)
    if not is_known:
        if limit.short_s is None or ended.seconds is None:
            return old
        if ended.seconds >= limit.short_s:
            return replace(old, epochs=())
    return replace(old, epochs=(*old.epochs, ended)[-limit.epochs :]) if failed else old
