"""
Obey `inplace.dev/escalation`: which step a counted failure takes, and what that changes of its restart.

A use is written in the same status write as the restart that it is for: with D, or with the count of a recreation. A
restart that is counted neither way takes no place. docs/adr/0021
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from msgspec import structs

from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import ReplacePod
from inplace.controller.plan.bad_nodes import note_first_failure
from inplace.controller.plan.budget import exempt_next_epoch
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.executions import recreate_all_jobs
from inplace.controller.spec import conditions
from inplace.controller.spec.causes import Trigger, unix_time
from inplace.controller.spec.escalation import (
    FAIL,
    LEAVE_NODE,
    RECREATE_JOBS,
    REPLACE_POD,
    Use,
    count_uses,
    fitting,
    kept,
    use_of_restart,
    uses_of,
)
from inplace.controller.spec.kinds import Pod
from inplace.controller.spec.scopes import Scope

REPLACE_S_MAX: Final = 60.0  # a controller that comes back, a throttled server; beyond it a group waits for nothing


def climb(draft: Draft, scope: Scope, decision: Decision) -> Decision:
    """Take a step for the restart that a decision begins; return the decision as the step changes it."""
    if not _begins_counted(draft, scope, decision):
        return decision
    leaves_node = note_first_failure(draft, draft.causes.get(scope.name))
    if not draft.jobset.escalation and not leaves_node:
        return decision
    use = _take(draft, scope, pod=draft.observed.failed_pods.get(scope.name), leaves_node=leaves_node)
    stays = replace(decision, synced=scope.synced, deprecated=scope.synced)
    if use.step == FAIL:
        # Where all announced, no failed Job is about to decide otherwise (controller/plan/budget.py).
        return replace(stays, exceeded=decision.synced > scope.synced)
    if use.step == RECREATE_JOBS:
        _recreate(draft, scope)
    is_skipped = decision.synced == decision.deprecated > scope.synced
    return decision if is_skipped or not (use.pod_uid or use.step == RECREATE_JOBS) else stays


def replace_pods(draft: Draft) -> bool:
    """End the Pods that the step ReplacePod names; where one cannot be patched for a while, restart in place."""
    scopes = draft.jobset.scopes_in(draft.status)
    uses = uses_of(draft.status) if draft.jobset.replaces_pods else ()
    for use in uses:
        pod, scope = draft.observed.failed_pods.get(use.scope), scopes.get(use.scope)
        if pod is None or scope is None or not use.leads_to(scope.name, scope.synced + 1):
            continue
        if pod.metadata.uid != use.pod_uid or _is_ending(pod):
            continue
        waited_s = abs(draft.now_s - (unix_time(use.started_at) or 0.0))  # a clock may jump back
        if waited_s < REPLACE_S_MAX:
            draft.add(ReplacePod(pod))
            draft.look_again(REPLACE_S_MAX - waited_s)
            continue
        _write(draft, (structs.replace(one, pod="", pod_uid="") if one is use else one for one in uses))
        draft.warn(
            "PodNotReplaced",
            f"pod {use.pod}: expected to set its activeDeadlineSeconds within {REPLACE_S_MAX:.0f} s, could not; the "
            "group restarts in place; see whether the controller may patch pods",
        )
    return False


def _is_ending(pod: Pod) -> bool:
    """Say whether a Pod ends already, for whatever reason."""
    is_over = pod.status.phase in ("Failed", "Succeeded") or pod.metadata.deletion_timestamp is not None
    return is_over or pod.spec.active_deadline_seconds == ReplacePod.DEADLINE_S


def count_recreation(draft: Draft, scope: Scope | None) -> str:
    """Take a step for a recreation that counts towards maxRestarts; return its name, "" where there is no escalation.

    A failure that took one when its epoch was deprecated is counted already: its use becomes that of the recreation.

    The scope is that of the Job that failed; None where its replicatedJob opted out.
    """
    if not draft.jobset.escalation:
        return ""
    uses = uses_of(draft.status)
    known = use_of_restart(uses, scope.name, scope.synced + 1) if scope is not None else None
    if known is None or known.recreation:
        return _take(draft, scope, recreation=True).step
    changed = structs.replace(known, recreation=True, pod="", pod_uid="")
    _write(draft, (changed if use is known else use for use in uses))
    return known.step


def _begins_counted(draft: Draft, scope: Scope, decision: Decision) -> bool:
    """Say whether a restart begins that maxRestarts counts and allows."""
    is_running = scope.synced > scope.deprecated
    is_over = scope.synced < decision.synced == scope.synced + 1 or decision.deprecated >= scope.synced
    now = draft.jobset.scopes_in(draft.status)[scope.name]  # with what this pass has exempted
    policy = draft.jobset.failure_policy
    is_allowed = policy is not None and decision.restarts <= policy.restarts_max and not decision.exceeded
    return is_running and is_over and now.last_exempt <= scope.synced and is_allowed


def _take(
    draft: Draft,
    scope: Scope | None,
    *,
    recreation: bool = False,
    pod: Pod | None = None,
    leaves_node: bool = False,
) -> Use:
    """Write a use of the first step that has room, or that none has; tell it.

    Without an escalation it is a Pod that leaves its node (controller/plan/bad_nodes.py).
    """
    escalation, now, now_s = draft.jobset.escalation, draft.now, draft.now_s
    old = uses_of(draft.status)
    uses = (*(use for use in old if _is_undecided(draft, use)), *kept(escalation, old, now_s, now))
    step = fitting(escalation, uses, now_s)
    name, epoch = (scope.name, scope.synced + 1) if scope is not None else ("", 0)
    use = Use(
        step.name if step is not None else FAIL if escalation else LEAVE_NODE,
        now,
        epoch,
        name,
        recreation=recreation or (step is not None and step.name == RECREATE_JOBS),
    )
    told = ""
    if (use.step == REPLACE_POD or (leaves_node and use.step not in (FAIL, RECREATE_JOBS))) and not recreation:
        told = ": no pod that could be replaced is known or there, so all restart in place"
        if pod is not None:
            use = structs.replace(use, pod=pod.metadata.name, pod_uid=pod.metadata.uid)
            told = f": pod {use.pod} is replaced"
            if leaves_node:
                draft.note("PodLeavesNode", f"pod {use.pod} is replaced: it is to leave node {pod.spec.node_name}")
    _write(draft, (*uses, use))
    if use.step != LEAVE_NODE:
        draft.escalation_steps.append(use.step)
    if step is not None:
        used = count_uses(step, uses, now_s) + 1
        draft.note("RestartRung", f"rung {step.name}, use {used} of {step.uses_max} in {step.window_s} s{told}")
    return use


def _is_undecided(draft: Draft, use: Use) -> bool:
    """Say whether another scope found no step a moment ago, or its Pod is about to leave its node."""
    scope = draft.jobset.scopes.get(use.scope)
    return use.step in (FAIL, LEAVE_NODE) and scope is not None and use.epoch == scope.synced + 1


def _recreate(draft: Draft, scope: Scope) -> None:
    """Recreate all Jobs: counted once, as a recreation."""
    cause = draft.causes.get(scope.name)
    trigger = cause.trigger if cause is not None else Trigger.UNKNOWN
    others = [other for other in draft.jobset.scopes.values() if other.name != scope.name]
    exempt_next_epoch(draft, (*others, scope), trigger)
    recreate_all_jobs(draft, counted=True)
    draft.set(conditions.restarting(None, f"rung {RECREATE_JOBS}: all jobs are recreated", "Escalation"))


def _write(draft: Draft, uses: Iterable[Use]) -> None:
    draft.status[wire.ESCALATION_USES] = [use.fields() for use in uses]
