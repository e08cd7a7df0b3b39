"""
What keeps a JobSet from training, and what to do: for each reason for which a group waits a sentence, with the command.

`{pod}`, `{job}` and `{log}` hold the namespace too, so that a command works as it stands. A node is deleted only once
its machine is off: the API server then lets other Pods take its Pods' places, and two workers of a slot must never run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.straggler import Why
from inplace.common.bare.record import record

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
