"""
Combine a JobSet and its Pods: its phase, the number of Pods in each state, the Pods that others wait for. Pure.

The controller's own count for the barrier is common/protocol/ledger.py. This module counts only what every client can
read, so that it also works beside another controller and while ours is down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from inplace.cli.group.last_restart import LastRestart, last_restart
from inplace.cli.group.notices import running_notices
from inplace.cli.group.pod_facts import PodFact, roles_of
from inplace.cli.group.scope_state import ScopeState, scope_state
from inplace.cli.group.straggler import Straggler
from inplace.common.bare.record import replace as changed
from inplace.common.injection.as_made import as_made
from inplace.common.injection.pod_roles import members
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.conditions import BARRIER_WAITING
from inplace.common.jobset.headline import ENDED, GroupPhase, Headline, Pulse, Slots, SlotState, headline
from inplace.common.jobset.jobset import COUNTERS, JobSet, parse_jobset
from inplace.common.jobset.notices import GroupNotice
from inplace.common.jobset.scopes import fields_of_scope
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.slot import Shape, Slot
from inplace.common.wire import names as wire
from inplace.common.wire.notice import BUSY

NAMED_MAX = 10_000  # slots without a Pod that get a name: every slot of the largest group; a spec may ask for 2**62


@dataclass(frozen=True, slots=True)
class GroupState:
    """One JobSet.

    Args:
        own: the phase that the JobSet itself says; None where its slots decide.
        stuck: what condition BarrierWaiting says; "" for nothing.
        conditions: those that are True, by type.
        used: restarts that counted; None where nothing restarts in place.
        not_due: replicatedJobs whose turn to start has not come.
        strays: names of Pods that hold the barriers up although they are in no slot, or beside another Pod in one.
        notices: what Pods tell of the epochs that run.
    """

    namespace: str
    name: str
    own: GroupPhase | None
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
    def phase(self) -> GroupPhase:
        """Return where it is."""
        return self.headline().phase

    def headline(self, pulse: Pulse = Pulse.UNKNOWN, *, is_queued: bool = False) -> Headline:
        """Return how it stands, where so much is known of the controller.

        Args:
            pulse: of the controller.
            is_queued: a queue is known that its labels do not name.
        """
        labels = self.jobset.raw["metadata"].get("labels") or {} if self.jobset is not None else {}
        is_queued = is_queued or bool(labels.get(wire.QUEUE_NAME))
        ours = pulse if self.managed_by is None else Pulse.UNKNOWN
        return headline([one.slots for one in self.scopes], own=self.own, pulse=ours, is_queued=is_queued)

    @property
    def needs_controller(self) -> bool:
        """Say whether our controller has something to do for it, now or at the next failure."""
        return self.managed_by is None and self.own not in ENDED

    @property
    def reports_steps(self) -> bool:
        """Say whether in every scope some rank is known to report steps."""
        return all(scope.slots.counts.get(SlotState.STEPS) for scope in self.scopes)

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
        return sum(scope.unnamed for scope in self.scopes)

    def left_s(self, now_s: float) -> float | None:
        """Return when the barrier lifts if the rest arrive as those before did, in seconds; None for unknown."""
        began_s = unix_time(self.last.started_at) if self.last is not None and self.last.synced_at is None else None
        gathering = [scope for scope in self.scopes if scope.target > scope.synced]
        arrived, missing = sum(one.arrived for one in gathering), sum(one.late for one in gathering)
        if began_s is None or not arrived or not missing:
            return None
        return max(0.0, now_s - began_s) * missing / arrived


def group_state(
    raw: KubeObject, pods: Iterable[PodFact], *, named_max: int = NAMED_MAX, reporting: Set[str] = frozenset()
) -> GroupState:
    """Put a JobSet and its Pods together, in a time that grows with the Pods and not with the slots.

    Args:
        raw: the JobSet.
        pods: those that bear its name.
        named_max: how many slots without a Pod get a name, in each scope.
        reporting: names of Pods whose ranks are known to report steps in the epoch that runs.
    """
    meta = raw["metadata"]
    namespace, name = str(meta.get("namespace", "")), str(meta["name"])
    own = [pod for pod in pods if _is_of(pod, meta.get("uid"))]
    try:
        jobset = parse_jobset(raw)
        not_due, best = _not_due(jobset, own), _by_slot(own)
        notices = running_notices(jobset.status, jobset.scopes) if not jobset.is_finished else ()
        stepping = {one.scope for one in notices}  # a rank that tells anything reports steps
        goes_wrong = {one.scope for one in notices if one.kind != BUSY}
        scopes = _scopes(jobset, best, {*not_due, *_left(jobset)}, named_max, reporting, stepping, goes_wrong)
    except RemoteProtocolError as error:
        problem = {"Unreadable": {"type": "Unreadable", "reason": "Unreadable", "message": str(error)}}
        return GroupState(namespace, name, GroupPhase.UNREADABLE, None, (), len(own), conditions=problem)
    true = {one["type"]: one for one in jobset.status.get("conditions") or () if one.get("status") == "True"}
    policy = jobset.failure_policy
    return GroupState(
        namespace,
        name,
        _own_phase(jobset, true),
        jobset,
        scopes,
        len(own),
        stuck=true.get(BARRIER_WAITING, {}).get("message") or "",
        conditions=true,
        used=min(_used(jobset, scopes), policy.restarts_max) if policy is not None and scopes else None,
        allowed=policy.restarts_max if policy is not None and scopes else None,
        last=last_restart(jobset.status),
        managed_by=None if jobset.is_ours else jobset.managed_by,
        not_due=not_due,
        strays=_strays(jobset, own, best) if jobset.is_in_place else (),
        notices=notices,
    )


def _left(jobset: JobSet) -> set[str]:
    """Return the replicatedJobs that completed and that others waited for: no barrier expects them any more."""
    counters = {str(one.get("name")): one.get("succeeded") for one in jobset.status.get(COUNTERS) or ()}
    awaited = [
        job for job in jobset.replicated_jobs if jobset.starts_in_order or job.name in jobset.awaited_to_complete
    ]
    return {job.name for job in awaited if jobset.has_order and counters.get(job.name) == job.replicas}


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
    jobset: JobSet,
    counted: Mapping[Slot, PodFact],
    apart: Set[str],
    named_max: int,
    reporting: Set[str],
    stepping: Set[str],
    goes_wrong: Set[str],
) -> list[ScopeState]:
    if not jobset.is_in_place:
        return []
    shapes: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in jobset.scopes}
    for job in jobset.replicated_jobs:
        if job.parallelism and not job.has_opted_out and job.name not in apart:
            shapes[jobset.scope_name(job)][job.name] = job.replicas, job.parallelism
    best: dict[str, dict[Slot, PodFact]] = {name: {} for name in jobset.scopes}
    scope_of = {job: name for name, jobs in shapes.items() for job in jobs}
    for slot, pod in counted.items():
        if slot.replicated_job in scope_of:
            best[scope_of[slot.replicated_job]][slot] = pod
    written = {member.name for member in members(jobset.raw) if member.agent is not None}
    roles = {
        member.name: roles_of(member) for member in members(as_made(jobset.raw).jobset) if member.agent is not None
    }
    states = []
    for name, scope in jobset.scopes.items():
        sizes = jobset.member_policy(scope).sizes if scope.has_spares else None
        state = scope_state(scope, Shape(shapes[name]), best[name], named_max, roles, written, reporting, sizes)
        slots = state.slots
        counts = Counter(slots.counts)
        if name in stepping and counts[SlotState.RUNS]:
            counts += Counter({SlotState.STEPS: counts.pop(SlotState.RUNS)})
        loop = fields_of_scope(jobset.status, scope).get(wire.CRASH_LOOP)
        is_paused = isinstance(loop, Mapping) and bool(loop.get("until")) and loop.get("epoch") == scope.synced + 1
        slots = changed(slots, counts=counts, scope=name, goes_wrong=name in goes_wrong, is_paused=is_paused)
        states.append(replace(state, slots=slots))
        named_max -= sum(one.pod is None for one in states[-1].stragglers)
    return states


def _strays(jobset: JobSet, pods: Iterable[PodFact], best: Mapping[Slot, PodFact]) -> list[str]:
    """Return the names of Pods that have not ended and that no slot counts; of two in one slot the elder."""
    apart = jobset.opted_out
    strays = []
    for pod in pods:
        slot = pod.slot
        is_counted = slot is not None and jobset.shape.expects(slot) and best[slot] is pod
        if not (is_counted or pod.has_ended or (slot is not None and slot.replicated_job in apart)):
            strays.append(pod.name)
    return sorted(strays)


def _own_phase(jobset: JobSet, true: Mapping[str, object]) -> GroupPhase | None:
    """Return the first phase that the JobSet itself says; None where its slots decide."""
    states: list[tuple[bool, GroupPhase]] = [
        (jobset.is_true("Completed"), GroupPhase.COMPLETED),
        (jobset.is_true("Failed"), GroupPhase.FAILED),
        (jobset.is_leaving, GroupPhase.LEAVING),
        (jobset.suspended, GroupPhase.SUSPENDED),
        ("RestartingJobSet" in true, GroupPhase.RECREATING),
        (not jobset.is_in_place, GroupPhase.OTHER),
    ]
    return next((phase for holds, phase in states if holds), None)


def _used(jobset: JobSet, scopes: Sequence[ScopeState]) -> int:
    """Return how many restarts counted towards maxRestarts."""
    in_place = sum(jobset.scopes[scope.name].restarts_at(max(scope.target, 1)) for scope in scopes)
    return in_place + jobset.recreations_counted  # the one that was too many is among them


def _is_of(pod: PodFact, uid: str | None) -> bool:
    """Say whether a Pod is of this JobSet, and not of an earlier one of its name."""
    labels = pod.metadata.labels
    return labels is None or labels.jobset_uid is None or uid is None or labels.jobset_uid == uid


def _by_slot(pods: Iterable[PodFact]) -> dict[Slot, PodFact]:
    """Return the Pod of each slot that counts: live before leaving before ended, then the newest."""

    def rank(pod: PodFact) -> tuple[bool, bool, str]:
        return pod.is_live, not pod.has_ended, pod.metadata.creation_timestamp or ""

    best: dict[Slot, PodFact] = {}
    for pod in sorted(pods, key=rank, reverse=True):
        if (slot := pod.slot) is not None:
            best.setdefault(slot, pod)
    return best


def state_of_status(raw: KubeObject) -> GroupState:
    """Return how a JobSet stands by its status alone: no Pod is read, and none is missed that no condition misses."""
    state = group_state(raw, (), named_max=0)
    jobset, scopes = state.jobset, []
    for scope in state.scopes:
        slots = scope.slots
        if slots.runs and jobset is not None:
            lost = min(1, scope.expected) if state.stuck else 0
            completed = min(_completed(jobset, scope.name), scope.expected - lost)
            counts = {SlotState.VACANT: lost, SlotState.COMPLETED: completed}
            counts[SlotState.RUNS] = scope.expected - lost - completed
            slots = Slots(counts, slots.synced, slots.deprecated, slots.scope)
        elif slots.synced == 0 and jobset is not None:  # the agent makes its Pod ready when the barrier lifts
            slots = changed(slots, is_unequipped=_all_ready(jobset, scope.name))
        scopes.append(replace(scope, slots=slots))
    return replace(state, scopes=scopes)


def _all_ready(jobset: JobSet, scope: str) -> bool:
    """Say whether all Jobs of a scope are ready, by the status."""
    ready = {str(one.get("name")): one.get("ready") for one in jobset.status.get(COUNTERS) or ()}
    jobs = [job for job in jobset.replicated_jobs if job.name in jobset.scopes[scope].members]
    return any(job.replicas for job in jobs) and all(ready.get(job.name) == job.replicas for job in jobs)


def _completed(jobset: JobSet, scope: str) -> int:
    """Return how many Pods of a scope are in Jobs that completed, by the status."""
    sizes = {job.name: job.parallelism for job in jobset.replicated_jobs if job.name in jobset.scopes[scope].members}
    counters = [one for one in jobset.status.get(COUNTERS) or () if one.get("name") in sizes]
    return sum(sizes[one["name"]] * int(one.get("succeeded") or 0) for one in counters)
