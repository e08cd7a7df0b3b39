"""
Combine a JobSet and its Pods: its phase, the number of Pods in each state, the Pods that others wait for. Pure.

The controller's own count for the barrier is common/protocol/ledger.py. This module counts only what every client can
read, so that it also works beside another controller and while ours is down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Any

from inplace.cli.group.notices import running_notices
from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.straggler import Straggler, straggler_of
from inplace.common.bare.record import record
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.slot import Shape, Slot
from inplace.common.wire import names as wire
from inplace.controller.injection.as_made import as_made
from inplace.controller.injection.pod_roles import members
from inplace.controller.spec.conditions import BARRIER_WAITING
from inplace.controller.spec.furthest_behind import FurthestBehind, silent_of_entry
from inplace.controller.spec.goodput import Goodput
from inplace.controller.spec.jobset import JobSet, parse_jobset
from inplace.controller.spec.last_restart import seconds_of
from inplace.controller.spec.notices import GroupNotice
from inplace.controller.spec.saving import Saving
from inplace.controller.spec.scopes import Scope
from inplace.controller.spec.slow_ranks import SlowRanks, slow_ranks_of_entry

NAMED_MAX = 10_000  # slots without a Pod that get a name: every slot of the largest group; a spec may ask for 2**62


class GroupPhase(Enum):
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


ENDED = (GroupPhase.COMPLETED, GroupPhase.FAILED)
WAITING = (GroupPhase.STARTING, GroupPhase.RESTARTING, GroupPhase.DEGRADED)  # for Pods
NOT_RUNNING = {  # no worker runs, or soon none will
    GroupPhase.SUSPENDED: "it is suspended",
    GroupPhase.COMPLETED: "it completed",
    GroupPhase.FAILED: "it failed",
    GroupPhase.LEAVING: "it is being deleted",
}


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
        working: Pods whose workers of this epoch were started.
        idle: names of the Pods at the epoch that runs whose workers were not.
        late: how many slots are not at `target`.
        stragglers: those of them with a Pod, then the first of those without one.
        goodput: what its restarts cost in training time, where Pods told.
        saving: the restart that waits for its workers to save.
    """

    name: str
    phase: GroupPhase
    synced: int
    deprecated: int
    target: int
    expected: int
    epochs: Mapping[int, int]
    working: int
    late: int
    stragglers: Sequence[Straggler]
    goodput: Goodput | None = None
    saving: Saving | None = None
    idle: Sequence[str] = ()

    @property
    def arrived(self) -> int:
        """Return how many slots announced `target`."""
        return self.expected - self.late


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


@dataclass(frozen=True, slots=True)
class GroupState:
    """One JobSet.

    Args:
        stuck: what condition BarrierWaiting says; "" for nothing.
        conditions: those that are True, by type.
        used: restarts that counted; None where nothing restarts in place.
        not_due: replicatedJobs whose turn to start has not come.
        strays: names of Pods that hold the barriers up although they are in no slot, or beside another Pod in one.
        notices: what Pods tell of the epochs that run.
    """

    namespace: str
    name: str
    phase: GroupPhase
    jobset: JobSet | None
    scopes: Sequence[ScopeState]
    pods: int
    stuck: str = ""
    conditions: Mapping[str, Mapping[str, str]] | None = None
    used: int | None = None
    allowed: int | None = None
    last: LastRestart | None = None
    managed_by: str | None = None
    not_due: Sequence[str] = ()
    strays: Sequence[str] = ()
    notices: Sequence[GroupNotice] = ()

    @property
    def expected(self) -> int:
        """Return how many Pods its barriers wait for."""
        return sum(scope.expected for scope in self.scopes)

    @property
    def arrived(self) -> int:
        """Return how many of them are where they should be."""
        return sum(scope.arrived for scope in self.scopes)

    @property
    def late(self) -> int:
        """Return how many are not."""
        return sum(scope.late for scope in self.scopes)

    @property
    def stragglers(self) -> list[Straggler]:
        """Return who is not, as far as they are named; all others are slots without a Pod."""
        return [one for scope in self.scopes for one in scope.stragglers]

    @property
    def unnamed(self) -> int:
        """Return how many slots without a Pod have no name in `stragglers`."""
        return self.late - len(self.stragglers)


