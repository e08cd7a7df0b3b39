"""
Write `status.lastGroupRestart`: when the last group restart in place began and ended, why, and which Pod failed first.

It never causes a status write of its own: it begins with the write that deprecates the epoch (or excuses the next), and
ends with the write that syncs. If a JobSet has scopes, it describes the scope that began last. A new controller learns
from it what the previous one saw.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inplace.common.bare.record import record
from inplace.common.jobset.causes import Cause, Trigger, failure_of_entry, trigger_of, unix_time
from inplace.common.jobset.escalation import step_of_restart, uses_of
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.scopes import Scope
from inplace.common.jobset.slow_ranks import SlowRanks
from inplace.common.jobset.verdict import OWN_ENDS
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire import names as wire


@record
class EpochEnd:
    """How an epoch ended that is over.

    Args:
        trigger: why.
        at: when that was seen; RFC 3339.
        progress: of the Pod that was furthest behind; None if no Pod told.
    """

    trigger: Trigger
    at: str
    progress: LastProgress | None


def end_of_epoch(
    status: Mapping[str, Any], scope: Scope, cause: Cause, now: str, silent: FurthestBehind | None
) -> EpochEnd:
    """Return how the synced epoch of a scope ended: as the status says, or else as this controller saw."""
    entry = blamed(entry_of(status, scope) or {}, cause)
    return EpochEnd(
        trigger_of(entry) if entry else cause.trigger,
        str(entry.get("startedAt") or cause.seen_at or now),
        silent.progress if silent is not None else None,
    )


def begun(status: Mapping[str, Any], scope: Scope, cause: Cause, now: str) -> dict[str, Any]:
    """Return the entry of the restart of a scope to its next epoch, which begins, or turns out to have another cause.

    A failure began when it was seen, anything else when it is decided, `now`.
    """
    old = entry_of(status, scope) or {}
    entry: dict[str, Any] = {"epoch": scope.synced + 1}
    if scope.name:
        entry["scope"] = scope.name
    entry["trigger"] = cause.trigger.value
    entry["startedAt"] = (cause.seen_at or now) if cause.trigger.is_failure else now
    if cause.request:
        entry["request"] = cause.request
    if wire.ESCALATION_USES in status and (step := step_of_restart(uses_of(status), scope.name, scope.synced + 1)):
        entry["escalationStep"] = step
    failure = cause.failure if cause.failure is not None else failure_of_entry(old)
    if failure is not None:
        entry["firstFailure"] = failure.fields()
    if "deprecatedAt" in old:
        entry["deprecatedAt"] = old["deprecatedAt"]
    return entry


def ended(
    status: Mapping[str, Any],
    scope: Scope,
    cause: Cause,
    now: str,
    silent: FurthestBehind | None = None,
    slow: SlowRanks | None = None,
) -> dict[str, Any] | None:
    """Return the entry of a restart that ends; None when the status is about another scope that restarts.

    Who was silent first is said where something failed: otherwise all were told to stop.
    """
    entry = entry_of(status, scope)
    if entry is None:
        other = status.get(wire.LAST_GROUP_RESTART) or {}
        if other and "syncedAt" not in other and other.get("scope", "") != scope.name:
            return None
        entry = begun(status, scope, cause, now)
    entry = blamed(entry, cause)
    if silent is not None and trigger_of(entry).is_failure:
        entry["firstSilent"] = silent.fields()
    if slow is not None:
        entry |= slow.fields()
    return entry | {"syncedAt": now}


def blamed(entry: dict[str, Any], cause: Cause) -> dict[str, Any]:
    """Return the entry with what showed of the first failure AFTER the restart began: more words, or another Pod."""
    of_workers = (*OWN_ENDS, Trigger.COMPLETED_EARLY)
    if cause.failure is None or cause.trigger not in of_workers or trigger_of(entry) not in of_workers:
        return entry
    return entry | {"trigger": cause.trigger.value, "firstFailure": cause.failure.fields()}


def entry_of(status: Mapping[str, Any], scope: Scope) -> dict[str, Any] | None:
    """Return the entry when it is about this scope's restart to its next epoch."""
    entry = status.get(wire.LAST_GROUP_RESTART)
    if not isinstance(entry, dict):
        return None
    is_it = (entry.get("scope", ""), entry.get("epoch")) == (scope.name, scope.synced + 1)
    return entry if is_it and "syncedAt" not in entry else None


def cause_of(status: Mapping[str, Any], scope: Scope) -> Cause | None:
    """Return why a scope restarts, as the status says it: what another controller has seen."""
    entry = entry_of(status, scope)
    if entry is None:
        return None
    seen_at, request = str(entry.get("startedAt") or ""), str(entry.get("request") or "")
    return Cause(trigger_of(entry), seen_at, failure=failure_of_entry(entry), request=request)


def synced_at_of(status: Mapping[str, Any]) -> str:
    """Return when the last group restart ended; "" for never."""
    entry = status.get(wire.LAST_GROUP_RESTART)
    return str(entry.get("syncedAt") or "") if isinstance(entry, dict) else ""


def entry_of_sync(status: Mapping[str, Any], scope: Scope) -> Mapping[str, Any] | None:
    """Return the entry when it is about the restart that brought a scope to its synced epoch."""
    entry = status.get(wire.LAST_GROUP_RESTART)
    if not isinstance(entry, dict):
        return None
    is_it = (entry.get("scope", ""), entry.get("epoch")) == (scope.name, scope.synced)
    return entry if is_it and "syncedAt" in entry else None


def seconds_of(entry: Mapping[str, Any]) -> float | None:
    """Return how long a restart took, wherever that is told: from startedAt to syncedAt; None if one is missing."""
    began_s, ended_s = unix_time(entry.get("startedAt")), unix_time(entry.get("syncedAt"))
    return None if began_s is None or ended_s is None else max(0.0, ended_s - began_s)


UNSEEN = Cause(Trigger.UNKNOWN, "")
