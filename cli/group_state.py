"""
What a JobSet and its Pods say together: which phase, how many Pods where, who keeps the others waiting. Pure.

The barrier's own counting is the controller's (common/epoch/ledger.py). This counts what anybody can read, so that it
also works beside another controller, and while ours is away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from cli.pod_facts import PodFact
from cli.straggler import Straggler, straggler_of
from common import wire
from common.epoch.errors import RemoteProtocolError
from common.epoch.slot import Shape, Slot
from common.kube.client import KubeObject
from controller.conditions import BARRIER_WAITING
from controller.jobset import JobSet, parse_jobset
from controller.scopes import Scope

STRAGGLERS_MAX = 10_000  # every slot of the largest group; the views cut at what fits


class Phase(Enum):
    """Where a JobSet is; for its scopes, the first four."""

    RUNNING = "Running"
    STARTING = "Starting"
    RESTARTING = "Restarting"
    DEGRADED = "Degraded"  # it runs, and some Pod of it is gone or left the epoch that runs
    RECREATING = "Recreating"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    FAILED = "Failed"
    LEAVING = "Deleting"
    OTHER = "NotInPlace"  # restarts by recreation, or under another controller's rules
    UNREADABLE = "Unreadable"


ENDED = (Phase.COMPLETED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class ScopeState:
    """One scope: what restarts together.

    Args:
        name: "" for the whole JobSet.
        synced: S.
        deprecated: D.
        target: the epoch that its Pods gather at, or run.
        expected: N.
        epochs: how many slots announced which epoch; 0 for none yet, slots without a Pod left out.
        working: Pods whose worker containers run.
        stragglers: who is not at `target`.
    """

    name: str
    phase: Phase
    synced: int
    deprecated: int
    target: int
    expected: int
    epochs: Mapping[int, int]
    working: int
    stragglers: Sequence[Straggler]

    @property
    def arrived(self) -> int:
        """Return how many slots announced `target`."""
        return self.expected - len(self.stragglers)


@dataclass(frozen=True, slots=True)
class Restart:
    """The last group restart, as the controller or, where it says nothing, the Pods remember it.

    Args:
        epoch: that it led to.
        first_failure: pod, node, container, exitCode, reason and message, as far as known.
        request: the id of a manual restart.
    """

    epoch: int
    trigger: str | None = None
    started_at: str | None = None
    synced_at: str | None = None
    first_failure: Mapping[str, str | int] | None = None
    scope: str | None = None
    request: str | None = None


@dataclass(frozen=True, slots=True)
class GroupState:
    """One JobSet.

    Args:
        stuck: what condition BarrierWaiting says; "" for nothing.
        conditions: those that are True, by type.
        used: restarts that counted; None where nothing restarts in place.
        not_due: replicatedJobs whose turn to start has not come.
    """

    namespace: str
    name: str
    phase: Phase
    jobset: JobSet | None
    scopes: Sequence[ScopeState]
    pods: int
    stuck: str = ""
    conditions: Mapping[str, Mapping[str, str]] | None = None
    used: int | None = None
    allowed: int | None = None
    last: Restart | None = None
    managed_by: str | None = None
    not_due: Sequence[str] = ()

    @property
    def expected(self) -> int:
        """Return how many Pods its barriers wait for."""
        return sum(scope.expected for scope in self.scopes)

    @property
    def arrived(self) -> int:
        """Return how many of them are where they should be."""
        return sum(scope.arrived for scope in self.scopes)

    @property
    def stragglers(self) -> list[Straggler]:
        """Return who is not."""
        return list(islice((one for scope in self.scopes for one in scope.stragglers), STRAGGLERS_MAX))


def group_state(raw: KubeObject, pods: Iterable[PodFact]) -> GroupState:
    """Put a JobSet and its Pods together."""
    meta, status = raw["metadata"], raw.get("status") or {}
    true = {one["type"]: one for one in status.get("conditions") or () if one.get("status") == "True"}
    waiting = true.get(BARRIER_WAITING, {}).get("message", "")
    namespace, name = str(meta.get("namespace", "")), str(meta["name"])
    own = [pod for pod in pods if _is_of(pod, meta.get("uid"))]
    try:
        jobset = parse_jobset(raw)
        not_due = _not_due(jobset, own)
        scopes = _scopes(jobset, own, not_due)
    except RemoteProtocolError as error:
        problem = {"Unreadable": {"type": "Unreadable", "reason": "Unreadable", "message": str(error)}}
        return GroupState(namespace, name, Phase.UNREADABLE, None, (), len(own), conditions=true | problem)
    policy = jobset.failure_policy
    return GroupState(
        namespace,
        name,
        _phase(jobset, scopes, true),
        jobset,
        scopes,
        len(own),
        stuck=waiting,
        conditions=true,
        used=min(_used(jobset, scopes), policy.restarts_max) if policy is not None and scopes else None,
        allowed=policy.restarts_max if policy is not None and scopes else None,
        last=_last_restart(status),
        managed_by=None if jobset.is_ours else jobset.managed_by,
        not_due=not_due,
    )


def _not_due(jobset: JobSet, pods: Iterable[PodFact]) -> list[str]:
    """Return the replicatedJobs that no barrier waits for yet: they start after others, and have no Pod and no Job."""
    if not jobset.has_order or jobset.startup_completed:
        return []
    begun = {slot.replicated_job for pod in pods if (slot := pod.slot) is not None}
    for entry in jobset.status.get("replicatedJobsStatus") or ():
        if any(isinstance(count, int) and count > 0 for count in entry.values()):
            begun.add(str(entry.get("name")))
    return [job.name for job in jobset.replicated_jobs[1:] if job.name not in begun]


def _scopes(jobset: JobSet, pods: Iterable[PodFact], not_due: Sequence[str]) -> list[ScopeState]:
    if not jobset.is_in_place:
        return []
    best: dict[Slot, PodFact] = {}
    for pod in pods:
        slot = pod.slot
        if slot is not None and (slot not in best or _rank(pod) > _rank(best[slot])):
            best[slot] = pod
    return [_scope(jobset, scope, best, not_due) for scope in jobset.scopes.values()]


def _scope(jobset: JobSet, scope: Scope, pods: Mapping[Slot, PodFact], not_due: Sequence[str]) -> ScopeState:
    members = [job for job in jobset.replicated_jobs if job.name in scope.members and job.name not in not_due]
    shape = Shape({job.name: (job.replicas, job.parallelism) for job in members})
    found = {slot: pod for slot, pod in pods.items() if shape.expects(slot)}
    live = {slot: pod for slot, pod in found.items() if pod.is_live}
    newest = max((pod.epoch for pod in live.values()), default=0)
    target = max(newest, scope.synced, scope.deprecated + 1)
    if target == scope.synced:  # who is done with the epoch that runs keeps nobody waiting
        live |= {slot: pod for slot, pod in found.items() if pod.is_done}
    late = [
        straggler_of(str(slot), found.get(slot), scope.deprecated)
        for slot in shape
        if slot not in live or live[slot].epoch != target
    ]
    return ScopeState(
        scope.name,
        _scope_phase(scope, target, late),
        scope.synced,
        scope.deprecated,
        target,
        shape.size,
        dict(sorted(Counter(pod.epoch for pod in live.values()).items())),
        sum(pod.is_working for pod in live.values()),
        late,
    )


def _scope_phase(scope: Scope, target: int, late: Sequence[Straggler]) -> Phase:
    if scope.synced == 0:
        return Phase.STARTING
    if target > scope.synced:
        return Phase.RESTARTING
    return Phase.DEGRADED if late else Phase.RUNNING


def _phase(jobset: JobSet, scopes: Sequence[ScopeState], true: Mapping[str, object]) -> Phase:
    """Return the first that holds; a scope that is worse off speaks for the others."""
    states: list[tuple[bool, Phase]] = [
        (jobset.is_true("Completed"), Phase.COMPLETED),
        (jobset.is_true("Failed"), Phase.FAILED),
        (jobset.is_leaving, Phase.LEAVING),
        (jobset.suspended, Phase.SUSPENDED),
        ("RestartingJobSet" in true, Phase.RECREATING),
        (not jobset.is_in_place, Phase.OTHER),
    ]
    phases = [scope.phase for scope in scopes]
    states += [(phase in phases, phase) for phase in (Phase.RESTARTING, Phase.STARTING, Phase.DEGRADED)]
    return next((phase for holds, phase in states if holds), Phase.RUNNING)


def _used(jobset: JobSet, scopes: Sequence[ScopeState]) -> int:
    """Return how many restarts counted towards maxRestarts."""
    in_place = sum(jobset.scopes[scope.name].restarts_at(max(scope.target, 1)) for scope in scopes)
    return in_place + jobset.recreations_counted  # the one that was too many is among them


def _last_restart(status: Mapping[str, object]) -> Restart | None:
    """Read status.lastGroupRestart; None where no controller of ours wrote it."""
    seen = status.get(wire.LAST_GROUP_RESTART)
    if not isinstance(seen, dict) or not isinstance(seen.get("epoch"), int):
        return None
    failure = seen.get("firstFailure")
    return Restart(
        seen["epoch"],
        seen.get("trigger"),
        seen.get("startedAt"),
        seen.get("syncedAt"),
        failure if isinstance(failure, dict) else None,
        seen.get("scope"),
        seen.get("request"),
    )


def _is_of(pod: PodFact, uid: str | None) -> bool:
    """Say whether a Pod is of this JobSet, and not of an earlier one of its name."""
    labels = pod.metadata.labels
    return labels is None or labels.jobset_uid is None or uid is None or labels.jobset_uid == uid


def _rank(pod: PodFact) -> tuple[bool, bool, str]:
    """Order the Pods of one slot: live before leaving before ended, then the newest."""
    ended = pod.status.phase in ("Failed", "Succeeded")
    return pod.is_live, not ended, pod.metadata.creation_timestamp or ""
