"""
Explain a JobSet's state: what happened, which Pods it waits for, what to do. Pure.

Every source may be missing: another controller wrote the status, Events expired or are forbidden, Pods are gone. The
explanation uses what is there and says what could not be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from inplace.cli.group.last_restart import first_failure
from inplace.cli.group.nodes import AvoidedNode, avoided_nodes, fenced_pods
from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.read import NOT_ASKED, Controller
from inplace.cli.group.scope_state import noun_of
from inplace.cli.group.state import GroupState
from inplace.cli.group.straggler import Straggler, Why
from inplace.cli.status.advice import (
    ADVICE,
    CONTROLLER_PODS,
    UNSEEN_END,
    Obstacle,
    Queued,
    failed_job,
    log_advice,
    why_failed,
)
from inplace.cli.status.document import TRIGGERS, class_text, failure_text, recreated_text, slow_text
from inplace.cli.status.notice_advice import busy_lines, obstacles_of_notices
from inplace.cli.terminal.moments import count_text, duration_text
from inplace.common.bare.record import record
from inplace.common.jobset.causes import Failure, Trigger, trigger_of, unix_time
from inplace.common.jobset.crash_loop import backoff_of, crash_loop_of
from inplace.common.jobset.failure_class import class_of
from inplace.common.jobset.furthest_behind import silent_text
from inplace.common.jobset.headline import OWN, WAITING, GroupPhase, Pulse, SlotState
from inplace.common.jobset.restart_history import history_of
from inplace.common.jobset.scopes import fields_of_scope
from inplace.common.kube.resources import JOBS, PODS, Resource
from inplace.common.wire import names as wire
from inplace.controller.api.object_events import Event

# Triggers: something failed, or may have.
FAILURES = (None, Trigger.UNKNOWN.value, *(one.value for one in Trigger if one.is_failure))
MOMENTS_MAX = 12  # the newest; a JobSet that restarts often has hundreds of Events
NAMES_IN_ADVICE = 5  # of a command that is copied; all names stand beside the cause
CONTROLLER_S_MAX = 30.0  # a JobSet without a status after this long has no controller; a busy one takes 2 s
CRASH_LOOP = "CrashLoop"  # the kind of its cause
BLOCKED = (Why.IMAGE, Why.CONFIG)  # what condition ContainersBlocked tells too, of all Pods
EVENTS_FIRST = (Why.MISSING, Why.CREATING, Why.UNSCHEDULED)  # their cause stands in no status: mounts, sandboxes, quota


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read.

    Args:
        events: of the JobSet, oldest first.
        more_events: of the Pods or Jobs that are waited for, by their name.
        nodes: whether the nodes of those Pods are ready, in words, by name.
        unread: what could not be read, and why.
        queued: what a suspended JobSet's queue says; None where it has none.
    """

    state: GroupState
    pods: Sequence[PodFact]
    events: Sequence[Event] = ()
    more_events: Mapping[str, Sequence[Event]] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    unread: Sequence[str] = ()
    queued: Queued | None = None
    controller: Controller = NOT_ASKED


class Subject(NamedTuple):
    """The object that Events are about.

    Args:
        uid: "" where nothing that was read says it: then the object is read first.
    """

    kind: Resource
    name: str
    uid: str = ""


@record
class Moment:
    """An event of the past; `at_s` is None if its time is unknown."""

    at_s: float | None
    text: str


@record
class Explanation:
    """The answer.

    Args:
        avoided: the nodes that new Pods avoid.
        busy: until when busy ranks excuse their groups, in words.
    """

    facts: Facts
    headline: str
    moments: Sequence[Moment]
    causes: Sequence[Obstacle]
    avoided: Sequence[AvoidedNode] = ()
    busy: Sequence[str] = ()


