"""
Count restarts against maxRestarts, for both ways of restarting. The status holds the counts.

A recreation is counted where upstream counts it (restartsCountTowardsMax, jobRestartsCountTowardsMax). Under in-place
restart every group restart is an epoch, also one that a recreation, a resume or a resize causes. Such an epoch is
*exempt*: either it is counted already, as a recreation, or it must not be counted. So

    restarts = counted recreations + epochs after the first that are not exempt

`status.exemptEpochs` is the number of exempt epochs, and `status.lastExemptEpoch` the newest of them. So an exemption
that is asked for twice before its epoch comes is one exemption. If a JobSet is divided into scopes, each has its own
two fields, and one maxRestarts applies to their sum. A status without these fields comes from an upstream controller,
or from one of ours that did not write them; there, every recreation made an exempt epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from inplace.common.jobset.causes import Cause, Failure, Trigger, unix_time
from inplace.common.jobset.escalation import without_epoch
from inplace.common.jobset.kinds import Job
from inplace.common.jobset.last_restart import begun
from inplace.common.jobset.scopes import Scope, fields_of_scope, write_scope
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft


def exempt_next_epoch(
    draft: Draft, scopes: Iterable[Scope], trigger: Trigger, failure: Failure | None = None, request: str = ""
) -> None:
    """Note that the group restart to come is not counted as one (it is counted elsewhere, or not at all), and why."""
    if not draft.jobset.is_in_place:
        return
    for scope in scopes:
        is_restart = scope.synced > 0 and scope.last_exempt <= scope.synced
        write_scope(draft.status, scope, exemption(scope))
        if is_restart and wire.ESCALATION_USES in draft.status:
            draft.status[wire.ESCALATION_USES] = without_epoch(draft.status, scope.name, scope.synced + 1)
        draft.blame(scope, trigger, failure, request)


def exemption(scope: Scope) -> dict[str, int]:
    """Return the fields that exempt a scope's next epoch: the first one is no restart, and an epoch is exempt once."""
    is_restart = scope.synced > 0 and scope.last_exempt <= scope.synced
    return {
        wire.EXEMPT_EPOCHS: scope.exempt + is_restart,
        wire.LAST_EXEMPT_EPOCH: scope.synced + 1 if is_restart else scope.last_exempt,
    }


def exempt_unless_restarting(draft: Draft, replicated_job: str, trigger: Trigger) -> None:
    """Note that a group restart which we bring about is not counted; one that is under way counts as it did."""
    scope = draft.jobset.scope_of(replicated_job)
    if scope.deprecated < scope.synced:
        exempt_next_epoch(draft, (scope,), trigger)


# Count no restart because of a disruption: an eviction, a preemption, a drain, a taint. It is not the workers' fault.
#
# Kubernetes marks such a Pod by the condition DisruptionTarget BEFORE it goes. A podFailurePolicy may say otherwise:
# the first rule for that condition decides, and under the action Count the restart counts. Source: KEP-3329;
# k8s.io/kubernetes pkg/controller/job/pod_failure_policy.go.
DISRUPTION_TARGET: Final = "DisruptionTarget"


def excuse_disruptions(draft: Draft) -> bool:
    """Exempt the epoch after a disruption, in a write of its own where that comes too late for this pass."""
    ends = False
    for name, cause in list(draft.causes.items()):
        scope = draft.jobset.scopes.get(name)
        is_running = scope is not None and scope.deprecated < scope.synced and scope.last_exempt <= scope.synced
        if scope is None or not is_running or cause.trigger is not Trigger.DISRUPTED or draft.jobset.suspended:
            continue
        if _counts(draft, cause):
            draft.causes[name] = replace(cause, trigger=Trigger.POD_LOST)
            continue
        exempt_next_epoch(draft, (scope,), Trigger.DISRUPTED)
        exempt = draft.jobset.scopes_in(draft.status)[name]
        draft.status[wire.LAST_GROUP_RESTART] = begun(draft.status, exempt, cause, draft.now)
        ends = ends or draft.observed.decisions[name].exceeded
    return ends


def _counts(draft: Draft, cause: Cause) -> bool:
    """Say whether the policy of the Pod's Job counts its disruptions."""
    pod = cause.failure.pod if cause.failure is not None else ""
    job_name, *rest = pod.rsplit("-", 2)  # JOB-INDEX-SUFFIX; the Pod itself may be gone
    place = draft.jobset.places.find(job_name) if len(rest) == 2 else None
    if place is None:
        return False
    spec = draft.jobset.replicated_job(place[0]).template().get("spec") or {}
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        if any(pattern.get("type") == DISRUPTION_TARGET for pattern in rule.get("onPodConditions") or ()):
            return bool(rule.get("action") == "Count")
    return False


# Bound the recreations of Jobs that no budget counts: of those that miss a barrier, and of those with completed Pods.
#
# They happen while one barrier waits, so no epoch counts them. A Job that was recreated for this barrier already is
# recreated again after `AGAIN_S` at the earliest, then after twice as long, and so on up to `AGAIN_S_MAX`. Any other
# Job is recreated at once. `status.recreations` (in a divided JobSet one in each scope) remembers it, so another
# controller does not begin anew. docs/adr/0021
AGAIN_S: Final = 300.0  # slower than nearly every Pod's start; 400 Jobs are 3 requests a second, for their JobSet alone
AGAIN_S_MAX: Final = 3600.0  # an image of a terabyte; a person has looked by then
DOUBLINGS_MAX: Final = 4  # 300 s * 2^4 is beyond the longest wait


def recreate(draft: Draft, scope: Scope, jobs: Iterable[Job], why: str) -> tuple[int, float]:
    """Delete those of the Jobs whose turn it is; return how many, and in how many seconds the others have theirs."""
    wanted = [job for job in jobs if not job.is_leaving]
    if not wanted:
        return 0, 0.0
    rounds, at_s = _so_far(fields_of_scope(draft.status, scope), scope.synced + 1)
    wait_s = min(AGAIN_S_MAX, AGAIN_S * 2 ** min(rounds - 1, DOUBLINGS_MAX)) if rounds else 0.0
    left_s = at_s + wait_s - draft.now_s
    waits = 0.0 < left_s <= wait_s
    due = [job for job in wanted if not waits or _is_older(job, at_s)]
    for job in due:
        draft.delete(job, why)
    if due and not waits:
        fields = {"epoch": scope.synced + 1, "rounds": rounds + 1, "at": draft.now}
        write_scope(draft.status, scope, {wire.RECREATIONS: fields})
    if len(due) == len(wanted):
        return len(due), 0.0
    draft.look_again(left_s)
    return len(due), left_s


def _so_far(fields: Mapping[str, Any], epoch: int) -> tuple[int, float]:
    """Return how often Jobs were recreated for the barrier of an epoch, and when last."""
    found = fields.get(wire.RECREATIONS)
    if not isinstance(found, Mapping) or found.get("epoch") != epoch:
        return 0, 0.0
    rounds = found.get("rounds")
    return (rounds if isinstance(rounds, int) and rounds > 0 else 0), unix_time(found.get("at")) or 0.0


def _is_older(job: Job, at_s: float) -> bool:
    """Say whether a Job began to run before the last recreation; kubernetes keeps whole seconds."""
    began_s = unix_time(job.status.start_time)
    return began_s is not None and began_s < int(at_s)
