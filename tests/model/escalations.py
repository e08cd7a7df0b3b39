"""
The escalation of one JobSet, explored: the real steps of the plan and the real ledger, two Pods, windows, and leaders.

Checked is what stands in the status, whoever wrote it: every accepted write is compared with the world's own record
of what was used when. Leaders crash between the write and its actions, an old one goes on with what it saw last, and
Pods announce in any order. What `tests.model.world` explores (stale views, lost PATCHes) is left out here.

The Pods are those of one Job, which may fail; with the step RecreateJob each is the one Pod of a Job of its own, and no
Job fails by itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from inplace.common.jobset import escalation
from inplace.common.jobset.bad_nodes import NodeSigns
from inplace.common.jobset.causes import Cause, Failure, Trigger
from inplace.common.jobset.jobset import COUNTERS, JobSet, parse_jobset
from inplace.common.jobset.kinds import Job
from inplace.common.jobset.kinds import Pod as KubePod
from inplace.common.jobset.rules import Matches
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.pod_view import PodLife, PodView
from inplace.common.protocol.slot import Slot
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import ReplacePod
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.epochs import decide_epochs
from inplace.controller.plan.escalation import replace_pods
from inplace.controller.plan.failure import fail_or_restart
from inplace.controller.plan.jobs import build_job
from inplace.controller.plan.observed import Observed
from inplace.controller.plan.steps import Step
from inplace.controller.tracking.group import Group, failed_pods
from tests.common.jobset.test_escalation import time_of
from tests.controller.manifests import jobset as jobset_manifest
from tests.controller.manifests import replicated_job
from tests.model.explore import Result
from tests.model.search import search

ESCALATIONS: Final = (
    "InPlace=1,ReplacePod=1,window=2",
    "ReplacePod=1,RecreateJobs=1,window=3",
    "InPlace=1,window=3",
    "RecreateJob=1,InPlace=1,window=2",
)
LEAVING: Final = (escalation.LEAVE_NODE, escalation.LEAVE_DOMAIN)  # no steps
WORKERS: Final = "workers"
START_S: Final = 1_700_000_000
SET_BACK_S: Final = 2
TIME_MAX: Final = 3  # seconds: as long as the longest window
EPOCHS_MAX: Final = 5

R1: Final = "R1 a window holds more uses than its step allows"
R2: Final = "R2 a counted restart took no place in the escalation, or two"
R3: Final = "R3 a Pod was replaced whose worker did not exit first"
R4: Final = "R4 a step had room, and the restart got none"
R5: Final = "R5 S grew although a Pod that is to be replaced was there"
R6: Final = "R6 a Job was recreated whose worker did not exit first"


class Pod(NamedTuple):
    """One Pod: the epoch that it announced, in which its worker failed as its agent told, in which it exited first.

    Its node is told only where nodes are explored (tests.model.bad_domains).
    """

    uid: str
    epoch: int = 0
    told: int = 0
    guilty: int = 0
    attempt: int = 0
    is_ending: bool = False
    node: str = ""


class Leader(NamedTuple):
    """A controller that believes it leads.

    Args:
        view: the status as it saw it last.
        cause: (trigger, Pod) of the first sign since S was synced; "" for none.
        pending: UIDs of Pods that it is about to end.
        uses: what it remembers by itself; only where it forgets at a change of leader, which is a planted bug.
        returned: nodes to which a Pod came back that was to avoid them; only where nodes are explored.
    """

    view: str
    cause: tuple[str, str] = ("", "")
    pending: tuple[str, ...] = ()
    uses: str = "[]"
    returned: tuple[str, ...] = ()


class Place(NamedTuple):
    """One use as the world saw it written."""

    at_s: int
    step: str
    epoch: int


class EscalationState(NamedTuple):
    """The world."""

    status: str
    pods: tuple[Pod | None, Pod | None]
    leaders: tuple[Leader, ...]
    job_failed: int = -1  # the attempt of the Job that failed
    now_s: int = 0
    set_back: bool = False
    faults: int = 0
    places: tuple[Place, ...] = ()
    taken: int = 0  # places ever, without those given back
    bad: frozenset[tuple[int, int, str]] = frozenset()  # (slot, attempt, node) where a worker failed first
    back: frozenset[tuple[int, int, str]] = (
        frozenset()
    )  # (slot, attempt, node) where a Pod came back that was to avoid it
    rule: str = ""


def explore_escalations(
    annotation: str = ESCALATIONS[0], *, faults: int = 2, uncounted: bool = False, forgets: bool = False
) -> Result:
    """Visit every state of a JobSet with an escalation.

    Args:
        annotation: the escalation of the JobSet.
        faults: how many of them a run has.
        uncounted: the failure of a Job does not count towards maxRestarts.
        forgets: a leader keeps the uses in its memory, not in the status.
    """
    world = EscalationWorld(annotation, faults, uncounted=uncounted, forgets=forgets)
    name = f"escalation {annotation} faults={faults}{' failed Jobs do not count' if uncounted else ''}"
    return search(name, world, is_last=world.is_last, may_be=lambda state: state.now_s <= TIME_MAX)


@dataclass
class EscalationWorld:
    """Knows every move."""

    annotation: str
    faults: int
    uncounted: bool
    forgets: bool

    steps: ClassVar[tuple[Step, ...]] = (fail_or_restart, decide_epochs, replace_pods)

    def __post_init__(self) -> None:
        self.apart = escalation.RECREATE_JOB + "=" in self.annotation  # each Pod has a Job of its own
        self._jobset = lru_cache(maxsize=None)(self._parse)
        self._planned = lru_cache(maxsize=None)(self._plan)

    def first(self) -> EscalationState:
        """Return a group at work in epoch 1."""
        status = _text(wire.status_of_epochs(1, 0) | ({COUNTERS: [{"name": WORKERS}]} if self.apart else {}))
        pods = (Pod("0.0", 1), Pod("1.0", 1))
        return EscalationState(status, pods, (Leader(status),), faults=self.faults)

    def is_last(self, state: EscalationState) -> bool:
        """Say whether nothing more is explored: the JobSet failed, or has restarted often."""
        status = json.loads(state.status)
        return "terminalState" in status or wire.epochs_of_status(status)[0] >= EPOCHS_MAX

    def judge(self, state: EscalationState) -> str:
        """Name the rule that the last move broke, or return ""."""
        return state.rule

    def moves(self, state: EscalationState) -> Iterator[tuple[str, EscalationState]]:
        """Yield every move."""
        jobset = self._jobset(state.status)
        synced, deprecated = jobset.epochs
        yield from self._faults(state, synced, deprecated, jobset.restarts)
        for index, pod in enumerate(state.pods):
            attempt = _attempt(jobset, index)
            if (pod is None or pod.attempt != attempt or pod.is_ending) and state.job_failed != attempt:
                yield from self._new_pods(state, index, _successor(index, state, attempt))
            if pod is not None and pod.epoch <= synced and (pod.epoch <= deprecated or pod.told == synced):
                announced = pod._replace(epoch=synced + 1)
                yield f"pod {pod.uid} announces {synced + 1}", _with_pod(state, index, announced)
        yield "a second passes", state._replace(now_s=state.now_s + 1)
        for number, leader in enumerate(state.leaders):
            who = "the leader" if number == 0 else "the old leader"
            if leader.view != state.status:
                yield f"{who} reads the status", _with_leader(state, number, leader._replace(view=state.status))
            elif leader.pending:
                yield f"{who} ends pod {leader.pending[0]}", self._ended(state, number, synced)
            elif (after := self._written(state, number)) is not None:
                yield f"{who} writes the status", after

    def _new_pods(self, state: EscalationState, index: int, pod: Pod) -> Iterator[tuple[str, EscalationState]]:
        """Yield the ways in which a slot gets its next Pod."""
        yield f"slot {index} gets a new Pod", _with_pod(state, index, pod)

    def _faults(
        self, state: EscalationState, synced: int, deprecated: int, attempt: int
    ) -> Iterator[tuple[str, EscalationState]]:
        """Yield the moves that cost a fault."""
        if not state.faults:
            return
        paid = state._replace(faults=state.faults - 1)
        for index, pod in enumerate(state.pods):
            if pod is None or pod.epoch != synced or synced <= deprecated or pod.told == synced or pod.is_ending:
                continue
            is_first = all(other is None or other.told != synced for other in state.pods)
            dead = pod._replace(told=synced, guilty=synced if is_first else 0)
            yield f"pod {pod.uid}: worker exits", _seen(_with_pod(paid, index, dead), Trigger.WORKER_EXIT, pod.uid)
            hung = pod._replace(told=synced)
            yield f"pod {pod.uid}: tells of a hang", _seen(_with_pod(paid, index, hung), Trigger.STALLED, pod.uid)
        if state.job_failed != attempt and not self.apart:
            yield "the Job fails", paid._replace(job_failed=attempt, pods=(None, None))
        if not state.set_back:
            yield "the clock is set back", paid._replace(set_back=True)
        fresh = Leader(state.status)
        yield "the leader crashes, another one begins", paid._replace(leaders=(fresh, *state.leaders[1:]))
        if len(state.leaders) == 1:
            yield "another leader begins, the old one goes on", paid._replace(leaders=(fresh, *state.leaders))

    def _ended(self, state: EscalationState, number: int, synced: int) -> EscalationState:
        leader = state.leaders[number]
        uid, *rest = leader.pending
        state = _with_leader(state, number, leader._replace(pending=tuple(rest)))
        for index, pod in enumerate(state.pods):
            if pod is not None and pod.uid == uid:
                rule = "" if pod.guilty == synced else R3
                return _with_pod(state, index, pod._replace(is_ending=True))._replace(rule=rule)
        return state

    def _written(self, state: EscalationState, number: int) -> EscalationState | None:
        """Return the world after one pass of a leader; None if it has nothing to do."""
        leader = state.leaders[number]
        planned, replaced = self._planned(
            state.status, state.pods, leader.cause, leader.uses, state.job_failed, _clock(state), leader.returned
        )
        if planned == state.status:
            if not replaced:
                return None
            return _with_leader(state, number, leader._replace(pending=replaced))
        uses = json.dumps(json.loads(planned).get(wire.ESCALATION_USES, [])) if self.forgets else "[]"
        moved = self._jobset(planned).epochs[0] > self._jobset(state.status).epochs[0]
        cause = ("", "") if moved else leader.cause
        after = leader._replace(view=planned, pending=replaced, cause=cause, uses=uses, returned=())
        leaders = list(state.leaders)
        leaders[number] = after
        if moved:
            leaders = [one._replace(cause=("", "")) for one in leaders]
        return self._recorded(state, planned)._replace(status=planned, leaders=tuple(leaders))

    def _recorded(self, state: EscalationState, planned: str) -> EscalationState:
        """Return the world's own record after a write, with the rule that the write broke."""
        old, new = self._jobset(state.status), self._jobset(planned)
        before, now = _counted(old.escalation_uses), _counted(new.escalation_uses)
        places, taken, synced = list(state.places), state.taken, old.epochs[0]
        if (new.status.get(wire.EXEMPT_EPOCHS) or 0) > (old.status.get(wire.EXEMPT_EPOCHS) or 0):
            for (step, epoch, _), count in (before - now).items():
                given_back = count if epoch == synced + 1 else 0
                taken -= given_back
                for place in [one for one in places if (one.step, one.epoch) == (step, epoch)][:given_back]:
                    places.remove(place)
        # A pass takes one place at most and appends it; only then times in the future are set to now.
        steps = [use for use in new.escalation_uses if use.step not in LEAVING]
        added = [Place(state.now_s, steps[-1].step, steps[-1].epoch)] if now - before else []
        rule = self._broken_by(state, [*places, *added], added, old, new)
        taken += len(added)
        is_over = bool(new.status.get("terminalState"))
        if not rule and not is_over and taken != new.restarts_begun:
            rule = R2
        return state._replace(places=(*places, *added), taken=taken, rule=rule)

    def _broken_by(
        self, state: EscalationState, places: list[Place], added: list[Place], old: JobSet, new: JobSet
    ) -> str:
        for step in new.escalation:
            held = sum(one.step == step.name and state.now_s - one.at_s < step.window_s for one in places)
            if held > step.uses_max:
                return R1
            if held < step.uses_max and any(one.step == escalation.FAIL for one in added) and not state.set_back:
                return R4
        begun = [use for use in old.escalation_uses if use.leads_to("", old.epochs[0] + 1)]
        if added and added[0].step == escalation.FAIL and any(not use.recreation for use in begun):
            return R2
        doomed = {use.pod_uid for use in (*begun, *new.escalation_uses[-1:]) if use.pod_uid}
        for index, pod in enumerate(state.pods):
            is_recreated = _attempt(new, index) > _attempt(old, index) and new.restarts == old.restarts
            if is_recreated and (rule := self._wrong_recreation(state, index, old)):
                return rule
            is_old = pod is not None and (pod.uid in doomed or (self.apart and pod.attempt != _attempt(old, index)))
            if new.epochs[0] > old.epochs[0] and is_old:
                return R5
        return ""

    def _wrong_recreation(self, state: EscalationState, index: int, old: JobSet) -> str:
        """Name the rule that the recreation of one slot's Job breaks; "" for none."""
        pod = state.pods[index]
        return R6 if pod is None or pod.guilty != old.epochs[0] else ""

    def _annotations(self) -> dict[str, str]:
        return {wire.ESCALATION: self.annotation}

    def _parse(self, status: str) -> JobSet:
        manifest = self._manifest()
        manifest["metadata"] |= {"uid": "js", "resourceVersion": "1", "annotations": self._annotations()}
        if self.uncounted:
            manifest["spec"]["failurePolicy"]["rules"] = [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts"}]
        return parse_jobset(manifest | {"status": json.loads(status)})

    def _manifest(self) -> KubeObject:
        jobs = [replicated_job(WORKERS, pods=1, replicas=2) if self.apart else replicated_job(WORKERS, pods=2)]
        return jobset_manifest(restarts_max=90, jobs=jobs)

    def _slot(self, index: int) -> Slot:
        return Slot(WORKERS, index, 0) if self.apart else Slot(WORKERS, 0, index)

    def _name(self, uid: str) -> str:
        slot = self._slot(int(uid.partition(".")[0]))
        return f"train-{WORKERS}-{slot.job_index}-{slot.completion_index}-{uid}"

    def _plan(
        self,
        status: str,
        pods: tuple[Pod | None, ...],
        cause: tuple[str, str],
        uses: str,
        job_failed: int,
        clock_s: int,
        returned: tuple[str, ...],
    ) -> tuple[str, tuple[str, ...]]:
        """Return the status after one pass, and the UIDs of the Pods that it ends."""
        believed = json.loads(status) | ({wire.ESCALATION_USES: json.loads(uses)} if self.forgets else {})
        jobset = self._jobset(_text(believed))
        group = Group(jobset)
        group.open_ledgers(0)
        (scope_ledger,) = group.ledgers.values()
        if cause[0] and scope_ledger.cause is None:
            seen = time_of(START_S + clock_s)
            failed = [pod for pod in pods if pod is not None and pod.uid == cause[1]]
            failure = Failure(self._name(cause[1]), failed[0].node if failed else "") if cause[1] else None
            scope_ledger.cause = Cause(Trigger(cause[0]), seen, failure=failure)
        homes = {}
        for index, pod in enumerate(pods):
            if pod is not None:
                current = (
                    pod.attempt == _attempt(jobset, index) and pod.uid not in jobset.replaced_pods and not pod.is_ending
                )
                life = PodLife.LIVE if current else PodLife.LEAVING
                view = PodView(pod.uid, self._slot(index), pod.epoch or None, life, failed_epoch=pod.told or None)
                scope_ledger.ledger.observe(view)
                homes[pod.uid] = scope_ledger
        kube = {self._name(pod.uid): _kube_pod(pod, self._name(pod.uid)) for pod in pods if pod is not None}
        replicas = range(2 if self.apart else 1)
        built = [_job(jobset, index, failed=job_failed == jobset.restarts) for index in replicas]
        jobs = {job.metadata.name: job for job in built}
        observed = Observed(
            jobset,
            time_of(START_S + clock_s),
            jobs,
            decisions=group.decisions(),
            causes=group.causes(),
            failed_pods=failed_pods(group, kube.get, homes.get),
            matches=Matches().look(jobset, [job for job in jobs.values() if job_failed >= 0], lambda: 0.0),
            node_signs=NodeSigns(in_use=len(kube), returned=frozenset(returned)),
        )
        draft = Draft(observed)
        for step in self.steps:
            if step(draft):
                break
        planned = draft.finish()
        replaced = tuple(action.pod.metadata.uid for action in planned.actions if isinstance(action, ReplacePod))
        kept = {name: value for name, value in planned.status.items() if name in _KEPT}
        if wire.NODE_FAILURES in kept:
            kept[wire.NODE_FAILURES] = [_timeless(record) for record in kept[wire.NODE_FAILURES]]
        if wire.ESCALATION_USES in believed and self.forgets and kept:
            kept.setdefault(wire.ESCALATION_USES, believed[wire.ESCALATION_USES])
        return _text(json.loads(status) | kept), replaced


# Times, names and messages of the status that decide nothing would only multiply the states.
_KEPT: Final = (
    *(wire.SYNCED_EPOCH, wire.DEPRECATED_EPOCH, wire.CURRENT_ATTEMPT, wire.PREVIOUS_ATTEMPT, wire.EXEMPT_EPOCHS),
    *(wire.LAST_EXEMPT_EPOCH, wire.ESCALATION_USES, "restarts", "restartsCountTowardsMax", "terminalState", COUNTERS),
    wire.NODE_FAILURES,
)


def _timeless(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the status remembers of a node, with the same time everywhere: all are within the window."""
    since = {"avoidedSince": time_of(START_S)} if "avoidedSince" in record else {}
    return {**record, "failedAt": [time_of(START_S)] * len(record.get("failedAt") or ())} | since


def _attempt(jobset: JobSet, index: int) -> int:
    """Return which attempt the Job of a Pod is in; with one Job of several Pods no Job restarts alone."""
    return jobset.restarts + jobset.job_restarts_of(WORKERS, index)


def _job(jobset: JobSet, index: int, *, failed: bool) -> Job:
    return _built(jobset.restarts, jobset.job_restarts_of(WORKERS, index), len(jobset.places), index, failed)


@cache
def _built(restarts: int, job_restarts: int, jobs: int, index: int, failed: bool) -> Job:
    """Return a Job as it is made in an attempt, of a JobSet with so many."""
    manifest = jobset_manifest(jobs=[replicated_job(WORKERS, pods=2 // jobs, replicas=jobs)])
    manifest["metadata"] |= {"uid": "js", "resourceVersion": "1"}
    counters = [{"name": WORKERS, "jobRestarts": [job_restarts] * jobs}]
    jobset = parse_jobset(manifest | {"status": {"restarts": restarts, COUNTERS: counters}})
    job = build_job(jobset, jobset.replicated_job(WORKERS), index)
    ended = [{"type": "Failed", "status": "True", "lastTransitionTime": time_of(START_S)}] if failed else []
    job["metadata"] |= {"uid": f"job-{index}-{restarts}-{job_restarts}", "resourceVersion": "1"}
    return msgspec.convert(job | {"status": {"conditions": ended}}, Job)


@cache
def _kube_pod(pod: Pod, name: str) -> KubePod:
    spec: dict[str, Any] = ({"activeDeadlineSeconds": 1} if pod.is_ending else {}) | {"nodeName": pod.node or None}
    metadata = {"name": name, "namespace": "default", "uid": pod.uid, "resourceVersion": "1"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}, KubePod)


def _counted(uses: Sequence[escalation.Use]) -> Counter[tuple[str, int, str]]:
    steps = (use for use in uses if use.step not in LEAVING)
    return Counter((use.step, use.epoch, use.started_at) for use in steps)


def _text(status: Mapping[str, Any]) -> str:
    return json.dumps(status, sort_keys=True)


def _clock(state: EscalationState) -> int:
    return state.now_s - SET_BACK_S * state.set_back


def _seen(state: EscalationState, trigger: Trigger, pod: str) -> EscalationState:
    """Let every controller see the first sign."""
    sign = (trigger.value, pod)
    leaders = tuple(one if one.cause[0] else one._replace(cause=sign) for one in state.leaders)
    return state._replace(leaders=leaders)


def _with_pod(state: EscalationState, index: int, pod: Pod) -> EscalationState:
    pods = (pod, state.pods[1]) if index == 0 else (state.pods[0], pod)
    return state._replace(pods=pods)


def _with_leader(state: EscalationState, number: int, leader: Leader) -> EscalationState:
    leaders = list(state.leaders)
    leaders[number] = leader
    return state._replace(leaders=tuple(leaders))


def _successor(index: int, state: EscalationState, attempt: int) -> Pod:
    """Return the next Pod of a slot; its UID says which epoch's and attempt's successor it is, to be bounded."""
    synced = wire.epochs_of_status(json.loads(state.status))[0]
    return Pod(f"{index}.{attempt}.{synced}", attempt=attempt)
