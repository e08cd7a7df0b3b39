"""The fields of `inplace status -o json`, of one JobSet and of a list; docs/cli.md names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import asdict

from inplace.cli.group.last_restart import LastRestart
from inplace.cli.group.scope_state import ScopeState
from inplace.cli.group.state import GroupState, state_of_status
from inplace.common.jobset.causes import Failure, Trigger, trigger_of
from inplace.common.jobset.failure_class import FailureClass, class_words
from inplace.common.jobset.furthest_behind import silent_text
from inplace.common.jobset.headline import GroupPhase
from inplace.common.jobset.scopes import fields_of_scope
from inplace.common.jobset.slow_ranks import NAMED_MAX, SlowRank, SlowRanks
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.exit_words import ended_with

if TYPE_CHECKING:
    from inplace.cli.documents import JobSetRow
    from inplace.cli.status.fields import (
        FirstSilent,
        GoodputFields,
        LastRestartFields,
        MembersFields,
        NoticeFields,
        ScopeFields,
        SlowRankFields,
        StatusDocument,
        VerdictFields,
    )

SAID = (
    "Stalled",
    "LossNotFinite",
    "Slow",
    "SlowSteps",
)  # reasons of workers that go on; the message has step and numbers
TRIGGERS = {
    "worker_exit": "a worker ended",
    "stalled": "a worker hung",
    "loss_not_finite": "the loss was no finite number",
    "slow": "steps got slower",
    "completed_early": "a worker completed while others went on",
    "pod_lost": "a Pod was lost",
    "disrupted": "a Pod was evicted (not counted)",
    "job_failed": "a Job failed",
    "manual": "asked for by hand",
    "resize": "it was resized",
    "resume": "it was resumed",
    "join": "a replicatedJob joined",
    "members": "spares became members (not counted)",
    "unknown": "cause unknown",
}


def status_data(state: GroupState, now_s: float | None = None, line: str = "") -> StatusDocument:
    """Return the same for programs.

    Args:
        state: what to show.
        now_s: wall time; None for a document that changes with the state alone.
        line: the headline; "" where it would say less than is known elsewhere.
    """
    return {
        "namespace": state.namespace,
        "name": state.name,
        "phase": state.phase.value,
        "headline": line or None,
        "managedBy": state.managed_by,
        "pods": state.pods,
        "expected": state.expected,
        "arrived": state.arrived,
        "secondsLeft": None if now_s is None else state.left_s(now_s),
        "barrierWaiting": state.stuck or None,
        "restarts": {"used": state.used, "max": state.allowed},
        "conditions": {kind: one.get("message", "") for kind, one in (state.conditions or {}).items()},
        "scopes": [_scope_data(scope) for scope in state.scopes],
        "stragglers": [
            {"slot": one.slot, "pod": one.pod, "node": one.node, "epoch": one.epoch, "reason": one.reason}
            for one in state.stragglers
        ],
        "lastRestart": _restart_data(state),
        "notices": [cast("NoticeFields", asdict(one)) for one in state.notices],
    }


def list_data(raw: KubeObject) -> JobSetRow:
    """Return one JobSet of a list for programs, from its status alone."""
    state = state_of_status(raw)
    counters = state.jobset.status.get("replicatedJobsStatus") or () if state.jobset is not None else ()
    specs = state.jobset.replicated_jobs if state.jobset is not None else ()
    return {
        "namespace": state.namespace,
        "name": state.name,
        "phase": state.phase.value,
        "epochs": [scope.synced for scope in state.scopes],
        "jobs": sum(job.replicas for job in specs),
        "jobsReady": sum(int(one.get("ready") or 0) + int(one.get("succeeded") or 0) for one in counters),
        "restarts": {"used": state.used, "max": state.allowed},
        "waitsFor": state.stuck or (state.conditions or {}).get("SpecProblem", {}).get("message"),
    }


def _scope_data(scope: ScopeState) -> ScopeFields:
    cost, step = scope.goodput, scope.resume
    ratio = None if cost is None or cost.ratio is None else round(cost.ratio, 4)  # the effective training time's
    return {
        "name": scope.name,
        "phase": scope.phase.value,
        "syncedEpoch": scope.synced,
        "deprecatedEpoch": scope.deprecated,
        "targetEpoch": scope.target,
        "expected": scope.expected,
        "arrived": scope.arrived,
        "working": scope.working,
        "podsByEpoch": {str(epoch): count for epoch, count in scope.epochs.items()},
        "goodput": cast("GoodputFields", cost.fields() | {"ratio": ratio}) if cost is not None else None,
        "members": _members_data(scope),
        "resume": None if step is None else {"step": step.step, "kind": step.kind, "shared": scope.shared},
    }


def _members_data(scope: ScopeState) -> MembersFields | None:
    sizes, slots = scope.slots.sizes, scope.slots
    if sizes is None:
        return None
    exchanged = scope.members.exchanged if scope.members is not None else ()
    return {
        "max": sizes.most,
        "min": sizes.least,
        "spares": slots.spares,
        "sparesExpected": slots.spares_max,
        "slotOfRank": {str(rank): slot for rank, slot in exchanged},
        "podsPerJob": (scope.members.pods or None) if scope.members is not None else None,
    }


def _restart_data(state: GroupState) -> LastRestartFields | None:
    last = state.last
    if last is None:
        return None
    return {
        "epoch": last.epoch,
        "trigger": last.trigger,
        "escalationStep": last.escalation_step,
        "startedAt": last.started_at,
        "syncedAt": last.synced_at,
        "seconds": last.seconds,
        "firstFailure": dict(last.first_failure) if last.first_failure else None,
        "firstSilent": cast("FirstSilent", last.first_silent.fields()) if last.first_silent is not None else None,
        "verdict": _verdict_data(state, last),
        "slowRanks": [_slow_data(one) for one in last.slow.ranks] if last.slow is not None else [],
        "typicalWorkMilliseconds": last.slow.typical_ms if last.slow is not None else None,
    }


def _verdict_data(state: GroupState, last: LastRestart) -> VerdictFields | None:
    if last.verdict is None:
        return None
    found, culprit = last.verdict.found, last.verdict.culprit
    return {
        "failureClass": found.value,
        "pod": (culprit.pod or None) if culprit is not None else None,
        "node": (culprit.node or None) if culprit is not None else None,
        "proof": last.verdict.proof or None,
        "action": action_text(state, last),
        "advice": last.verdict.advice or None,
    }


def action_text(state: GroupState, last: LastRestart) -> str:
    """Return what was done about the last failure, and why it was that."""
    if state.phase is GroupPhase.FAILED and last.synced_at is None:
        return f"the JobSet failed: {(state.conditions or {}).get('Failed', {}).get('reason', '')}"
    said = "it restarts" if last.synced_at is None else "it restarted"
    why = f"escalation step {last.escalation_step}" if last.escalation_step else "the failure policy says in place"
    uncounted = ", not counted as a restart" if last.trigger == Trigger.DISRUPTED.value else ""
    return f"{said} to epoch {last.epoch}: {why}{uncounted}"


def verdict_text(state: GroupState) -> str:
    """Return the verdict on the last failure, what was done, and what helps, in one line; "" for none."""
    last = state.last
    if last is None or last.verdict is None or (last.verdict.found is FailureClass.UNKNOWN and not last.verdict.proof):
        return ""
    parts = (str(last.verdict), action_text(state, last), last.verdict.advice)
    return f"verdict: {'; '.join(filter(None, parts))}"


def _slow_data(slow: SlowRank) -> SlowRankFields:
    return {"pod": slow.pod, "node": slow.node, "rank": slow.rank, "workMilliseconds": slow.work_ms}


def recreated_text(state: GroupState) -> str:
    """Say that the last restart recreated Jobs, so that their Pods began with empty volumes; "" if it did not."""
    jobset, last = state.jobset, state.last
    if jobset is None or last is None or last.trigger != "completed_early":
        return ""
    for scope in jobset.scopes.values():
        found = fields_of_scope(jobset.status, scope).get(wire.RECREATIONS)
        if scope.name == (last.scope or "") and isinstance(found, dict) and found.get("epoch") == last.epoch:
            return "its Job was recreated with all its Pods; what their emptyDir volumes held is gone"
    return ""


def blame_text(last: LastRestart) -> str:
    """Return whose failure began a restart, in one line; "" if that is not known.

    Of a hang that is the Pod that was silent first, as soon as the others have told their steps.
    """
    if last.trigger == Trigger.STALLED.value and last.first_silent is not None:
        return silent_text(last.first_silent, last.trigger, last.first_failure)
    told, culprit = last.first_failure or {}, last.verdict.culprit if last.verdict is not None else None
    if last.trigger == Trigger.WORKER_EXIT.value and culprit is not None and culprit.pod != told.get("pod"):
        return str(last.verdict)
    who = "first to tell of the hang: " if last.trigger == Trigger.STALLED.value else ""
    return (
        who + failure_text(last.first_failure) + class_text(last.trigger, last.first_failure)
        if last.first_failure
        else ""
    )


def class_text(trigger: str | None, failure: Mapping[str, Any]) -> str:
    """Return a failure's class for the end of its line, such as " (memory)"; "" if it is unknown."""
    return class_words(trigger_of({"trigger": trigger}), Failure.read(failure))