def explain(facts: Facts, *, now_s: float) -> Explanation:
    """Explain a JobSet."""
    moments = sorted(_moments(facts), key=lambda moment: (moment.at_s is None, moment.at_s or 0.0))
    jobset = facts.state.jobset
    avoided = avoided_nodes(jobset, facts.pods, now_s) if jobset is not None else ()
    causes, busy = tuple(_causes(facts, now_s)), busy_lines(facts.state, now_s)
    words = facts.state.headline(facts.controller.pulse, is_queued=facts.queued is not None)
    return Explanation(facts, words.text, moments[-MOMENTS_MAX:], causes, avoided, busy)


def _moments(facts: Facts) -> Iterator[Moment]:
    """Yield the past events: the last restart from the status or the Pods, and the Events."""
    last = facts.state.last
    failure = last.first_failure if last is not None else None
    began_s = unix_time(last.started_at) if last is not None else None
    if last is not None and failure:
        what = "first to tell of the hang" if last.trigger == Trigger.STALLED.value else "first failure"
        words = failure_text(failure, explained=True) + class_text(last.trigger, failure)
        yield Moment(began_s, f"{what}: {words}")
    elif (last is None or last.trigger in FAILURES) and (seen := first_failure(facts.pods)) is not None:
        yield Moment(seen.at_s, f"first failure, guessed from the Pods: {failure_text(seen.fields)}")
    if last is not None:
        cause = TRIGGERS.get(last.trigger or "", last.trigger or "cause unknown")
        escalation_step = f", escalation step {last.escalation_step}" if last.escalation_step else ""
        whose = f" of scope {last.scope}" if last.scope else ""
        yield Moment(began_s, f"group restart{whose} to epoch {last.epoch} began: {cause}{escalation_step}")
        if words := recreated_text(facts.state):
            yield Moment(began_s, words)
        if facts.state.jobset is not None:
            known = [past for past in history_of(facts.state.jobset.status) if past.cost_ms is not None]
            yield from (Moment(unix_time(past.started_at), past.cost_text) for past in known[-1:])
        if silent := silent_text(last.first_silent, last.trigger, failure):
            yield Moment(unix_time(last.synced_at), silent)
        if last.slow is not None:
            yield Moment(unix_time(last.synced_at), slow_text(last.slow))
        if (ended_s := unix_time(last.synced_at)) is not None:
            everyone = f"every {noun_of(facts.state.scopes)}"
            took = f", {duration_text(last.seconds)} after the restart began" if last.seconds is not None else ""
            yield Moment(ended_s, f"{everyone}{whose} was at epoch {last.epoch}{took}")
    for event in facts.events:
        if event.message and (last is None or event.reason not in ("GroupRestartStarted", "GroupRestartFinished")):
            yield Moment(event.at_s, f"{event.reason}: {event.message}")


