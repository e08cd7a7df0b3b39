"""
Exclusive placement: one Job in one topology domain (a rack, a node pool), and no other Job beside it.

Two strategies, with upstream's annotations. With `node-selector` the user labels and taints the nodes, Pods get
selector and toleration, and the controller does nothing more. Otherwise Pods carry the affinity and a scheduling gate
that the controller lifts: the leader's gate (completion index 0) at once, the others' when the leader has a node, with
a selector for the leader's domain, so that the scheduler looks only at nodes of that domain. Upstream uses webhooks,
which block every Pod of their kind when the controller is down, and repairs by deleting Pods. A gate affects no
scheduled Pod, and the affinity holds for every Pod, so one thing alone needs repair: Pods that wait for nodes of a
domain which their leader has left, because it was replaced before any of them ran. Their Job is created anew: the
controller has no right to delete Pods. Source: jobset pkg/webhooks/pod_mutating_webhook.go; KEP-3838.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from inplace.common.jobset.kinds import Job, Pod
from inplace.common.jobset.topology import exclusive_key, uses_node_selector
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import DeleteJob, LiftGate
from inplace.controller.plan.draft import Draft

LOOK_AGAIN_S: Final = 30.0  # a node that gets its label wakes no JobSet
_OVER: Final = ("Succeeded", "Failed")


def lift_gates(draft: Draft) -> bool:
    """Let the scheduler see the Pods whose domain is known, or which are to find one."""
    jobset = draft.jobset
    for job in draft.buckets.active if jobset.is_placed_exclusively else ():
        replicated_job = jobset.replicated_job(jobset.places[job.metadata.name][0])
        key = exclusive_key(jobset, replicated_job)
        pods = draft.observed.pods.get(job.metadata.name, ())
        if key is not None and pods and not uses_node_selector(jobset, replicated_job):
            _lift(draft, job, key, [pod for pod in pods if _may_run(pod)])
    return False


def _lift(draft: Draft, job: Job, key: str, pods: list[Pod]) -> None:
    """Lift the gates of one Job's Pods."""
    leaders = [pod for pod in pods if pod.completion_index == "0"]
    followers = [pod for pod in pods if pod.completion_index not in (None, "0")]
    for pod in pods:
        if pod.is_gated and pod.completion_index in (None, "0"):  # without an index the affinity alone must do
            draft.add(LiftGate(pod))
    waiting = [pod for pod in followers if pod.is_gated]
    unplaced = [pod for pod in followers if _is_unplaced(pod)]
    if len(leaders) != 1 or leaders[0].spec.node_name is None or not (waiting or unplaced):
        return
    node = leaders[0].spec.node_name
    domain = draft.observed.domains.get((node, key))
    if domain is not None and _are_astray(draft, unplaced, domain):
        draft.warn(
            "ExclusivePlacementFailed",
            f"job {job.metadata.name}: expected its pods to wait for nodes of {key}={domain}, where their leader runs, "
            "saw some that wait for the domain that it has left: the job is recreated",
        )
        draft.delete(job, DeleteJob.ASTRAY)
        return
    if unplaced:
        draft.look_again(LOOK_AGAIN_S)  # the scheduler may find out later that it has no node for them
    if not waiting:
        return
    if domain is None:
        draft.warn(
            "ExclusivePlacementFailed",
            f"job {job.metadata.name}: expected label {key} on node {node}, where its leader runs, saw none; "
            f"{len(waiting)} pods wait behind their scheduling gate; label the node, or delete the leader pod",
        )
        draft.look_again(LOOK_AGAIN_S)
        return
    for pod in waiting:
        draft.add(LiftGate(pod, ((key, domain),)))


def leaders_to_follow(pods: Iterable[Pod]) -> Iterable[str]:
    """Yield the nodes whose domain must be known: those of leaders, while followers wait, for us or for a node."""
    found = [pod for pod in pods if _may_run(pod)]
    if any((pod.is_gated or is_unschedulable(pod)) and pod.completion_index != "0" for pod in found):
        for pod in found:
            if pod.completion_index == "0" and pod.spec.node_name is not None:
                yield pod.spec.node_name


def follower_to_read(pods: Iterable[Pod]) -> Pod | None:
    """Return a follower for which the scheduler has no node, once its leader has one: its selector must be known.

    One says it for all: the gates of a Job's followers are lifted with the domain of one leader.
    """
    found = [pod for pod in pods if _may_run(pod)]
    if not any(pod.completion_index == "0" and pod.spec.node_name is not None for pod in found):
        return None
    followers = (pod for pod in found if pod.completion_index not in (None, "0"))
    return next((pod for pod in followers if is_unschedulable(pod)), None)


def is_unschedulable(pod: Pod) -> bool:
    """Say whether the scheduler was asked for a node, and has none."""
    return _is_unplaced(pod) and pod.status.condition("PodScheduled") is not None


def _are_astray(draft: Draft, pods: Iterable[Pod], domain: str) -> bool:
    """Say whether Pods wait for another domain; one that asks for none is kept beside its leader by its affinity."""
    asked = (draft.observed.asked_domains.get(pod.metadata.uid) for pod in pods)
    return any(value and value != domain for value in asked)


def _is_unplaced(pod: Pod) -> bool:
    """Say whether a Pod waits for the scheduler; a gate of somebody else may hold it back, too."""
    return not pod.is_gated and pod.spec.node_name is None


def _may_run(pod: Pod) -> bool:
    """Say whether a Pod is to be placed, or is; one that still waits behind the other gate of ours comes later."""
    is_over = pod.status.phase in _OVER or pod.metadata.deletion_timestamp is not None
    return not is_over and not pod.waits_for(wire.AVOIDANCE_GATE)