def group_state(raw: KubeObject, pods: Iterable[PodFact], *, named_max: int = NAMED_MAX) -> GroupState:
    """Put a JobSet and its Pods together, in a time that grows with the Pods and not with the slots.

    Args:
        raw: the JobSet.
        pods: those that bear its name.
        named_max: how many slots without a Pod get a name, in each scope.
    """
    meta, status = raw["metadata"], raw.get("status") or {}
    true = {one["type"]: one for one in status.get("conditions") or () if one.get("status") == "True"}
    waiting = true.get(BARRIER_WAITING, {}).get("message", "")
    namespace, name = str(meta.get("namespace", "")), str(meta["name"])
    own = [pod for pod in pods if _is_of(pod, meta.get("uid"))]
    try:
        jobset = parse_jobset(raw)
        not_due, best = _not_due(jobset, own), _by_slot(own)
        scopes = _scopes(jobset, best, frozenset(not_due), named_max)
    except RemoteProtocolError as error:
        problem = {"Unreadable": {"type": "Unreadable", "reason": "Unreadable", "message": str(error)}}
        return GroupState(namespace, name, GroupPhase.UNREADABLE, None, (), len(own), conditions=true | problem)
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
        last=last_restart(status),
        managed_by=None if jobset.is_ours else jobset.managed_by,
        not_due=not_due,
        strays=_strays(jobset, own, best) if jobset.is_in_place else (),
        notices=running_notices(jobset.status, jobset.scopes) if not jobset.is_finished else (),
    )


def state_of_status(raw: KubeObject) -> GroupState:
    """Return how a JobSet stands by its status alone: where no Pod is read, none is missed."""
    state = group_state(raw, (), named_max=0)
    return replace(state, phase=GroupPhase.RUNNING) if state.phase is GroupPhase.DEGRADED else state


def _not_due(jobset: JobSet, pods: Iterable[PodFact]) -> list[str]:
    """Return the replicatedJobs that no barrier waits for yet: they start after others, and have no Pod and no Job."""
    if not jobset.has_order or jobset.startup_completed:
        return []
    begun = {slot.replicated_job for pod in pods if (slot := pod.slot) is not None}
    for entry in jobset.status.get("replicatedJobsStatus") or ():
        if any(isinstance(count, int) and count > 0 for count in entry.values()):
            begun.add(str(entry.get("name")))
    return [job.name for job in jobset.replicated_jobs[1:] if job.name not in begun]


def _scopes(
    jobset: JobSet, counted: Mapping[Slot, PodFact], not_due: frozenset[str], named_max: int
) -> list[ScopeState]:
    if not jobset.is_in_place:
        return []
    shapes: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in jobset.scopes}
    for job in jobset.replicated_jobs:
        if job.parallelism and not job.has_opted_out and job.name not in not_due:
            shapes[jobset.scope_name(job)][job.name] = job.replicas, job.parallelism
    best: dict[str, dict[Slot, PodFact]] = {name: {} for name in jobset.scopes}
    scope_of = {job: name for name, jobs in shapes.items() for job in jobs}
    for slot, pod in counted.items():
        if slot.replicated_job in scope_of:
            best[scope_of[slot.replicated_job]][slot] = pod
    written = {member.name for member in members(jobset.raw) if member.agent is not None}
    agents = {
        member.name: member.sidecar_agent.name if member.mode == "sidecar" and member.sidecar_agent else ""
        for member in members(as_made(jobset.raw).jobset)
        if member.agent is not None
    }
    states = []
    for name, scope in jobset.scopes.items():
        states.append(_scope(scope, Shape(shapes[name]), best[name], named_max, agents, written))
        named_max -= sum(one.pod is None for one in states[-1].stragglers)
    return states


def _strays(jobset: JobSet, pods: Iterable[PodFact], best: Mapping[Slot, PodFact]) -> list[str]:
    """Return the names of Pods that have not ended and that no slot counts; of two in one slot the elder."""
    apart = jobset.opted_out
    strays = []
    for pod in pods:
        slot = pod.slot
        is_counted = slot is not None and jobset.shape.expects(slot) and best[slot] is pod
        if not (is_counted or _has_ended(pod) or (slot is not None and slot.replicated_job in apart)):
            strays.append(pod.name)
    return sorted(strays)


