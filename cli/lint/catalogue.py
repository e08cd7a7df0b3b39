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
    "restart-strategy": _warning("under another strategy the agents lift their barrier at once and restart nothing"),
    "disabled": _warning("the annotation switches in-place restart off: agents lift their barrier at once"),
    "max-restarts": _warning("after that number of restarts the next failure fails the JobSet"),
    "unreachable-rule": _warning(
        "the first matching rule decides, and a rule without conditions matches every failure"
    ),
    "rules-without-failures": _warning(
        "failure rules apply to failed Jobs, and with backoffLimit 2147483647 only podFailurePolicy or "
        "activeDeadlineSeconds fails a Job"
    ),
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
    "annotation-name": _warning("nothing reads an annotation of this name, and nothing says so"),
    "admission": _error("the API server refuses the JobSet or its Jobs"),
    "backoff-limit": _error("a failed Pod must be replaced; with a limit it fails its Job, and all Pods are recreated"),
    "pod-replacement-policy": _error("a new Pod that starts before the old one has ended is a second Pod in its slot"),
    "completions": _error("the barrier waits for all Pods of a Job, so all must run at the same time"),
    "completion-mode": _error("the barrier counts Pods by their completion index"),
    "backoff-limit-per-index": _error(
        "the Job never replaces an index that failed for good, and the barrier waits for ever"
    ),
    "pod-failure-policy": _warning(
        "a container that restarts its Pod in place does not fail the Pod, so the rule never applies"
    ),
    "startup-order": _warning(
        "a replicatedJob that waits for Ready joins later by an uncounted group restart (docs/adr/0023); under "
        "upstream's controller the barrier waits for ever"
    ),
    "exclusive-topology": _warning("the annotation has no effect in this form"),
    # The Pod: cli/lint/pod.py
    "agent-not-added": _error("the controller makes the Job without an agent, so its Pods do not restart in place"),
    "agent-missing": _error("without an agent the Pod never announces, and the barrier waits for it for ever"),
    "agent-twice": _error("two agents in one Pod overwrite each other's announcements"),
    "agent-placement": _error(
        "a sidecar is an init container with restartPolicy Always: only then kubelet starts workers after its barrier"
    ),
    "agent-order": _warning(
        "an init container after the agent runs only when the barrier has lifted, and the workers wait for it"
    ),
    "pod-restart-policy": _error(
        "under OnFailure a Job counts the restarts of containers, and fails at its backoffLimit"
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
    "setting-unread": _error(
        "agent and guard obey their variables: an annotation that these do not read changes nothing (docs/adr/0084)"
    ),
    "service-account-rights": _error("the agent lists and watches its JobSet and patches its Pod"),
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
    "env-text": _error("a variable's value must be a string; otherwise the API server refuses the Pods"),
    "rules-without-policy": _error("the API server refuses restartPolicyRules without a restartPolicy"),
    # Containers: cli/lint/agent.py, cli/lint/worker.py
    "agent-restart-rules": _error(
        "an agent that restarts alone announces that the old worker has ended while it still runs "
        "(agent/settings/exit_code.py)"
    ),
    "supervisor-restarts": _warning(
        "a worker that fails again and again gets the same container each time, also where only a new one helps, as "
        "after the loss of its GPUs (docs/adr/0064)"
    ),
    "worker-restarts-alone": _error("a worker that restarts alone runs twice in one epoch"),
    "worker-success": _error("a worker that ends with success restarts its group again and again"),
    "worker-recreated": _warning("a failing worker fails its Pod, and the Pod must be recreated"),
    "worker-start": _warning(
        "kubelet may consider a restarted sidecar started before its barrier lifted (kubernetes #141155)"
    ),
    "guard-link": _error("guard and agent meet at one socket; if they do not, the worker never starts"),
    "guard-missing": _error("beside guarded workers no startup probe holds this one back: it starts at once"),
    "guard-command": _error("the guard refuses its command line and ends with exit code 2 at every start"),
    "guard-epoch": _warning(
        "a guarded worker's container is made before its Pod announces, so the variable holds the last epoch; the "
        "guard sets INPLACE_EPOCH"
    ),
    "guard-standby": _warning("where the container ends with its worker, no process can wait in it for the next run"),
    "guard-startup-probe": _warning("kubelet starts the worker's container up to a second later than without a probe"),
    "guard-readiness": _warning(
        "the Pod is ready before its barrier lifts; dependsOn, startupPolicy and Services take it for running"
    ),
    "worker-probe": _warning(
        "kubelet kills a worker that does not answer while it waits at the barrier or loads: a restart in place begins "
        "no startup probe again"
    ),
    "worker-file": _error("the worker's command is a file that no container creates"),
    "startup-probe": _error("the startup probe is the barrier: without it the worker starts at once"),
    "startup-probe-target": _error(
        "the probe must ask the agent; any other target never succeeds, or succeeds too early"
    ),
    "startup-probe-patience": _warning(
        "the group waits at the barrier for its last Pod, and a new node may take a day"
    ),
    "startup-probe-period": _warning("the worker starts up to a whole period after the barrier has lifted"),
    "startup-probe-hold": _warning("kubelet closes the connection before the agent answers, and asks again"),
    "liveness-probe": _error(
        "after a liveness probe restarted the agent, kubelet may consider it started before its barrier lifted "
        "(kubernetes #141155); the agent needs no liveness probe"
    ),
    "agent-command": _error("the agent refuses its command line and ends with exit code 2 at every start"),
    "agent-env": _error("the agent refuses its environment and ends with exit code 2 at every start"),
    "agent-env-source": _error("the variable must come from the Pod's own metadata"),
    "agent-env-recommended": _warning("without it the agent works, but protects less, or needs one request more"),
    "epoch-file": _warning(
        "kubelet may give the agent an older announcement; a file on an emptyDir is never behind (docs/adr/0007)"
    ),
    "epoch-file-volume": _error("the file must survive the containers and end with the Pod"),
    "epoch-file-worker": _warning(
        "a worker that can write the agent's memory, or put another socket in the link's place, can hold its group up, "
        "or run on beside the next epoch (docs/adr/0007)"
    ),
    # The watchdog: cli/lint/stall.py
    "stall-unwatched": _error(
        "no program restarts the group when a worker hangs, and an agent may refuse such a setting"
    ),
    "stall-short": _warning(
        "an evaluation or a checkpoint outside inplace.busy takes longer; below the step time itself agents log "
        "stall_limit_too_short after three steps, and use twice the fastest one"
    ),
    "stall-start": _warning("a rank's first step loads and compiles; it takes longer than the others"),
    "no-progress-unwatched": _warning("without a watchdog no Pod tells its steps, so no epoch is judged by them"),
    "restart-on-unwatched": _warning("without a watchdog no agent looks at its ranks, so no Pod tells a notice"),
    # Saving before a planned stop: cli/lint/saving.py
    "save-grace": _warning("kubelet kills a Pod that is drained before its worker had its time to save"),
    # The check before joining: cli/lint/check.py
    "check-restarts": _error("a Pod that fails its check starts again on the same node, again and again"),
    "check-unawaited": _error(
        "the agent announces before the check is over, or waits for ever for one that never comes"
    ),
    "check-deadline": _warning("the barrier's deadline is over while Pods still wait for their checks"),
    # Leases, for a dead node in seconds: cli/lint/fence.py
    "fence-depth": _error("the agent refuses the setting: it ends before its worker, and cannot say when that ends"),
    "fence-grace": _error("the guard's worker outlives what the agent promises, so the agent never lifts its barrier"),
    # PyTorch's launcher: cli/lint/launcher.py
    "torchrun-restarts": _warning(
        "torchrun then starts its own Pod's workers again in the old epoch, and the group learns of the failure "
        "only when they fail once more (docs/with-pytorch.md)"
    ),
    "herd": _warning("more than 300 agents at once overflow one account's queue in the API server (docs/adr/0010)"),
    "port-conflict": _error("the containers of a Pod share one IP address, and the agent needs the barrier's port"),
    # The cluster: cli/lint/cluster.py, cli/lint/nodes.py
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
