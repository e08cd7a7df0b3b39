"""
What keeps a JobSet from training, and what to do: for each reason for which a group waits a sentence, with the command.

`{pod}`, `{job}` and `{log}` hold the namespace too, so that a command works as it stands. A node is deleted only once
its machine is off: the API server then lets other Pods take its Pods' places, and two workers of a slot must never run.
Of a JobSet that failed for good the Pods are gone, or soon will be, so status and spec say why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from inplace.agent.settings.command import NOT_EXECUTABLE, NOT_FOUND
from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import GroupState
from inplace.cli.group.straggler import Why
from inplace.cli.status.document import failure_text
from inplace.cli.status.history import repeats_text
from inplace.common.agent_command import agent_arguments
from inplace.common.bare.record import record
from inplace.common.injection.pod_roles import members
from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.conditions import BEFORE_JOINING
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.restart_history import history_of
from inplace.controller.api.object_events import Event

UNSEEN_END: Final = (
    "wait: where a member's Pod was deleted by force, or its node is dead, its worker may still run, and the group "
    "waits as long as inplace.dev/fence-after says, or else the Pod's grace period"
)
CONTROLLER_PODS: Final = "kubectl get pods -A -l app.kubernetes.io/name=inplace-controller"
ADVICE: Final[dict[Why, str]] = {
    Why.MISSING: "find out why its Job creates no Pod: kubectl describe job {job}",
    Why.GATED: "the program that set its scheduling gate must remove it; exclusive placement needs a free domain",
    Why.UNSCHEDULABLE: "free or add nodes that fit, or lower the Pod's requests: kubectl describe pod {pod}",
    Why.UNSCHEDULED: "if this stays, check that a scheduler runs: kubectl describe pod {pod}",
    Why.NODE_LOST: "if the node does not come back, make sure that its machine is off, and only then delete it: "
    "kubectl delete node {node}",
    Why.HELD: "the program that set the finalizer must remove it: see whether that program runs. If it is gone for "
    "good, an administrator may remove the finalizer: kubectl edit pod {pod}",
    Why.TERMINATING: "its Job replaces it after it has ended; if its node's machine is off for good: "
    "kubectl delete node {node}",
    Why.FAILED: "its Job replaces it; if that stays: kubectl describe pod {pod}",
    Why.SUCCEEDED: "a completed Pod cannot restart in place: the controller recreates its Job",
    Why.IMAGE: "correct the image's name or the pull secret: kubectl describe pod {pod}",
    Why.CONFIG: "create the ConfigMap, Secret or volume that it refers to: kubectl describe pod {pod}",
    Why.INIT_FAILED: "read its log, and correct what it does: kubectl logs {log}",
    Why.CRASHING: "read its last log: kubectl logs {log}",
    Why.NOT_FOUND: "correct the command or the image: kubectl describe pod {pod}",
    Why.AGENT_REFUSES: "check the manifest with inplace lint, and read the agent's log: kubectl logs {log}",
    Why.RESTARTING: "wait; if this stays, check its node's kubelet: kubectl describe pod {pod}",
    Why.CREATING: "wait; if this stays, check volumes, network and image pull: kubectl describe pod {pod}",
    Why.NO_AGENT: "if it was annotated while it ran, nothing: the next failure recreates its Pods, and the new ones "
    "have an agent. Else the controller has no --agent-image, or --agent-opt-in and neither the JobSet nor its "
    "namespace says inplace.dev/agent: on, or its Event AgentNotAdded says why; recreate the JobSet when "
    "inplace lint -f FILE --cluster finds nothing",
    Why.SILENT: "wait some seconds; if this stays, read its agent's log (no rights? no API server?): "
    "kubectl logs {pod} --all-containers --ignore-errors",
    Why.AHEAD: "a person wrote the annotation, or the status was lost; if this stays: kubectl delete pod {pod}",
    Why.UNTOLD: f"wait a second; if this stays, see whether the controller runs: {CONTROLLER_PODS}",
    Why.BEHIND: "wait some seconds; if this stays, read its agent's log: "
    "kubectl logs {pod} --all-containers --ignore-errors",
}


@record
class Obstacle:
    """Something that keeps the JobSet from training, or from training well.

    Args:
        kind: one word, for programs.
        pods: names, where it is about Pods.
        advice: what to do.
    """

    kind: str
    text: str
    advice: str
    pods: tuple[str, ...] = ()


@record
class Queued:
    """What is known of a suspended JobSet's queue.

    Args:
        queue: the LocalQueue that its label names; "" where only its owner has one.
        workload: the Workload's name; "" for none.
        said: what the Workload waits for, in Kueue's words.
    """

    queue: str
    workload: str = ""
    said: str = ""


def log_advice(failure: Mapping[str, Any] | None, pods: Iterable[PodFact], jobset: str, namespace: str) -> str:
    """Return the command while the Pod is there; kubelet deletes the logs of a Pod with the Pod."""
    name = str((failure or {}).get("pod") or "")
    if failure is None or not name:
        return "find the log of the worker that failed first where this cluster collects logs"
    found = next((pod for pod in pods if pod.name == name), None)
    if found is None:
        return f"Pod {name} is gone with its log: look for it where this cluster collects logs"
    when = "its Pod is being deleted: read its log now" if found.is_leaving else "read its log"
    return f"{when}: inplace logs {jobset} -n {namespace}"


DEADLINE: Final = "DeadlineExceeded"  # the Job controller's reason, of its condition and its Event
START_ERROR: Final = 128  # containerd's exit code of a container whose program cannot be started
ENDED_CONTAINER: Final = re.compile(r"container (?P<name>\S+) exited with (?P<code>\d+)")  # str(Failure)


def failed_job(state: GroupState) -> str:
    """Return the name of the Job whose failure ended the JobSet, "" where no condition names one."""
    message = (state.conditions or {}).get("Failed", {}).get("message", "")
    return message.rpartition("(first failed job: ")[2].rstrip(")") if "(first failed job: " in message else ""


def why_failed(
    state: GroupState, condition: Mapping[str, str], job_events: Iterable[Event], pods: Iterable[PodFact] = ()
) -> Obstacle:
    """Return why it failed, for good.

    Args:
        state: how it stands.
        condition: Failed.
        job_events: of the Job that its message names.
        pods: those that are left.
    """
    reason, message = condition.get("reason", ""), condition.get("message", "")
    if any(event.reason == DEADLINE for event in job_events):
        text = f"{DEADLINE}: Job {failed_job(state)} was active for longer than its activeDeadlineSeconds"
        advice = "a restart in place keeps the Job, so its deadline is for the whole run: raise it, or remove it"
        return Obstacle(DEADLINE, text, advice)
    if BEFORE_JOINING in message:
        return _of_never_joined(state, message)
    if reason != "ReachedMaxRestarts":
        job = failed_job(state)
        look = f"see what failed (kubectl describe job {job} -n {state.namespace}); " if job else ""
        return Obstacle(reason or "Failed", message, f"{look}remove the cause, and recreate the JobSet")
    last = state.last.first_failure if state.last is not None else None
    cause = f"; the last failure was {failure_text(last)}" if last else ""
    text = f"maxRestarts is {state.allowed}, and one more failure happened{cause}"
    if state.jobset is not None and (again := repeats_text(history_of(state.jobset.status))):
        text += f"; {again} (inplace history {state.name} -n {state.namespace})"
    if state.last is not None and state.last.trigger == Trigger.POD_LOST.value:
        look = f"kubectl get events -n {state.namespace} --field-selector involvedObject.kind=Pod"
        return Obstacle(reason, text, f"find out what deletes its Pods ({look}), and recreate the JobSet")
    log = log_advice(last, pods, state.name, state.namespace)
    advice = f"{log}; correct the cause of the workers' end, and recreate the JobSet"
    return Obstacle(reason, text, advice)


def _of_never_joined(state: GroupState, message: str) -> Obstacle:
    """Say which container ended before its Pod joined, and what the template lets it start: the Pod is gone."""
    found = ENDED_CONTAINER.search(message)
    advice = "mend what that container starts with, and create the JobSet again"
    if found is not None and state.jobset is not None:
        name, code = found["name"], int(found["code"])
        if code in (NOT_EXECUTABLE, NOT_FOUND, START_ERROR):
            program = _program(state.jobset, name, code) or "such program"
            advice = f"the image has no {program} (container {name}): correct the command or the image"
    return Obstacle("NeverJoined", message, advice)


def _program(jobset: JobSet, container: str, code: int) -> str:
    """Return what a container could not start: its own program, or the worker's behind a supervisor; "" for unknown."""
    every = (one for member in members(jobset.raw) for one in member.every_container)
    for one in every:
        words = one.words
        if one.name == container and words:
            if code != START_ERROR and agent_arguments(words) and "--" in words[:-1]:
                return words[words.index("--") + 1]
            return words[0] if one.raw.get("command") else ""
    return ""
