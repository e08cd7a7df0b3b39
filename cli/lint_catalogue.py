"""Every rule of `inplace lint`: its severity, and why it is one. docs/manifests.md shows this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Args:
        severity: an error breaks the restart or its safety; a warning costs time or works by luck.
        why: what goes wrong otherwise.
    """

    severity: Severity
    why: str


def _error(why: str) -> Rule:
    return Rule("error", why)


def _warning(why: str) -> Rule:
    return Rule("warning", why)


RULES: Final[Mapping[str, Rule]] = {
    # The JobSet and its Jobs: cli/lint_jobset.py
    "restart-strategy": _warning("the agents lift their barrier at once and restart nothing under another strategy"),
    "disabled": _warning("the annotation switches in-place restart off: agents lift their barrier at once"),
    "max-restarts": _warning("after that many restarts the next failure fails the JobSet"),
    "unreachable-rule": _warning("the first rule that matches decides; one without conditions matches every failure"),
    "rules-without-failures": _warning(
        "failure rules are about failed Jobs, and with backoffLimit 2147483647 only podFailurePolicy or "
        "activeDeadlineSeconds fail one"
    ),
    "spec-problem": _error("the controller cannot follow this part of the spec, and says so in condition SpecProblem"),
    "admission": _error("the API server refuses the JobSet, or the Jobs that are made of it"),
    "backoff-limit": _error("a Pod that fails must be replaced; with a limit it fails its Job, and all is recreated"),
    "pod-replacement-policy": _error(
        "a replacement that starts beside the Pod it replaces is a second Pod in its slot"
    ),
    "completions": _error("the barrier waits for all Pods of a Job at once"),
    "completion-mode": _error("the barrier counts Pods by their completion index"),
    "backoff-limit-per-index": _error(
        "an index that failed for good is never replaced, and the barrier waits for ever"
    ),
    "pod-failure-policy": _warning("a container that restarts its Pod in place never fails it: the rule sees nothing"),
    "startup-order": _warning(
        "who waits for Ready joins by a group restart, which is not counted (docs/adr/0022); upstream's controller "
        "waits at the barrier for ever"
    ),
    "exclusive-topology": _warning("the annotation has no effect this way"),
    # The Pod: cli/lint_pod.py
    "agent-missing": _error("without an agent nobody announces the Pod, and the barrier waits for it for ever"),
    "agent-twice": _error("two agents of one Pod announce over each other"),
    "agent-placement": _error(
        "a sidecar is an init container with restartPolicy Always: only kubelet's order puts its barrier before workers"
    ),
    "agent-order": _warning("what starts behind the agent begins when the barrier has lifted, and workers wait for it"),
    "pod-restart-policy": _error("a Job counts restarts of containers under OnFailure, and fails at its backoffLimit"),
    "service-account": _warning("the default account has no rights, and what it is given, every Pod gets"),
    "service-account-name": _warning(
        "deploy/admission restricts accounts named inplace-agent or inplace-agent-SUFFIX, and no other"
    ),
    "service-account-token": _error("the agent talks to the API server with the Pod's token"),
    "service-account-rights": _error("the agent lists and watches its JobSet and patches its Pod"),
    "termination-grace": _warning(
        "a Pod that is deleted is replaced once it is gone (podReplacementPolicy Failed); until then the group waits"
    ),
    "pre-stop": _warning("kubelet runs no preStop hook when it restarts all containers of a Pod"),
    "shared-processes": _warning(
        "the announcement promises that no process of the old epoch is left; without a process namespace of its own "
        "that depends on the container runtime"
    ),
    "host-network": _warning("two Pods of one node cannot both listen on the barrier's port"),
    "image-pull": _warning("each restart of the container asks the registry again, from every node at once"),
    "env-text": _error("a variable's value is a text; the API server refuses the Pod, and the Job makes none"),
    "rules-without-policy": _error("restartPolicyRules need a restartPolicy beside them, or the Pod is refused"),
    # Containers: cli/lint_agent.py, cli/lint_worker.py
    "agent-restart-rules": _error(
        "an agent that comes back alone announces that the old worker is gone while it still runs (agent/exit_code.py)"
    ),
    "worker-restarts-alone": _error("a worker that starts again alone runs twice in one epoch"),
    "worker-success": _error("a worker that is done restarts its group for ever"),
    "worker-recreated": _warning(
        "a worker that fails fails its Pod, and recreating it is what in-place restart avoids"
    ),
    "worker-wait": _error("`inplace-agent wait` asks nobody, and the worker waits for ever"),
    "worker-start": _warning(
        "kubelet may take a restarted sidecar for started before its barrier lifted (kubernetes #141155)"
    ),
    "worker-file": _error("the worker's command is a file that nobody leaves there"),
    "startup-probe": _error("the startup probe is the barrier: without it the worker starts at once"),
    "startup-probe-target": _error("the probe must ask the agent: elsewhere it never succeeds, or too early"),
    "startup-probe-patience": _warning("the group waits at the barrier for its last Pod, and a node may take a day"),
    "startup-probe-period": _warning("the worker starts up to a whole period after the barrier has lifted"),
    "startup-probe-hold": _warning("kubelet hangs up before the agent answers, and asks again"),
    "liveness-probe": _error(
        "kubelet may take the agent that a liveness probe restarted for started before its barrier lifted "
        "(kubernetes #141155), and the agent's own watch needs no probe"
    ),
    "agent-command": _error("the agent refuses its command line and ends with exit code 2, again and again"),
    "agent-env": _error("the agent refuses its environment and ends with exit code 2, again and again"),
    "agent-env-source": _error("the variable must say what the Pod's own metadata says"),
    "agent-env-recommended": _warning("without it the agent works, but guards less well or costs one request more"),
    "restart-scope": _error("without it the agent finds no epochs of its own in the status of a divided JobSet"),
    "epoch-file": _warning(
        "kubelet's view of the last announcement may lag; a file on an emptyDir cannot (docs/adr/0007)"
    ),
    "epoch-file-volume": _error("the last announcement must outlive the containers and go with the Pod"),
    "herd": _warning("more than 300 agents at once overflow one account's queue in the API server (docs/adr/0010)"),
    "port-conflict": _error("the containers of a Pod share its address, and the barrier's port is the agent's"),
    # The cluster: cli/lint_cluster.py, cli/lint_nodes.py
    "cluster-unknown": _warning("what could not be asked may be wrong"),
    "server-version": _error("older servers do not have what the manifest needs"),
    "crd": _error("without the definition there are no JobSets"),
    "crd-columns": _warning("agents read whole objects, five to ten kB each, instead of rows of 280 bytes"),
    "gates": _error("the server drops or refuses restartPolicyRules when a feature gate is off"),
    "namespace": _error("the JobSet's Pods cannot be made"),
    "pod-refused": _error("the Job controller will be refused its Pods, and only its Events say so"),
    "pod-security": _error("the namespace's Pod Security level forbids Pods of this template"),
    "account-missing": _error("the Job controller will be refused its Pods"),
    "account-rights": _error("the agent lists and watches its JobSet and patches its Pod"),
    "admission-policy": _warning(
        "without it mistakes are found late, or an agent's token may change more than the agent ever does"
    ),
    "flow-schema": _warning("more than 300 agents at once overflow one account's queue in the API server"),
    "controller": _warning("without a controller nothing happens to the JobSet"),
    "no-nodes": _warning("no node takes the Pods"),
    "node-features": _error("the scheduler leaves Pods with RestartAllContainers rules Pending"),
    "node-features-some": _warning("the scheduler puts Pods with RestartAllContainers rules on the other nodes only"),
    "kubelet-bug": _warning("a known bug of the kubelets in this cluster touches this manifest"),
}
