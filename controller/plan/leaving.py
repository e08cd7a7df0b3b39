"""
What leaves its place while the group waits: a Job its bad domain, a Pod its marked node.

Bad domains: a Job that is placed exclusively leaves its domain when a bad node cannot be avoided there.

Its Pods can only be replaced within the domain. So the Job is made anew if the domain has more bad nodes than may be
avoided, or no other node for a Pod that was to avoid one. The leader of the new Job prefers domains without bad nodes.
It is done while the group's barrier waits, never to a group that runs. It is counted as the failure of the Job would
be, and where maxRestarts or the escalation has no room left the Job stays. A Job that is made anew has another UID, so
no bad node counts against it that it has not met itself. docs/adr/0097
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from inplace.common.jobset.bad_nodes import BadNodes, records_of
from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.escalation import pod_leaving, uses_of
from inplace.common.jobset.places import Place, job_of_pod
from inplace.common.jobset.scopes import Scope
from inplace.common.jobset.settings import STAY
from inplace.common.jobset.topology import exclusive_key, finds_domain
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.controller.plan.budget import exempt_next_epoch
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.escalation import count_recreation, has_room, let_leave, note_domain_left
from inplace.controller.plan.executions import JOB_COUNTERS_MAX, recreate_jobs

LEFT: Final = "JobLeavesDomain"  # the Event's reason
NODES_NAMED_MAX: Final = 5


def leave_bad_domains(draft: Draft) -> bool:
    """Make the first Job anew that is to leave its domain; that ends the pass."""
    policy, jobset = draft.jobset.bad_nodes, draft.jobset
    if policy is None or not jobset.is_placed_exclusively or not jobset.is_in_place or jobset.suspended:
        return False
    bad = tuple(one for one in records_of(draft.status, policy, draft.observed.now) if one.is_bad)
    jobs = {job.metadata.uid: job for job in draft.buckets.active} if bad else {}
    for uid in dict.fromkeys(record.job_uid for record in bad):
        job = jobs.get(uid)
        if job is None or job.is_leaving:
            continue
        place = jobset.places[job.metadata.name]
        why = _why_left(draft, policy, place, [record.node for record in bad if record.job_uid == uid])
        if why and (scope := _scope_that_may(draft, place)) is not None:
            _leave(draft, scope, place, f"job {job.metadata.name} is recreated: {why}")
            return True
    return False


def _why_left(draft: Draft, policy: BadNodes, place: Place, nodes: Sequence[str]) -> str:
    """Return why a Job leaves its domain; "" if it does not. On bad `nodes` its Pods have failed."""
    jobset, returned = draft.jobset, draft.observed.node_signs.returned
    replicated_job = jobset.replicated_job(place[0])
    if not finds_domain(jobset, replicated_job) or place[1] >= JOB_COUNTERS_MAX:
        return ""
    key, most = exclusive_key(jobset, replicated_job), policy.nodes_max(replicated_job.parallelism)
    if len(nodes) > most:
        named = " ".join(nodes[-NODES_NAMED_MAX:])
        return f"its domain ({key}) has {len(nodes)} bad nodes, of which {most} may be avoided: {named}"
    only = next((node for node in nodes if node in returned), None)
    return f"its domain ({key}) has no other node than {only}, which is bad" if only is not None else ""


def _scope_that_may(draft: Draft, place: Place) -> Scope | None:
    """Return the scope of a Job; None if its group runs, a Pod of another Job leaves, or no budget has room."""
    jobset, policy = draft.jobset, draft.jobset.failure_policy
    if policy is None or place[0] in jobset.opted_out:
        return None
    scope = jobset.scopes_in(draft.status)[jobset.scope_of(place[0]).name]
    if scope.is_running or _is_leaving_elsewhere(draft, scope, place) or not has_room(draft, scope):
        return None
    own = scope.restarts_at(scope.synced + 1) - scope.restarts_at(scope.synced) if scope.is_restarting else 0
    return scope if jobset.restarts_begun - own < policy.restarts_max else None


def _is_leaving_elsewhere(draft: Draft, scope: Scope, place: Place) -> bool:
    """Say whether a Pod of another Job leaves its node and is still there: the recreation would call that off."""
    leaving = pod_leaving(uses_of(draft.status), scope.name, scope.synced + 1)
    there = draft.observed.failed_pods.get(scope.name)
    if leaving is None or there is None or leaving.pod_uid != there.metadata.uid:
        return False
    return draft.jobset.places.find(job_of_pod(leaving.pod)) != place


def _leave(draft: Draft, scope: Scope, place: Place, why: str) -> None:
    """Recreate a Job: counted once, as a recreation; the others wait at their barrier."""
    cause = draft.causes.get(scope.name)
    count_recreation(draft, scope)
    exempt_next_epoch(draft, (scope,), cause.trigger if cause is not None else Trigger.UNKNOWN)
    note_domain_left(draft, scope)
    recreate_jobs(draft, place[0], (place[1],), (place[1],))
    waits = "" if scope.has_spares else ", and the others wait for it"
    draft.note(LEFT, f"{why}; it is counted once{waits}", warning=True)


# Let a Pod leave a marked node: its restart waits for the replacement, and the others restart in place meanwhile.
#
# The question whether its node is marked (`controller.api.node_marks`) goes out beside the write of D. S waits for the
# answer, which is most often there before the Pods are. One Pod of a scope leaves at a time: the next when it has
# ended. docs/adr/0092


def leave_marked_node(draft: Draft, scope: Scope, decision: Decision) -> Decision:
    """Write that the first marked Pod of a scope leaves; return the decision without the sync that it takes back.

    A sync waits for the answer, too.
    """
    runs_on = scope.synced > max(scope.deprecated, decision.deprecated) and decision.synced == scope.synced
    is_skipped = decision.synced == decision.deprecated > scope.synced
    if runs_on or is_skipped or decision.exceeded:
        return decision
    without_sync = replace(decision, synced=scope.synced, deprecated=scope.synced)
    if scope.has_spares:  # the ledger avoids its slot where a spare is there, and the Pod may stay as a spare
        return decision
    marked = next(iter(draft.observed.marked.get(scope.name, ())), None)
    if marked is None:
        open_s = draft.observed.asking.get(scope.name)
        if open_s is None or decision.synced == scope.synced:
            return decision
        draft.look_again(open_s)
        return without_sync
    why = (
        f"{marked.why}; the group waits until another node takes its replacement, or the mark is removed; "
        f"marked={STAY} in {wire.NODES} lets pods restart where they are"
    )
    return without_sync if let_leave(draft, scope, marked.pod, why) else decision
