"""
Bad nodes: remember on which nodes workers failed first or checks failed, and let replaced Pods avoid them.

Pods of a JobSet with the annotation wait behind a scheduling gate of ours, which is lifted at once, with a preference
for all nodes that are not bad. It is a preference, so that a Pod never waits for a node that is not there: then the
scheduler takes a bad one, and its verdict is taken back. docs/adr/0024
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from inplace.common.jobset.bad_nodes import (
    AVOIDED,
    TAKEN_BACK,
    BadNodes,
    Records,
    after_check,
    after_failure,
    avoided,
    find,
    forgiven,
    records_of,
)
from inplace.common.jobset.causes import Cause, Failure, Trigger
from inplace.common.jobset.failure_class import class_of
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import HOSTNAME, Pod
from inplace.common.jobset.last_restart import begun
from inplace.common.jobset.marked_nodes import STAYS
from inplace.common.jobset.node_taints import is_moved_by_queue
from inplace.common.jobset.observing import restarts_of, suspected
from inplace.common.jobset.places import job_of_pod
from inplace.common.jobset.restart_history import past_restart, with_restart
from inplace.common.jobset.scopes import Scope
from inplace.common.jobset.topology import exclusive_key, finds_domain
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import AvoidNodes, TaintNode
from inplace.controller.plan.draft import Draft


def avoid_bad_nodes(draft: Draft) -> bool:
    """Take in failed checks, take back what the scheduler could not obey, and let gated Pods go."""
    policy = draft.jobset.bad_nodes
    nodes: tuple[str, ...] = ()
    if policy is not None:
        signs, now = draft.observed.node_signs, draft.observed.now
        records = _take_back(draft, records_of(draft.status, policy, now))
        for failure in signs.unfit:
            changed = after_check(records, policy, failure, now, _job_uid(draft, failure))
            _tell(draft, policy, records, changed, failure.node)
            records = changed
        _write(draft, records)
        nodes = avoided(records, policy, signs.in_use)
    for pod in draft.observed.gated:
        key = key_of_leader(draft.jobset, pod)
        draft.add(AvoidNodes(pod, nodes, key, domains_of(nodes, key, draft.observed.domains)))
    return False


def note_first_failure(draft: Draft, cause: Cause | None) -> bool:
    """Remember on which node the first worker ended, or was slow, in the write that begins the restart.

    Returns:
        That Pods are to leave the node.
    """
    if cause is None or cause.failure is None or not cause.is_of_the_pod:
        return False
    if not class_of(cause.trigger, cause.failure).may_be_of_the_node:  # the script would fail anywhere
        return False
    return _note_failure(draft, cause.failure)


def is_suspect(draft: Draft, scope: Scope, cause: Cause | None) -> bool:
    """Say whether a Pod whose worker failed is on a node that failed again, where nobody asked that Pods leave it."""
    policy, now = draft.jobset.suspects, draft.observed.now
    if policy is None or policy.is_observed or cause is None or cause.failure is None:
        return False
    this = past_restart(begun(draft.status, scope, cause, now), None)
    found = suspected(with_restart(restarts_of(draft.status), this), policy, now)
    return find(found, cause.failure.node).is_bad and found[-1].node == cause.failure.node


def note_hang(draft: Draft, cause: Cause, silent: FurthestBehind | None) -> None:
    """Remember on which node the one Pod was that hung, in the write that ends the restart.

    Its peers wait for it, and any of them may be the first to tell of the hang.
    """
    if cause.trigger is Trigger.STALLED and silent is not None and silent.hang is not None:
        _note_failure(draft, silent.hang)


def _note_failure(draft: Draft, failure: Failure) -> bool:
    """Count a failure of a node; say whether the node is avoided then."""
    policy = draft.jobset.bad_nodes
    if policy is None or not failure.node:
        return False
    records = records_of(draft.status, policy, draft.observed.now)
    changed = after_failure(records, policy, failure, draft.observed.now, _job_uid(draft, failure))
    _tell(draft, policy, records, changed, failure.node)
    _write(draft, changed)
    return failure.node in avoided(changed, policy, draft.observed.node_signs.in_use)


def stays_pinned(draft: Draft, scope: Scope, pod: Pod | None) -> bool:
    """Say that a Pod restarts on its bad node, because its replacement could run nowhere else; tell it.

    Where a queue pinned it, and this controller may taint nodes, the taint comes first: then the Pod leaves as from any
    marked node (`controller.act.node_tainting`).
    """
    if pod is None or not pod.spec.is_pinned:
        return False
    if draft.observed.taints_nodes and is_moved_by_queue(draft.jobset, pod):
        policy = draft.jobset.bad_nodes
        assert policy is not None, "a verdict follows from the annotation"
        draft.taints.append(TaintNode(pod, scope.name, policy.nodes_max(draft.observed.node_signs.in_use)))
        return True
    draft.note(
        STAYS,
        f"pod {pod.metadata.name} may run on node {pod.spec.node_name} alone (nodeSelector {HOSTNAME}), which is bad: "
        "it restarts there, because a replacement would come back; with Kueue's Topology Aware Scheduling taint or "
        "drain the node, and Kueue chooses another",
        warning=True,
    )
    return True


def _job_uid(draft: Draft, failure: Failure) -> str:
    """Return the UID of the Job of the Pod that failed; "" if there is none."""
    job = draft.observed.jobs.get(job_of_pod(failure.pod))
    return job.metadata.uid if job is not None else ""


def _take_back(draft: Draft, records: Records) -> Records:
    """Forget what is known of a node that a Pod was to avoid, and to which the scheduler brought it all the same."""
    for node in sorted(draft.observed.node_signs.returned):
        if find(records, node).is_bad:
            message = f"node {node}: the scheduler found no better node for a pod that was to avoid it"
            draft.note(TAKEN_BACK, f"{message}; its failures are forgotten", warning=True)
    return forgiven(records, draft.observed.node_signs.returned)


def _tell(draft: Draft, policy: BadNodes, old: Records, new: Records, node: str) -> None:
    """Say that a node is bad now, and which other one is no longer avoided for that."""
    record = find(new, node)
    if find(old, node).is_bad or not record.is_bad:
        return
    in_use = draft.observed.node_signs.in_use
    is_enough = len(record.failed_at) == policy.failures
    what = f"{policy.failures} first failures within {policy.window_s} s, the last" if is_enough else "a failed check"
    message = f"node {node}: {what}: {record.why}; replaced pods avoid it for {policy.window_s} s"
    for other in avoided(old, policy, in_use):
        if other not in avoided(new, policy, in_use):
            message += f", and node {other} no longer: at most {policy.nodes_max(in_use)} of {in_use} nodes"
    draft.note(AVOIDED, message, warning=True)


def _write(draft: Draft, records: Records) -> None:
    """Put the records into the status if they say something else than it does; old times alone are no reason."""
    policy = draft.jobset.bad_nodes
    if policy is not None and records != records_of(draft.status, policy, draft.observed.now):
        draft.status[wire.NODE_FAILURES] = [record.fields() for record in records]


# Which domains a leader (controller/plan/placement.py) avoids where it can: those with nodes that are avoided.


def domains_to_read(jobset: JobSet, gated: Iterable[Pod], in_use: int, now: str) -> Iterator[tuple[str, str]]:
    """Yield (node, label) of the bad nodes whose domains must be known: those that a new leader is to avoid."""
    policy = jobset.bad_nodes
    keys = {key_of_leader(jobset, pod) for pod in gated} - {""} if policy is not None else frozenset[str]()
    if policy is not None and keys:
        for node in avoided(records_of(jobset.status, policy, now), policy, in_use):
            yield from ((node, key) for key in keys)


def domains_of(nodes: Iterable[str], key: str, domains: Mapping[tuple[str, str], str]) -> tuple[str, ...]:
    """Return the domains of nodes as far as they are known, each once."""
    return tuple(dict.fromkeys(domains[node, key] for node in nodes if (node, key) in domains))


def key_of_leader(jobset: JobSet, pod: Pod) -> str:
    """Return the node label whose values are the domains of which a Pod chooses one for its Job; "" if it does not."""
    labels = pod.metadata.labels
    job = jobset.find_replicated_job(labels.replicated_job or "") if labels is not None else None
    if job is None or pod.completion_index != "0" or not finds_domain(jobset, job):
        return ""
    return exclusive_key(jobset, job) or ""