def slow_text(slow: SlowRanks) -> str:
    """Return the ranks that were slow in the run before the last restart, in one line."""
    names = "; ".join(
        f"{one.who}{f' on {one.node}' if one.node else ''}: {_work_text(one.work_ms)}" for one in slow.ranks[:NAMED_MAX]
    )
    half = f"half of the Pods less than {_work_text(slow.typical_ms)}"
    return f"slow in the run before the last restart: {names} of its own work on a step, {half}"


def _work_text(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:,.1f} s"


def failure_text(failure: Any, *, explained: bool = False) -> str:
    """Return the first failure in one line, with its last line; `explained`: also with its message."""
    who = f"Pod {failure['pod']}" if failure.get("pod") else "an unknown Pod"
    what = [f"container {failure['container']} of {who}" if failure.get("container") else who]
    what += [f"on {failure['node']}"] if failure.get("node") else []
    code, reason = failure.get("exitCode"), str(failure.get("reason") or "")
    if code is not None:
        what.append(ended_with(code, reason))
    elif reason:
        what.append(f"({reason})")
    is_said = failure.get("reason") in SAID
    if is_said and failure.get("message"):
        what.append(str(failure["message"]))
    said = [str(failure["message"])] if explained and failure.get("message") and not is_said else []
    said += [str(failure["lastLine"])] if failure.get("lastLine") else []
    return ": ".join([" ".join(what), *said])
