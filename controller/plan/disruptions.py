"""
Count no restart because of a disruption: an eviction, a preemption, a drain, a taint. It is not the workers' fault.

Kubernetes marks such a Pod by the condition DisruptionTarget BEFORE it goes. A podFailurePolicy may say otherwise: the
first rule for that condition decides, and under the action Count the restart counts.
Source: KEP-3329; k8s.io/kubernetes pkg/controller/job/pod_failure_policy.go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from inplace.common.jobset.causes import Cause, Trigger
from inplace.common.jobset.last_restart import begun
from inplace.common.wire import names as wire
from inplace.controller.plan.budget import exempt_next_epoch
from inplace.controller.plan.draft import Draft

CONDITION: Final = "DisruptionTarget"


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
        if any(pattern.get("type") == CONDITION for pattern in rule.get("onPodConditions") or ()):
            return bool(rule.get("action") == "Count")
    return False