def _causes(facts: Facts, now_s: float) -> Iterator[Obstacle]:
    """Yield the obstacles to training, the most important first."""
    state, conditions = facts.state, facts.state.conditions or {}
    if state.managed_by is not None:
        text = f"another controller manages it: spec.managedBy is {state.managed_by}"
        yield Obstacle("ManagedByAnother", text, "look at that controller; ours ignores this JobSet")
    if "Unreadable" in conditions:
        advice = (
            f"correct the field, or recreate the JobSet if the field is immutable: "
            f"kubectl edit jobset {state.name} -n {state.namespace}"
        )
        yield Obstacle("Unreadable", conditions["Unreadable"]["message"], advice)
    if "SpecProblem" in conditions:
        text = f"the spec has a mistake: {conditions['SpecProblem'].get('message', '')}"
        yield Obstacle(
            "SpecProblem", text, "follow the cure of each problem; check the manifest with inplace lint -f FILE"
        )
    if "ContainersBlocked" in conditions and not any(one.why in BLOCKED for one in state.stragglers):
        text = conditions["ContainersBlocked"].get("message", "")
        pods = f"kubectl get pods -n {state.namespace} -l {wire.JOBSET_NAME}={state.name}"
        yield Obstacle("ContainersBlocked", text, f"correct what kubelet names, and look at the Pods: {pods}")
    if "RestartsInVain" in conditions and state.phase not in OWN:
        advice = f"stop it, and correct the cause; same in {wire.FAILURES} would fail it: inplace history {state.name}"
        yield Obstacle("RestartsInVain", conditions["RestartsInVain"].get("message", ""), advice)
    yield from _of_controller(facts, now_s)
    if state.phase not in OWN:
        yield from _of_crash_loops(facts, now_s)
    if state.phase is GroupPhase.FAILED:
        events = facts.more_events.get(failed_job(state), ())
        yield why_failed(state, conditions["Failed"], events, facts.pods)
    elif state.phase is GroupPhase.SUSPENDED:
        yield _of_suspension(state, facts.queued)
    elif state.phase is GroupPhase.RUNNING:
        yield from _of_idle(state)
        yield from _of_stragglers(facts, vacant_slots(state), noun="vacant slot")
        yield from obstacles_of_notices(state, now_s)
    elif state.phase is GroupPhase.RECREATING:
        yield Obstacle("Recreating", conditions["RestartingJobSet"].get("message", ""), "wait until its Jobs are there")
    elif state.phase in (*WAITING, GroupPhase.OTHER):
        yield from _of_failed(facts)
        yield from _of_completed(state)
        fenced = fenced_pods(state, facts.pods, now_s)
        yield from _of_fenced(fenced, now_s)
        yield from _of_strays([name for name in state.strays if name not in fenced], state.namespace)
        yield from _of_stragglers(facts, facts.state.stragglers, facts.state.unnamed)
        if not any(waits for waits, _ in crash_loops(state, now_s)) and facts.controller.pulse is not Pulse.STOPPED:
            yield from _of_counting(state)
        yield from obstacles_of_notices(state, now_s)


def _of_suspension(state: GroupState, queued: Queued | None) -> Obstacle:
    """Return that it is suspended, and what its queue says; a queue suspends again what a person resumes."""
    if queued is None:
        patch = '{"spec":{"suspend":false}}'
        advice = f"resume it: kubectl patch jobset {state.name} -n {state.namespace} --type merge -p '{patch}'"
        return Obstacle("Suspended", "spec.suspend is true", advice)
    named = f"queue {queued.queue}" if queued.queue else "its owner's queue"
    workload = f"; Workload {queued.workload}" if queued.workload else ""
    said = f": {queued.said}" if queued.said else ""
    advice = "Kueue resumes it when it admits it; a resume by hand is undone. "
    if queued.workload:
        advice += f"Ask Kueue: kubectl describe workload {queued.workload} -n {state.namespace}"
    else:
        advice += f"See whether Kueue runs and the queue exists: kubectl get localqueues -n {state.namespace}"
    return Obstacle("Queued", f"it waits in {named}{workload}{said}", advice)


def crash_loops(state: GroupState, now_s: float) -> Iterator[tuple[bool, str]]:
    """Yield for each scope in a crash loop whether its next epoch waits, and the crash loop in words.

    An epoch that has run for so long that it counts as progress ends it.
    """
    jobset = state.jobset
    if jobset is None or jobset.is_finished:
        return
    for scope in jobset.scopes.values():
        loop = crash_loop_of(fields_of_scope(jobset.status, scope))
        if loop.failures < 2:
            continue
        until_s = unix_time(loop.until)
        waits = loop.epoch == scope.synced + 1 and until_s is not None and until_s > now_s
        began_s = unix_time(loop.synced_at) if scope.is_running else None
        if began_s is not None and now_s - began_s >= backoff_of(jobset.annotations).long_s:
            continue
        named = f"scope {scope.name}: " if scope.name else ""
        yield waits, named + loop.words(now_s, waits=waits)


