"""Every rule of `inplace lint` with its severity and its reason; docs/lint.md shows this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class LintRule:
    """One rule.

    Args:
        severity: an error breaks the restart or its safety; a warning costs time, or may break it.
        why: what goes wrong otherwise.
    """

    severity: Severity
    why: str


def _error(why: str) -> LintRule:
    return LintRule("error", why)


def _warning(why: str) -> LintRule:
    return LintRule("warning", why)


RULES: Final[Mapping[str, LintRule]] = {
    # The JobSet and its Jobs: cli/lint/jobset.py
    "not-in-place": _warning("agents lift their barrier at once and restart nothing"),
    "max-restarts": _warning("after that number of restarts the next failure fails the JobSet"),
    "unreachable-rule": _warning("no failure ever comes to this rule: it never acts"),
    "spec-problem": _error("the controller cannot use this part of the spec; its condition SpecProblem says so"),
    "unexpanded-variable": _error(
        "the API server takes the text as it stands, and refuses it or looks for such a name"
    ),
    "runtime-unknown": _warning(
        "a TrainJob names the runtime that has the Pods: without it none of them can be judged"
    ),
    "trainer-annotation": _error(
        "Trainer gives a JobSet the annotations of its runtime's template, and no annotations of TrainJob and runtime"
    ),
    "no-effect": _warning("it is written and changes nothing, and no other program says so"),
    "admission": _error("the API server refuses the JobSet or its Jobs"),
    "startup-order": _warning(
        "a replicatedJob that waits for Ready joins later by an uncounted group restart (docs/adr/0023); under "
        "upstream's controller the barrier waits for ever"
    ),
    # The Pod: cli/lint/pod.py
    "agent-not-added": _error("the controller makes the Job without an agent, so its Pods do not restart in place"),
    "agent-missing": _error("without an agent the Pod never announces, and the barrier waits for it for ever"),
    "agent-twice": _error("two agents in one Pod overwrite each other's announcements"),
    # What the controller would make otherwise: cli/lint/difference.py; each piece has its reason in cli/lint/pieces.py
    "template-broken": _error("a piece of the template differs so that the restart does not work, or is not safe"),
    "template-differs": _warning(
        "a piece of the template differs so that the restart works, and protects less or takes longer"
    ),
    "service-account": _warning(
        "the default account has no rights, and rights for it go to every Pod of the namespace"
    ),
    "service-account-name": _warning(
        "deploy/admission restricts accounts named inplace-agent or inplace-agent-SUFFIX, and those bound to "
        "ClusterRole inplace-agent; by another role an account may change every Pod of the namespace"
    ),
    "service-account-token": _error("the agent talks to the API server with the Pod's token"),
    "token-readable": _warning(
        "with the agent's token, training code can announce for its Pod; only the agent needs it"
    ),
    "termination-grace": _warning(
        "a deleted Pod is replaced only after it has ended (podReplacementPolicy Failed), and the group waits so long"
    ),
    "pre-stop": _warning("kubelet runs no preStop hook when it restarts all containers of a Pod"),
    "shared-processes": _warning(
        "an announcement promises that no process of the old epoch is left; if containers share processes, that "
        "depends on the container runtime"
    ),
    "host-network": _warning("two Pods on one node cannot both listen on the barrier's port"),
    "active-deadline": _warning(
        "restarts that recreate Jobs begin this time again, restarts in place do not: it bounds the whole run"
    ),
    "init-not-repeatable": _warning(
        "new containers run init containers again over kept volumes; one that fails then ends the Pod"
    ),
    "fuse-sidecar": _warning(
        "its sidecar cannot mount again when kubelet restarts it; the workers then see no file of the volume"
    ),
    "pod-class": _warning(
        "with this container the Pod is Burstable: the worker loses its exclusive cores, and is killed earlier when "
        "memory is short"
    ),
    "queue-uncounted": _warning(
        "a queue admits what the JobSet says; on nodes that the workers fill, Pods with agents stay Pending"
    ),
    "image-pull": _warning("at each restart all nodes ask the registry at the same time"),
    # Containers: cli/lint/agent.py
    "worker-start": _warning(
        "kubelet may consider a restarted sidecar started before its barrier lifted (kubernetes #141155)"
    ),
    "guard-epoch": _warning(
        "a guarded worker's container is made before its Pod announces, so the variable holds the last epoch; the "
        "guard sets INPLACE_EPOCH"
    ),
    "worker-probe": _warning(
        "kubelet kills a worker that does not answer while it waits at the barrier or loads: a restart in place begins "
        "no startup probe again"
    ),
    "agent-command": _error("agent or guard refuses its command line and ends with exit code 2 at every start"),
    "agent-env": _error("the agent refuses its environment and ends with exit code 2 at every start"),
    # The watchdog: cli/lint/agent_policies.py
    "stall-unwatched": _error(
        "no program restarts the group when a worker hangs, and an agent may refuse such a setting"
    ),
    "stall-limits": _warning(
        "a first step loads and compiles, and an evaluation or a checkpoint outside inplace.busy takes longer; below "
        "the step time itself agents log stall_limit_too_short after three steps, and use twice the fastest one"
    ),
    # What an agent promises: cli/lint/agent_policies.py
    "save-grace": _warning("kubelet kills a Pod that is drained before its worker had its time to save"),
    "check-deadline": _warning("the barrier's deadline is over while Pods still wait for their checks"),
    "fence": _error(
        "the agent cannot promise when its worker ends: it refuses the setting, or never lifts its barrier"
    ),
    # PyTorch's launcher: cli/lint/pod.py
    "torchrun-restarts": _warning(
        "torchrun then starts its own Pod's workers again in the old epoch, and the group learns of the failure "
        "only when they fail once more (docs/with-pytorch.md)"
    ),
    "port-conflict": _error("the containers of a Pod share one IP address, and the agent needs the barrier's port"),
    # The cluster: cli/lint/cluster.py, cli/lint/facts.py
    "cluster-unknown": _warning("lint could not read this from the cluster; it may be wrong"),
    "server-version": _error("an older API server lacks a feature that the manifest needs"),
    "crd": _error("without the CRD the API server knows no JobSets"),
    "crd-columns": _warning("agents read whole objects of 5 to 10 kB instead of rows of 290 bytes"),
    "gates": _error("the server drops or refuses restartPolicyRules when a feature gate is off"),
    "namespace": _error("the JobSet's Pods cannot be created"),
    "pod-refused": _error("the API server will refuse the Pods, and only the Job's Events will say so"),
    "pod-security": _error("the namespace's Pod Security level forbids Pods of this template"),
    "account-missing": _error("the API server will refuse the Pods"),
    "account-rights": _error("the agent lists and watches its JobSet and patches its Pod"),
    "admission-policy": _warning(
        "without it mistakes are found late, or an agent's token allows more than the agent needs"
    ),
    "pod-webhook": _warning(
        "each announcement asks the webhook, and while its server is away no group restarts in place"
    ),
    "gang-scheduling": _warning("without Workloads and PodGroups no Pod waits for the others of its gang"),
    "flow-schema": _warning("more than 300 agents at once overflow one account's queue in the API server"),
    "controller": _warning("without a controller nothing acts on the JobSet"),
    "agent-by-controller": _error(
        "the controller of this cluster adds the agent only where it is asked to, and the manifest has none"
    ),
    "no-nodes": _warning("no node accepts the Pods"),
    "node-features": _error("no node supports RestartAllContainers rules, so the Pods stay Pending"),
    "node-features-some": _warning("the scheduler uses only the nodes that support RestartAllContainers rules"),
    "kubelet-bug": _warning("a known bug of this cluster's kubelets affects this manifest"),
}
