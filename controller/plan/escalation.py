"""
Obey `inplace.dev/escalation`: which step a counted failure takes, and what that changes of its restart.

A use is written in the same status write as the restart that it is for: with D, or with the count of a recreation. A
restart that is counted neither way takes no place. docs/adr/0021
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from inplace.common.jobset import conditions
from inplace.common.jobset.causes import Trigger, unix_time
from inplace.common.jobset.escalation import (
    FAIL,
    LEAVE_DOMAIN,
    LEAVE_NODE,
    LEAVES,
    RECREATE_JOB,
    RECREATE_JOBS,
    REPLACE_POD,
    Use,
    count_uses,
    fitting,
    kept,
    listed,
    pod_leaving,
    use_of_restart,
    uses_of,
)
from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.last_restart import entry_of
from inplace.common.jobset.places import Place
from inplace.common.jobset.scopes import Scope
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import ReplacePod
from inplace.controller.plan.bad_nodes import is_suspect, note_first_failure, stays_pinned
from inplace.controller.plan.budget import exempt_next_epoch
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.executions import JOB_COUNTERS_MAX, recreate_all_jobs, recreate_jobs

REPLACE_S_MAX: Final = 60.0  # a controller that comes back, a throttled server; beyond it a group waits for nothing


def climb(draft: Draft, scope: Scope, decision: Decision) -> Decision:
    """Take a step for the restart that a decision begins; return the decision as the step changes it."""
    if not _begins_counted(draft, scope, decision):
        return decision
    pod = draft.observed.failed_pods.get(scope.name)
    cause, spares = draft.causes.get(scope.name), draft.observed.spares.get(scope.name, 0)
    leaves_node = note_first_failure(draft, cause) and not stays_pinned(draft, scope, pod)
    is_moved = spares > 0 and (leaves_node or is_suspect(draft, scope, cause))
    moved = pod if is_moved else None  # it stays, and its slot is avoided
    leaves_node = leaves_node and moved is None
    stays = replace(decision, synced=scope.synced, deprecated=scope.synced)
    is_tainted = any(taint.scope == scope.name for taint in draft.taints)  # the next pass knows whether the Pod leaves
    if not draft.jobset.escalation and not leaves_node:
        _tell_moved(draft, moved)
        return stays if is_tainted or moved is not None else decision
    use = _take(draft, scope, pod=pod, leaves_node=leaves_node)
    if use.step == FAIL:
        # Where all announced, no failed Job is about to decide otherwise (controller/plan/budget.py).
        return replace(stays, exceeded=decision.synced > scope.synced)
    if use.step == RECREATE_JOBS:
        _recreate(draft, scope)
    elif use.recreation:
        _recreate_job(draft, scope)
    elif not use.pod_uid:
        _tell_moved(draft, moved)
    is_skipped = decision.synced == decision.deprecated > scope.synced
    return decision if is_skipped or not (use.pod_uid or use.recreation or is_tainted or moved) else stays


def _tell_moved(draft: Draft, pod: Pod | None) -> None:
    if pod is not None:
        name, node = pod.metadata.name, pod.spec.node_name
        draft.note(LEAVES, f"pod {name} gives its rank to a spare: it is to leave node {node}")


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


def replace_bad_spares(draft: Draft) -> bool:
    """End the spares that failed as members on bad nodes: nobody waits for their next Pods, which go elsewhere."""
    for pod in draft.observed.bad_spares if draft.jobset.bad_nodes is not None else ():
        if not _is_ending(pod) and not pod.spec.is_pinned:
            draft.add(ReplacePod(pod))
    return False


def _is_ending(pod: Pod) -> bool:
    """Say whether a Pod ends already, for whatever reason."""
    is_over = pod.status.phase in ("Failed", "Succeeded") or pod.metadata.deletion_timestamp is not None
    return is_over or pod.spec.active_deadline_seconds == ReplacePod.DEADLINE_S


def let_leave(draft: Draft, scope: Scope, pod: Pod, why: str) -> bool:
    """Write and tell that a Pod leaves its node in the restart that begins or is under way.

    Say False, and write nothing, if its Jobs are recreated, no step had room, no Pod could be replaced, or this or
    another Pod of the scope leaves already.
    """
    old, epoch = uses_of(draft.status), scope.synced + 1
    leaving, there = pod_leaving(old, scope.name, epoch), draft.observed.failed_pods.get(scope.name)
    is_busy = leaving is not None and there is not None and leaving.pod_uid == there.metadata.uid
    uid, uses = pod.metadata.uid, [use for use in old if use.leads_to(scope.name, epoch)]
    if is_busy or any(use.pod_uid == uid or _forbids(use) for use in uses):  # the answer about a Pod may come late
        return False
    use = Use(LEAVE_NODE, draft.now, epoch, scope.name, pod=pod.metadata.name, pod_uid=pod.metadata.uid)
    others = (one for one in old if one.step != LEAVE_NODE or _leaves_elsewhere(draft, one, scope))
    _write(draft, (*others, use))
    draft.note(LEAVES, f"pod {use.pod} is replaced: {why}")
    return True


def _leaves_elsewhere(draft: Draft, use: Use, scope: Scope) -> bool:
    """Say whether a use is of a Pod of another scope that is about to leave its node."""
    return _is_undecided(draft, use) and use.scope != scope.name


def _forbids(use: Use) -> bool:
    """Say whether a use of a restart leaves no room for a Pod that leaves."""
    return use.step in (FAIL, RECREATE_JOBS) or use.recreation or (use.step == LEAVE_NODE and not use.pod_uid)


def count_recreation(draft: Draft, scope: Scope | None) -> str:
    """Take a step for a recreation that counts towards maxRestarts; return its name, "" where there is no escalation.

    A failure that took one when its epoch was deprecated is counted already: its use becomes that of the recreation.

    The scope is that of the Job that failed; None where its replicatedJob opted out.
    """
    if not draft.jobset.escalation:
        return ""
    uses = uses_of(draft.status)
    known = _use_to_turn(uses, scope)
    if known is None:
        return _take(draft, scope, recreation=True).step
    changed = structs.replace(known, recreation=True, pod="", pod_uid="")
    _write(draft, (changed if use is known else use for use in uses))
    return known.step


def _use_to_turn(uses: Sequence[Use], scope: Scope | None) -> Use | None:
    """Return the use of a restart that becomes that of a recreation; None where the recreation takes one of its own."""
    known = use_of_restart(uses, scope.name, scope.synced + 1) if scope is not None else None
    is_taken = known is None or known.recreation or known.step in (LEAVE_NODE, LEAVE_DOMAIN)
    return None if is_taken else known


def has_room(draft: Draft, scope: Scope) -> bool:
    """Say whether `count_recreation` would find a step."""
    escalation, uses = draft.jobset.escalation, uses_of(draft.status)
    known = _use_to_turn(uses, scope)
    if not escalation or known is not None:
        return known is None or known.step != FAIL
    return fitting(escalation, uses, draft.now_s) is not None


def note_domain_left(draft: Draft, scope: Scope) -> None:
    """Write that a Job leaves its domain in the restart of a scope that is under way."""
    others = (use for use in uses_of(draft.status) if use.step != LEAVE_DOMAIN)
    _write(draft, (*others, Use(LEAVE_DOMAIN, draft.now, scope.synced + 1, scope.name, recreation=True)))
    if (entry := entry_of(draft.status, scope)) is not None:
        draft.status[wire.LAST_GROUP_RESTART] = entry | {"escalationStep": LEAVE_DOMAIN}


def _begins_counted(draft: Draft, scope: Scope, decision: Decision) -> bool:
    """Say whether a restart begins that maxRestarts counts and allows."""
    is_running = scope.synced > scope.deprecated
    is_over = scope.synced < decision.synced == scope.synced + 1 or decision.deprecated >= scope.synced
    now = draft.jobset.scopes_in(draft.status)[scope.name]  # with what this pass has exempted
    policy = draft.jobset.failure_policy
    is_allowed = policy is not None and decision.restarts <= policy.restarts_max and not decision.exceeded
    return is_running and is_over and now.last_exempt <= scope.synced and is_allowed


def _take(
    draft: Draft, scope: Scope | None, *, recreation: bool = False, pod: Pod | None = None, leaves_node: bool = False
) -> Use:
    """Write a use of the first step that has room, or that none has; tell it.

    Without an escalation it is a Pod that leaves its node (controller/plan/bad_nodes.py).
    """
    escalation, now, now_s = draft.jobset.escalation, draft.now, draft.now_s
    old = uses_of(draft.status)
    uses = (*(use for use in old if _is_undecided(draft, use)), *kept(escalation, old, now_s, now))
    step = fitting(escalation, uses, now_s)
    name, epoch = (scope.name, scope.synced + 1) if scope is not None else ("", 0)
    place = (
        _failed_place(draft, scope) if step is not None and step.name == RECREATE_JOB and scope is not None else None
    )
    use = Use(
        step.name if step is not None else FAIL if escalation else LEAVE_NODE,
        now,
        epoch,
        name,
        recreation=recreation or place is not None or (step is not None and step.name == RECREATE_JOBS),
    )
    told = ""
    if use.step == RECREATE_JOB and not recreation:
        told = ": no job of a pod that failed first is known, so all restart in place"
        if place is not None:
            told = f": job {draft.jobset.job_name(*place)} is recreated, the others restart in place"
    if (use.step == REPLACE_POD or (leaves_node and use.step != FAIL and not use.recreation)) and not recreation:
        told = ": no pod that could be replaced is known or there, so all restart in place"
        if pod is not None:
            use = structs.replace(use, pod=pod.metadata.name, pod_uid=pod.metadata.uid)
            told = f": pod {use.pod} is replaced"
            if leaves_node:
                draft.note(LEAVES, f"pod {use.pod} is replaced: it is to leave node {pod.spec.node_name}")
    _write(draft, (*uses, use))
    if use.step != LEAVE_NODE:
        draft.escalation_steps.append(use.step)
    if step is not None:
        used = count_uses(step, uses, now_s) + 1
        draft.note(
            "EscalationStep", f"escalation step {step.name}, use {used} of {step.uses_max} in {step.window_s} s{told}"
        )
    return use


def _is_undecided(draft: Draft, use: Use) -> bool:
    """Say whether another scope found no step a moment ago, or its Pod is about to leave its node."""
    scope = draft.jobset.scopes.get(use.scope)
    return use.step in (FAIL, LEAVE_NODE) and scope is not None and use.epoch == scope.synced + 1


def _failed_place(draft: Draft, scope: Scope) -> Place | None:
    """Return the place of the Job whose worker exited first, or is slow; None if it is not known.

    After a hang the Pod that told first is as likely healthy, and a Pod that is lost has a replacement already. A Job
    of an index beyond the counters cannot restart alone.
    """
    cause = draft.causes.get(scope.name)
    if cause is None or cause.failure is None or not cause.is_of_the_pod:
        return None
    job_name, *rest = cause.failure.pod.rsplit("-", 2)  # JOB-INDEX-SUFFIX; the Pod itself may be gone
    place = draft.jobset.places.find(job_name) if len(rest) == 2 else None
    is_known = place is not None and place[0] in scope.members and place[1] < JOB_COUNTERS_MAX
    return place if is_known else None


def _recreate_job(draft: Draft, scope: Scope) -> None:
    """Recreate the Job whose Pod failed first: counted once, as a recreation; the others restart in place."""
    place, cause = _failed_place(draft, scope), draft.causes[scope.name]
    assert place is not None, "a use of this step counts a recreation only where the Job is known"
    replicated_job, index = place
    exempt_next_epoch(draft, (scope,), cause.trigger)
    recreate_jobs(draft, replicated_job, (index,), (index,))


def _recreate(draft: Draft, scope: Scope) -> None:
    """Recreate all Jobs: counted once, as a recreation."""
    cause = draft.causes.get(scope.name)
    trigger = cause.trigger if cause is not None else Trigger.UNKNOWN
    others = [other for other in draft.jobset.scopes.values() if other.name != scope.name]
    exempt_next_epoch(draft, (*others, scope), trigger)
    recreate_all_jobs(draft, counted=True)
    draft.set(conditions.restarting(None, f"escalation step {RECREATE_JOBS}: all jobs are recreated", "Escalation"))


def _write(draft: Draft, uses: Iterable[Use]) -> None:
    draft.status[wire.ESCALATION_USES] = listed(uses)