def _of_crash_loops(facts: Facts, now_s: float) -> Iterator[Obstacle]:
    """Yield that its workers fail again and again without progress, and that the next epoch waits for it."""
    last = facts.state.last
    first = last.first_failure if last is not None else None
    log = log_advice(first, facts.pods, facts.state.name, facts.state.namespace)
    for waits, words in crash_loops(facts.state, now_s):
        text = f"{words}; its workers fail without a step of progress"
        then = (
            f"it tries again without your help; backoff in {wire.FAILURES} sets how soon"
            if waits
            else "it tries again now"
        )
        blamed = (
            class_of(trigger_of({"trigger": last.trigger}), Failure.read(first)) if last is not None and first else None
        )
        cure = f"{blamed.advice} ({blamed.value})" if blamed is not None and blamed.advice else "correct the cause"
        yield Obstacle(CRASH_LOOP, text, f"{then}; {cure}: {log}")


def _of_controller(facts: Facts, now_s: float) -> Iterator[Obstacle]:
    """Yield that no controller works: by its Lease, or by a status that is still empty."""
    state = facts.state
    if facts.controller.pulse is Pulse.STOPPED and state.needs_controller:
        yield Obstacle("NoController", facts.controller.words, facts.controller.advice)
        return
    jobset = state.jobset
    created_s = unix_time(jobset.metadata.get("creationTimestamp")) if jobset is not None else None
    if jobset is None or jobset.status or facts.pods or created_s is None or now_s - created_s < CONTROLLER_S_MAX:
        return
    text = f"no controller has touched it in {duration_text(now_s - created_s)}"
    yield Obstacle("NoController", text, f"see whether the controller runs: {CONTROLLER_PODS}")


def _of_fenced(fenced: Mapping[str, float], now_s: float) -> Iterator[Obstacle]:
    """Yield Pods that are being deleted where nobody can see them end, and whose workers end by themselves."""
    if fenced:
        left = duration_text(max(fenced.values()) - now_s)
        text = (
            f"{count_text(len(fenced), 'Pod')} on a node that does not answer; the lease of its worker ends the worker"
        )
        advice = f"wait about {left}, until that is sure ({wire.FENCE_AFTER}); a new leader starts this count again"
        yield Obstacle("Fenced", text, advice, tuple(sorted(fenced)))


def _of_strays(strays: Sequence[str], namespace: str) -> Iterator[Obstacle]:
    """Yield Pods that no slot counts: their workers may still run, and no barrier lifts beside them."""
    if not strays:
        return
    text = f"{count_text(len(strays), 'Pod')} in no slot of the group, or beside another Pod in its slot"
    shown = " ".join(strays[:NAMES_IN_ADVICE])
    advice = f"wait until they end; those that are left over may be deleted: kubectl delete pod {shown} -n {namespace}"
    yield Obstacle("InNoSlot", text, advice, tuple(strays))


def vacant_slots(state: GroupState) -> list[Straggler]:
    """Return the slots of a group with spares that have none: nobody waits for them, and a spare is missing."""
    return [one for scope in state.scopes for one in scope.vacant]


def _of_stragglers(
    facts: Facts, stragglers: Iterable[Straggler], unnamed: int = 0, noun: str = "Pod"
) -> Iterator[Obstacle]:
    """Yield one cause for each reason for which Pods are waited for, or slots are vacant, most of them first."""
    by_reason: dict[Why, list[Straggler]] = {}
    for one in stragglers:
        by_reason.setdefault(one.why, []).append(one)
    if facts.controller.pulse is Pulse.STOPPED:  # agents follow what nobody writes
        by_reason = {why: late for why, late in by_reason.items() if why not in (Why.BEHIND, Why.SILENT, Why.UNTOLD)}
    counts = {why: len(late) + (unnamed if why is Why.MISSING else 0) for why, late in by_reason.items()}
    for why, late in sorted(by_reason.items(), key=lambda item: -counts[item[0]]):
        first = late[0]
        subject = event_subject(facts.state, first).name
        warned = _said(facts.more_events.get(subject, ()))
        said = (warned or first.detail) if why in EVENTS_FIRST else (first.detail or warned)
        node = f"; node {first.node} {facts.nodes[first.node]}" if first.node and first.node in facts.nodes else ""
        text = f"{count_text(counts[why], noun)}: {why.value}" + (f": {said}" if said else "") + node
        there = f" -n {facts.state.namespace}"
        places = {
            "pod": first.name + there,
            "node": first.node or "NODE",
            "job": subject + there,
            "log": (first.log or first.name) + there,
        }
        names = tuple(one.name for one in late)
        yield Obstacle(why.name.title().replace("_", ""), text, ADVICE[why].format(**places), names)


