"""What a JobSet's status says of its last group restart; whatever another program spoiled in it is passed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inplace.common.bare.record import record
from inplace.common.jobset.furthest_behind import FurthestBehind, silent_of_entry
from inplace.common.jobset.last_restart import seconds_of
from inplace.common.jobset.slow_ranks import SlowRanks, slow_ranks_of_entry
from inplace.common.jobset.status_record import StatusRecord
from inplace.common.wire import names as wire


@record
class LastRestart:
    """The last group restart, as the controller or, where it says nothing, the Pods remember it.

    Args:
        epoch: that it led to.
        first_failure: pod, node, container, exitCode, reason and message, as far as known.
        request: the id of a manual restart.
        first_silent: the Pods whose workers were furthest behind; None if no Pod told.
        escalation_step: that it used; None where the JobSet has no escalation.
        seconds: how long it took; None while it is under way.
        slow: the ranks that were slow in the run before it; None if nobody was.
    """

    epoch: int
    trigger: str | None = None
    started_at: str | None = None
    synced_at: str | None = None
    first_failure: Mapping[str, Any] | None = None
    scope: str | None = None
    request: str | None = None
    first_silent: FurthestBehind | None = None
    escalation_step: str | None = None
    seconds: float | None = None
    slow: SlowRanks | None = None


class _Entry(StatusRecord, frozen=True):
    epoch: int | None = None
    trigger: str | None = None
    started_at: str | None = None
    synced_at: str | None = None
    first_failure: dict[str, str | int | None] | None = None
    scope: str | None = None
    request: str | None = None
    rung: str | None = None


def last_restart(status: Mapping[str, object]) -> LastRestart | None:
    """Read status.lastGroupRestart; None where no controller of ours wrote it."""
    seen = status.get(wire.LAST_GROUP_RESTART)
    entry = _Entry.read(seen)
    if not isinstance(seen, Mapping) or entry.epoch is None:
        return None
    return LastRestart(
        entry.epoch,
        entry.trigger,
        entry.started_at,
        entry.synced_at,
        entry.first_failure,
        entry.scope,
        entry.request,
        silent_of_entry(seen),
        entry.rung or None,
        seconds_of(seen),
        slow_ranks_of_entry(seen),
    )