def _scope(
    scope: Scope,
    shape: Shape,
    pods: Mapping[Slot, PodFact],
    named_max: int,
    agents: Mapping[str, str],
    written: Set[str],
) -> ScopeState:
    """Count the Pods of a scope; `agents` has each replicatedJob's agent, `written` those whose template has it."""
    found = {slot: pod for slot, pod in pods.items() if shape.expects(slot)}
    live = {slot: pod for slot, pod in found.items() if pod.is_live}
    # No group has an epoch beyond S + 1 yet: the controller ignores such an announcement.
    newest = max((pod.epoch for pod in live.values() if pod.epoch <= scope.synced + 1), default=0)
    target = max(newest, scope.synced, scope.deprecated + 1)
    if target == scope.synced:  # who is done with the epoch that runs keeps nobody waiting
        live |= {slot: pod for slot, pod in found.items() if pod.is_done}
    behind = sorted(slot for slot in found if slot not in live or live[slot].epoch != target)
    late = len(behind) + shape.size - len(found)
    missing = islice((slot for slot in shape if slot not in found), min(named_max, shape.size - len(found)))
    stragglers = [
        straggler_of(str(slot), found.get(slot), scope.deprecated, target, has_agent=slot.replicated_job in written)
        for slot in (*behind, *missing)
    ]
    at_work = {
        slot
        for slot, pod in live.items()
        if pod.epoch == target and pod.is_working(agents.get(slot.replicated_job, ""))
    }
    runs = scope.synced > scope.deprecated and target == scope.synced
    idle = [pod.name for slot, pod in live.items() if pod.epoch == target and not (slot in at_work or pod.is_done)]
    return ScopeState(
        scope.name,
        _scope_phase(scope, target, late),
        scope.synced,
        scope.deprecated,
        target,
        shape.size,
        dict(sorted(Counter(pod.epoch for pod in live.values()).items())),
        len(at_work),
        late,
        stragglers,
        scope.goodput,
        scope.saving_now,
        sorted(idle) if runs else (),
    )


def _scope_phase(scope: Scope, target: int, late: int) -> GroupPhase:
    if scope.synced == 0:
        return GroupPhase.STARTING
    if target > scope.synced:
        return GroupPhase.RESTARTING
    return GroupPhase.DEGRADED if late else GroupPhase.RUNNING


def _phase(jobset: JobSet, scopes: Sequence[ScopeState], true: Mapping[str, object]) -> GroupPhase:
    """Return the first that holds; a scope that is worse off speaks for the others."""
    states: list[tuple[bool, GroupPhase]] = [
        (jobset.is_true("Completed"), GroupPhase.COMPLETED),
        (jobset.is_true("Failed"), GroupPhase.FAILED),
        (jobset.is_leaving, GroupPhase.LEAVING),
        (jobset.suspended, GroupPhase.SUSPENDED),
        ("RestartingJobSet" in true, GroupPhase.RECREATING),
        (not jobset.is_in_place, GroupPhase.OTHER),
    ]
    phases = [scope.phase for scope in scopes]
    states += [(phase in phases, phase) for phase in (GroupPhase.RESTARTING, GroupPhase.STARTING, GroupPhase.DEGRADED)]
    return next((phase for holds, phase in states if holds), GroupPhase.RUNNING)


def _used(jobset: JobSet, scopes: Sequence[ScopeState]) -> int:
    """Return how many restarts counted towards maxRestarts."""
    in_place = sum(jobset.scopes[scope.name].restarts_at(max(scope.target, 1)) for scope in scopes)
    return in_place + jobset.recreations_counted  # the one that was too many is among them


def last_restart(status: Mapping[str, object]) -> LastRestart | None:
    """Read status.lastGroupRestart; None where no controller of ours wrote it."""
    seen = status.get(wire.LAST_GROUP_RESTART)
    if not isinstance(seen, dict) or not isinstance(seen.get("epoch"), int):
        return None
    failure = seen.get("firstFailure")
    return LastRestart(
        seen["epoch"],
        seen.get("trigger"),
        seen.get("startedAt"),
        seen.get("syncedAt"),
        failure if isinstance(failure, dict) else None,
        seen.get("scope"),
        seen.get("request"),
        silent_of_entry(seen),
        str(seen["rung"]) if seen.get("rung") else None,
        seconds_of(seen),
        slow_ranks_of_entry(seen),
    )


def _is_of(pod: PodFact, uid: str | None) -> bool:
    """Say whether a Pod is of this JobSet, and not of an earlier one of its name."""
    labels = pod.metadata.labels
    return labels is None or labels.jobset_uid is None or uid is None or labels.jobset_uid == uid


def _by_slot(pods: Iterable[PodFact]) -> dict[Slot, PodFact]:
    """Return the Pod of each slot that counts: live before leaving before ended, then the newest."""

    def rank(pod: PodFact) -> tuple[bool, bool, str]:
        return pod.is_live, not _has_ended(pod), pod.metadata.creation_timestamp or ""

    best: dict[Slot, PodFact] = {}
    for pod in sorted(pods, key=rank, reverse=True):
        if (slot := pod.slot) is not None:
            best.setdefault(slot, pod)
    return best


def _has_ended(pod: PodFact) -> bool:
    return pod.status.phase in ("Failed", "Succeeded")