def _of_failed(facts: Facts) -> Iterator[Obstacle]:
    """Yield that agents told of workers that failed or hang, and that the group does not restart for it yet."""
    state = facts.state
    if facts.controller.pulse is Pulse.STOPPED:
        return
    for kind, told in ((SlotState.FAILED, "its worker failed"), (SlotState.SILENT, "a rank of it makes no step")):
        count = sum(scope.slots.counts.get(kind, 0) for scope in state.scopes if scope.slots.runs)
        if count:
            text = f"{count_text(count, 'Pod')}: its agent told that {told}, and the group does not restart for it yet"
            advice = f"wait a second; if this stays, see whether the controller runs: {CONTROLLER_PODS}"
            yield Obstacle("NotRestartedYet", text, advice)


def _of_completed(state: GroupState) -> Iterator[Obstacle]:
    """Yield the Pods that completed while others run."""
    for scope in state.scopes:
        slots = scope.slots
        if not slots.runs or not 0 < (count := slots.counts.get(SlotState.COMPLETED, 0)) < slots.size:
            continue
        first, there = slots.first.get(SlotState.COMPLETED, ""), f"-n {state.namespace}"
        text = f"{count_text(count, 'Pod')}: its worker ended with exit code 0 while others run"
        advice = (
            "if all ranks are near their end, wait. Else a shell hid its failure (a pipe without `set -o pipefail`, a "
            "command after it, a trap), or it went on in the background. Read its log: "
            f"kubectl logs {first} --all-containers {there}. Correct the command, and start it again: "
            f"inplace restart {state.name} {there}"
        )
        yield Obstacle("CompletedEarly", text, advice, (first,) if first else ())


def _of_idle(state: GroupState) -> Iterator[Obstacle]:
    """Yield the Pods that reached the epoch and whose workers kubelet does not report: it looks every 10 s."""
    names = tuple(name for scope in state.scopes for name in scope.idle)
    if names:
        text = f"{count_text(len(names), 'Pod')}: the epoch runs, and kubelet does not report its worker yet"
        advice = (
            "wait 10 s; if this stays, see whether its guard waits for a file, or for an agent of its version: "
            f"kubectl logs {names[0]} -n {state.namespace} --all-containers --ignore-errors"
        )
        yield Obstacle("NotStarted", text, advice, names)


def _of_counting(state: GroupState) -> Iterator[Obstacle]:
    """Yield that every Pod is there and only the controller is missing."""
    late = [one for one in state.scopes if not one.slots.runs and one.slots.arrived == one.expected > 0]
    if late and not state.strays and not any(one.stragglers for one in late):
        who = "every Pod" if late[0].slots.sizes is None else "enough Pods"
        text = f"{who} announced epoch {late[0].target}, and the status does not say so yet"
        wait = "wait a second" if late[0].slots.sizes is None else UNSEEN_END
        advice = f"{wait}; if this stays, see whether the controller runs: {CONTROLLER_PODS}"
        yield Obstacle("NotSyncedYet", text, advice)


def event_subject(state: GroupState, late: Straggler) -> Subject:
    """Return the object whose Events say more: the Pod, or the Job that makes none."""
    if late.pod is not None:
        return Subject(PODS, late.pod, late.uid)
    return Subject(JOBS, f"{state.name}-{late.slot.rpartition('-')[0]}")


def _said(events: Iterable[Event]) -> str:
    """Return the newest warning."""
    return next((event.message for event in reversed(list(events)) if event.is_warning and event.message), "")
