"""
Find the Pods whose workers completed while others train on, where the success policy wants all of them.

A peer that is gone makes those fail that go on, and their failure is often told first: a guard tells at once, and
kubelet shows a completed container at its next look. So the cause of a restart changes when such a Pod shows. Below a
guard an exit code 0 is the worker's own end: one that was stopped gives another code. If the Pod restarts BEFORE
kubelet looks, only its agent knows, and its next announcement says so. docs/adr/0006
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from inplace.common.agent_command import agent_arguments, is_guarded
from inplace.common.jobset.causes import COMPLETED, Cause, Failure, Trigger, unix_time
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Job, Pod
from inplace.common.jobset.verdict import OWN_ENDS
from inplace.common.wire.last_line import is_peers_sign
from inplace.common.wire.phases import exit_code_of
from inplace.controller.tracking.pods import known_epoch
from inplace.controller.tracking.signs import Sign

ENDING_S: Final = 2.0  # from closed sockets to the end of a process that has torch to unload, on a busy machine


def completed_pods(
    jobset: JobSet, scope: str, jobs: Mapping[str, Job], pods_of: Callable[[Job], Sequence[Pod]]
) -> Iterator[Pod]:
    """Yield the Pods of a scope that completed although others go on; O(Pods), once a restart."""
    wanted = _wanted(jobset, scope)
    for name, job in jobs.items() if wanted else ():
        place = jobset.places.get(name)
        if place is not None and place[0] in wanted:
            yield from (pod for pod in pods_of(job) if pod.status.phase == "Succeeded" or _has_ended_well(pod))


def blame_completed(sign: Sign, completed: Iterable[Pod], seen_at: str) -> Sign:
    """Return the sign, which was seen at a moment, or that a Pod completed before."""
    trigger, failure = sign
    before = (pod for pod in completed if trigger in OWN_ENDS and _is_cause(pod, failure, seen_at))
    first = min(before, key=lambda pod: pod.metadata.name, default=None)
    if first is None:
        return sign
    after = f"; then {failure}" if failure is not None else ""
    name, node = first.metadata.name, first.spec.node_name or ""
    message = f"it completed while others went on{after}"
    return Trigger.COMPLETED_EARLY, Failure(name, node, exit_code=0, reason=COMPLETED, message=message)


def blame_late(cause: Cause, jobset: JobSet, scope: str, job: Job | None, pod: Pod) -> Cause:
    """Return the cause, or that this Pod completed before the failure that was seen first."""
    if cause.trigger not in OWN_ENDS or job is None:
        return cause
    place = jobset.places.get(job.metadata.name)
    if place is None or place[0] not in _wanted(jobset, scope):
        return cause
    if not _has_told(pod, jobset.scopes[scope].synced) and not _shows_completion(pod, jobset, place[0]):
        return cause
    trigger, failure = blame_completed((cause.trigger, cause.failure), (pod,), cause.seen_at)
    return replace(cause, trigger=trigger, failure=failure)


def _wanted(jobset: JobSet, scope: str) -> frozenset[str]:
    """Return the replicatedJobs of a scope all of whose Pods the success policy wants to complete together.

    An initializer completes first: others wait for that.
    """
    policy, members = jobset.success_policy, jobset.scopes[scope].members - jobset.awaited_to_complete
    if policy.operator != "All":
        return frozenset()
    return frozenset(members if not policy.targets else members & policy.targets)


def _has_told(pod: Pod, synced: int) -> bool:
    """Say whether the announcement of the next epoch tells that a worker of the running one completed."""
    annotations = pod.metadata.annotations
    if annotations is None or annotations.phases is None or exit_code_of(annotations.phases) != 0:
        return False
    return known_epoch(pod) > synced


def _shows_completion(pod: Pod, jobset: JobSet, replicated_job: str) -> bool:
    """Say whether kubelet shows that a Pod completed."""
    return pod.status.phase == "Succeeded" or (_has_ended_well(pod) and _has_guard(jobset, replicated_job))


def _has_ended_well(pod: Pod) -> bool:
    """Say whether every worker container of a Pod shows the exit code 0."""
    ends = [status.state.terminated for status in pod.status.container_statuses or ()]
    return bool(ends) and all(end is not None and end.exit_code == 0 for end in ends)


def _is_cause(pod: Pod, failure: Failure | None, seen_at: str) -> bool:
    """Say whether a Pod's completion may have brought a failure about.

    kubelet cuts the moment of the completion to whole seconds. In that second the failure's words decide: ranks that
    all end at their last step are no reason for the one among them that fails. A peer that is missed may still end.
    """
    line = failure.last_line if failure is not None else ""
    failed_s = unix_time((failure.finished_at if failure is not None else "") or seen_at)
    ends = [status.state.terminated for status in pod.status.container_statuses or ()]
    ended_s = [unix_time(end.finished_at) for end in ends if end is not None]
    if not ended_s or None in ended_s:  # its agent told, and nobody knows when it was
        return not line or is_peers_sign(line)
    last_s = max(one for one in ended_s if one is not None)
    return failed_s is not None and last_s <= failed_s + (ENDING_S if is_peers_sign(line) else -1.0)


def _has_guard(jobset: JobSet, replicated_job: str) -> bool:
    """Say whether its workers run below guards: the template starts them, or has no agent, and the controller did."""
    pod_spec = jobset.replicated_job(replicated_job).template()["spec"]["template"]["spec"]
    every = (*(pod_spec.get("containers") or ()), *(pod_spec.get("initContainers") or ()))
    commands = [(*(one.get("command") or ()), *(one.get("args") or ())) for one in every]
    return any(map(is_guarded, commands)) or all(agent_arguments(command) is None for command in commands)
