"""
Read a JobSet's last group restart from its status; where that names no first failure, guess it from the Pods.

Whatever another program spoiled in the status is passed over. `first_failure` is a guess and is called one: kubelet
records whole seconds, and a group restart ends every worker within a few seconds. Of the workers that ended in the
newest run it takes the one that ended first. Of those in the same second it takes one that was not told to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import asdict

from inplace.cli.group.pod_facts import PodFact
from inplace.common.jobset.causes import Failure, trigger_of, unix_time
from inplace.common.jobset.furthest_behind import FurthestBehind, silent_of_entry
from inplace.common.jobset.last_restart import seconds_of
from inplace.common.jobset.slow_ranks import SlowRanks, slow_ranks_of_entry
from inplace.common.jobset.status_record import StatusRecord
from inplace.common.jobset.verdict import Verdict, verdict_of
from inplace.common.wire import names as wire

SAME_RUN_S = 60.0  # workers of one epoch start within this: a startup probe's period, and slow nodes
STOPPED = (137, 143)  # SIGKILL and SIGTERM: how kubelet ends the others


class _Entry(StatusRecord, frozen=True):
    """What status.lastGroupRestart says as it stands."""

    epoch: int = 0
    trigger: str | None = None
    started_at: str | None = None
    synced_at: str | None = None
    first_failure: dict[str, Any] | None = None
    scope: str | None = None
    request: str | None = None
    escalation_step: str | None = None


class LastRestart(_Entry, frozen=True):
    """The last group restart, as the controller or, where it says nothing, the Pods remember it.

    Args:
        epoch: that it led to.
        first_failure: pod, node, container, exitCode, reason and message, as far as known.
        request: the id of a manual restart.
        first_silent: the Pods whose workers were furthest behind; None if no Pod told.
        escalation_step: that it used; None where the JobSet has no escalation.
        seconds: how long it took; None while it is under way.
        slow: the ranks that were slow in the run before it; None if nobody was.
        verdict: what was to blame; None where nothing failed.
    """

    first_silent: FurthestBehind | None = None
    seconds: float | None = None
    slow: SlowRanks | None = None
    verdict: Verdict | None = None


def last_restart(status: Mapping[str, object]) -> LastRestart | None:
    """Read status.lastGroupRestart; None where no controller of ours wrote it."""
    seen = status.get(wire.LAST_GROUP_RESTART)
    entry = _Entry.read(seen)
    if not isinstance(seen, Mapping) or not entry.epoch:
        return None
    known = asdict(entry) | {"first_failure": Failure.read(entry.first_failure).fields() or None}
    return LastRestart(
        **known,
        first_silent=silent_of_entry(seen),
        seconds=seconds_of(seen),
        slow=slow_ranks_of_entry(seen),
        verdict=verdict_of(seen) if trigger_of(seen).is_failure else None,
    )


class FirstFailure(NamedTuple):
    """When a container ended, and the fields that status.lastGroupRestart.firstFailure has."""

    at_s: float
    fields: dict[str, str | int]


def first_failure(pods: Iterable[PodFact]) -> FirstFailure | None:
    """Return the worker that failed first in the newest run that ended; None when none is remembered."""
    ends = [
        (began_s, ended_s, pod, container, ended)
        for pod in pods
        for container in pod.workers
        if (ended := container.last_end) is not None
        and ended.exit_code != 0
        and not (pod.is_leaving and ended.exit_code in STOPPED)  # it was deleted, such as by a suspension
        and (began_s := unix_time(ended.started_at)) is not None
        and (ended_s := unix_time(ended.finished_at)) is not None
    ]
    if not ends:
        return None
    newest_s = max(began_s for began_s, *_ in ends)
    _, at_s, pod, container, ended = min(
        (end for end in ends if end[0] >= newest_s - SAME_RUN_S),
        key=lambda end: (end[1], end[4].exit_code in STOPPED and end[4].reason != "OOMKilled", end[2].name),
    )
    fields: dict[str, str | int | None] = {"pod": pod.name, "node": pod.spec.node_name, "container": container.name}
    fields |= {"exitCode": ended.exit_code, "reason": ended.reason}
    return FirstFailure(at_s, {name: value for name, value in fields.items() if value})
