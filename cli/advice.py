"""What to do about each reason for which a group waits; one sentence, with the command."""

from __future__ import annotations

from typing import Final

from cli.straggler import Why

ADVICE: Final[dict[Why, str]] = {
    Why.MISSING: "see why its Job makes no Pod: kubectl describe job {job}",
    Why.GATED: "whoever set the gate has to lift it; exclusive placement waits for a free topology domain",
    Why.UNSCHEDULABLE: "free or add nodes that fit, or lower what the Pod asks for: kubectl describe pod {pod}",
    Why.UNSCHEDULED: "if this stays, see whether a scheduler runs: kubectl describe pod {pod}",
    Why.NODE_LOST: "if the node does not come back, delete it, for its Pods cannot be deleted otherwise: "
    "kubectl delete node {node}",
    Why.TERMINATING: "it is replaced when it is gone; if its node is dead: kubectl delete node {node}",
    Why.FAILED: "its Job replaces it; if that stays: kubectl describe pod {pod}",
    Why.SUCCEEDED: "a completed Pod cannot restart in place: the controller recreates its Job",
    Why.IMAGE: "mend the image's name or the pull secret: kubectl describe pod {pod}",
    Why.CONFIG: "create what it refers to (ConfigMap, Secret, volume): kubectl describe pod {pod}",
    Why.CRASHING: "see what it said before it ended: kubectl logs {pod} --all-containers --previous",
    Why.AGENT_REFUSES: "the agent says what it cannot use: kubectl logs {pod} --all-containers; check the manifest "
    "with inplace lint",
    Why.RESTARTING: "wait; if this stays, see its node's kubelet: kubectl describe pod {pod}",
    Why.CREATING: "wait; if this stays (volumes, network, a slow pull): kubectl describe pod {pod}",
    Why.SILENT: "see what its agent waits for (rights? the API server?): kubectl logs {pod} --all-containers",
    Why.AHEAD: "somebody wrote the annotation, or the status was lost; if this stays: kubectl delete pod {pod}",
    Why.BEHIND: "see why its agent does not follow: kubectl logs {pod} --all-containers",
}
