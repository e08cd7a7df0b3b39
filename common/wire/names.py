"""
Every name and encoding on the wire, once, with its source.

Two encodings of one protocol exist. The seed design ("In place restart", Tomio, Reddy et al.) counts *epochs* from 1;
upstream JobSet (kubernetes-sigs/jobset, KEP-467, alpha since v0.11) counts *attempts* from 0. They are the same machine
off by one: attempt = epoch - 1. We write both and read whichever is there, so that our agent works under the upstream
controller and the upstream agent under ours.

This module is pure: no I/O, no clock, no third-party import. It is on the agent's start path.
"""

from __future__ import annotations

from collections.abc import Mapping

from inplace.common.bare.typed import Any, Final
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.errors import RemoteProtocolError

# Group, version, kind. Source: jobset api/jobset/v1alpha2.
API_GROUP: Final = "jobset.x-k8s.io"
API_VERSION: Final = "jobset.x-k8s.io/v1alpha2"
KIND: Final = "JobSet"

# Keys written as label AND annotation on Jobs and Pod templates. Source: jobset_types.go constants.
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB_NAME: Final = "jobset.sigs.k8s.io/replicatedjob-name"
REPLICATED_JOB_REPLICAS: Final = "jobset.sigs.k8s.io/replicatedjob-replicas"
GLOBAL_REPLICAS: Final = "jobset.sigs.k8s.io/global-replicas"
JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
JOB_GLOBAL_INDEX: Final = "jobset.sigs.k8s.io/job-global-index"
JOB_KEY: Final = "jobset.sigs.k8s.io/job-key"
RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
JOB_RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/job-restart-attempt"
GROUP_NAME: Final = "jobset.sigs.k8s.io/group-name"
GROUP_REPLICAS: Final = "jobset.sigs.k8s.io/group-replicas"
JOB_GROUP_INDEX: Final = "jobset.sigs.k8s.io/job-group-index"
COORDINATOR: Final = "jobset.sigs.k8s.io/coordinator"
# Annotation only, on Jobs and Pod templates: status.executionAttempts when the Job began to run. Source: KEP-1282.
EXECUTION_ATTEMPT: Final = "jobset.sigs.k8s.io/execution-attempt"
# Source: k8s.io/api/batch/v1 JobCompletionIndexAnnotation; label and annotation of Indexed Jobs' Pods.
JOB_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"

# Exclusive placement. Source: jobset_types.go constants; the gate is ours (docs/adr/0024).
EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR_STRATEGY: Final = "alpha.jobset.sigs.k8s.io/node-selector"
NAMESPACED_JOB: Final = "alpha.jobset.sigs.k8s.io/namespaced-job"
NO_SCHEDULE: Final = "alpha.jobset.sigs.k8s.io/no-schedule"
PLACEMENT_GATE: Final = "inplace.dev/exclusive-placement"

# Annotations of the protocol.
EPOCH: Final = "jobset.sigs.k8s.io/epoch"  # seed, change 1
ATTEMPT: Final = "jobset.sigs.k8s.io/in-place-restart-attempt"  # upstream
# Upstream's, on the JobSet; ours as well on replicatedJobs[].template.metadata: not part of the group. Value ignored.
DISABLE: Final = "jobset.sigs.k8s.io/disable-in-place-restart"

# Annotations of ours, beside the protocol. Only WORKER_FAILED decides something: it deprecates its epoch early.
PHASES: Final = "inplace.dev/phases"  # its grammar is common/wire/phases.py's
WORKER_FAILED: Final = "inplace.dev/worker-failed"  # its grammar is common/wire/worker_failure.py's
LAST_LINE: Final = "inplace.dev/last-line"  # its grammar is common/wire/last_line.py's
NOTICE: Final = "inplace.dev/notice"  # its grammar is common/wire/notice.py's
GROUP_SIZE: Final = "inplace.dev/group-size"  # Pods of the JobSet when this Pod's Job was made
GROUP_OFFSET: Final = "inplace.dev/group-offset"  # Pods of all Jobs before this Pod's Job, in spec order

# What a user writes on a JobSet; common/jobset/settings.py is the table of these keys, with grammar, bounds and words.
RESTART_IN_PLACE: Final = "inplace.dev/restart-in-place"  # at most so often (docs/adr/0090); common/wire/in_place.py
RESTART_SCOPE: Final = "inplace.dev/restart-scope"  # what restarts together; on the Pods: the name of their scope
RESTART: Final = (
    "inplace.dev/restart"  # how: depth, saving, clean containers, start window, kept memory; on a Pod template as well
)
BARRIER: Final = "inplace.dev/barrier"  # how long one may wait (docs/adr/0039)
FAILURES: Final = "inplace.dev/failures"  # what follows failures without progress (docs/adr/0021)
ESCALATION: Final = "inplace.dev/escalation"  # which restart comes after which failure (docs/adr/0021)
STALL: Final = "inplace.dev/stall"  # the watchdog's limits, for agents whose own settings have none (docs/adr/0060)
RESTART_ON: Final = "inplace.dev/restart-on"  # which kinds of notices restart the group (docs/adr/0104)
NODES: Final = "inplace.dev/nodes"  # which nodes Pods leave (docs/adr/0024, docs/adr/0092)
FENCE_AFTER: Final = "inplace.dev/fence-after"  # the length of a lease; on the Pods as well (docs/adr/0072)
MEMBERS: Final = (
    "inplace.dev/members"  # how many Pods train, the others are spares (docs/adr/0107); on the Pods as well
)
AGENT: Final = "inplace.dev/agent"  # whether and how it is added (docs/adr/0088); a Namespace's label as well
AGENT_OFF: Final = "off"
AGENT_ON: Final = "on"  # asked for under the controller's --agent-opt-in

# What a person asks for once, on the JobSet: a restart for each new id, and `,save=SECONDS` behind it asks the workers
# to save first (docs/adr/0039); every worker's stacks, at a Unix time in milliseconds (common/wire/stacks.py).
RESTART_REQUESTED: Final = "inplace.dev/restart-requested"
STACKS_REQUESTED: Final = "inplace.dev/stacks-requested"

# What the controller writes on the Pods of what RESTART says: how deep a group restart goes below a guard, after how
# many failures in a row a Pod gets clean containers (docs/adr/0064); for how many seconds a worker may save before a
# planned stop (docs/adr/0069); over how many seconds a large group spreads its starts (docs/adr/0010).
RESTART_DEPTH: Final = "inplace.dev/restart-depth"
DEPTH_CONTAINERS: Final = "containers"  # kubelet starts every container anew; the default without a guard
DEPTH_PROCESS: Final = "process"  # the guard starts its worker's process anew; the default with one
SAVE_WITHIN: Final = "inplace.dev/save-within"
CLEAN_AFTER: Final = "inplace.dev/clean-after"
START_WINDOW: Final = "inplace.dev/start-window"
KEEP: Final = "inplace.dev/keep"  # the size of the volume in memory that outlives restarts; injection alone reads it

# The scheduling gate of Pods that are told which nodes they avoid (docs/adr/0024). On a Node (docs/adr/0098): the key
# of the taint that lets Kueue move a Pod away from it, of the label by which such nodes are found, and of the
# annotation that says whose taint it is and when it ends.
AVOIDANCE_GATE: Final = "inplace.dev/bad-nodes"
BAD_NODE: Final = "inplace.dev/bad-node"


QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"  # Kueue's label; its queue does not count an agent that is added

# On a Pod, by its agent: within how many seconds its worker has ended, once its epoch is over (docs/adr/0072).
FENCED_WITHIN: Final = "inplace.dev/fenced-within"
RAN: Final = "inplace.dev/ran"  # what ran here, and what it saved; grammar in common/wire/members.py

# The variables by which an agent reads the annotations of its Pod (docs/adr/0084).
SETTINGS: Final = {
    "RESTART_SCOPE": RESTART_SCOPE,
    "RESTART_DEPTH": RESTART_DEPTH,
    "SAVE_WITHIN_S": SAVE_WITHIN,
    "FENCE_AFTER_S": FENCE_AFTER,
    "CLEAN_AFTER_FAILURES": CLEAN_AFTER,
    "START_WINDOW_S": START_WINDOW,
    "MEMBERS": MEMBERS,
}

# Kubernetes', on a Job: the template of its owner's Workload that its Pods belong to. Source: k8s.io/kubernetes
# pkg/apis/scheduling, GroupTemplateNameAnnotation.
GROUP_TEMPLATE: Final = "scheduling.k8s.io/group-template-name"
EVICTION_RESPONDER: Final = "inplace.dev/controller"  # ours, in a Pod's spec.evictionResponders (KEP-4563)
SCHEDULING_API: Final = "scheduling.k8s.io/v1beta1"  # of Workloads and PodGroups

# Status fields of the protocol.
SYNCED_EPOCH: Final = "syncedEpoch"  # seed, change 2
DEPRECATED_EPOCH: Final = "deprecatedEpoch"
CURRENT_ATTEMPT: Final = "currentInPlaceRestartAttempt"  # upstream
PREVIOUS_ATTEMPT: Final = "previousInPlaceRestartAttempt"
MEMBERS_FIELD: Final = "members"  # ours, docs/adr/0107: who runs in syncedEpoch, and from which step it goes on
EXEMPT_EPOCHS: Final = "exemptEpochs"  # ours, docs/adr/0021: how many epochs did not use up maxRestarts by themselves
LAST_EXEMPT_EPOCH: Final = "lastExemptEpoch"  # ours: the newest of them
RESTART_SCOPE_FIELD: Final = "restartScope"  # ours, docs/adr/0023: what restarts together; absent: the whole JobSet
SCOPED_EPOCHS: Final = "scopedEpochs"  # ours: then the epochs stand here, an entry for each scope
LAST_GROUP_RESTART: Final = "lastGroupRestart"  # ours, docs/adr/0039: when, why, and who failed first
NODE_FAILURES: Final = "nodeFailures"  # ours, docs/adr/0024: on which nodes workers failed first, or checks failed
ESCALATION_USES: Final = "escalationUses"  # ours, docs/adr/0021: which step of the escalation was used when
CRASH_LOOP: Final = "crashLoop"  # ours, docs/adr/0021: what came since the last progress, and the wait
RECREATIONS: Final = "recreations"  # ours, docs/adr/0021: of Jobs for a barrier that waits, which no budget counts
LAST_RESTART_REQUEST: Final = "lastRestartRequest"  # ours: the restart-requested that was carried out last
NOTICES: Final = "notices"  # ours, docs/adr/0104: what Pods tell of the workers that run
SAVING: Final = "saving"  # ours, docs/adr/0069: the epoch whose workers are asked to save, and until when

# Status fields of upstream beside the protocol.
TERMINAL_STATE: Final = "terminalState"
TERMINAL_COMPLETED: Final = "Completed"  # its value once the JobSet's work is done
EXECUTION_ATTEMPTS: Final = "executionAttempts"  # KEP-1282: resumes and recreations of all Jobs
START_TIME: Final = "startTime"  # KEP-1186: when the JobSet began to run; spec.activeDeadlineSeconds counts from it

IN_PLACE_RESTART: Final = "InPlaceRestart"  # spec.failurePolicy.restartStrategy
MANAGED_BY_US: Final = "inplace.dev/jobset-controller"  # spec.managedBy that leaves upstream's controller out
MANAGED_BY_BUILT_IN: Final = "jobset.sigs.k8s.io/jobset-controller"  # upstream's reserved spec.managedBy

# Titles of the priority-1 printer columns that the agents' Table watch reads; deploy/crd declares them.
COLUMN_TERMINAL: Final = "TerminalState"  # upstream's own, of priority 0
COLUMN_SYNCED: Final = "SyncedEpoch"
COLUMN_DEPRECATED: Final = "DeprecatedEpoch"
COLUMN_CURRENT: Final = "CurrentAttempt"
COLUMN_PREVIOUS: Final = "PreviousAttempt"
COLUMN_STRATEGY: Final = "RestartStrategy"
COLUMN_RESTART_IN_PLACE: Final = "RestartInPlace"  # the annotation
COLUMN_DISABLED: Final = "InPlaceDisabled"
COLUMN_UID: Final = "UID"
COLUMN_SCOPED: Final = "ScopedEpochs"  # JSON, as the server prints a list
COLUMN_STALL: Final = "Stall"  # the annotation
COLUMN_STACKS: Final = "Stacks"
COLUMN_MEMBERS: Final = "Members"
COLUMN_NOTICES: Final = "Notices"  # JSON, as the server prints a list

# Kubernetes' own, on a Pod of a Job with backoffLimitPerIndex: how often its index failed before it, and how often of
# that the Job's podFailurePolicy ignored it. Its replacement waits 10 s x 2^n (docs/adr/0091).
INDEX_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
INDEX_FAILURES_IGNORED: Final = "batch.kubernetes.io/job-index-ignored-failure-count"

FIELD_MANAGER_AGENT: Final = "inplace-agent"
FIELD_MANAGER_CONTROLLER: Final = "inplace-controller"


def epoch_annotations(epoch: int) -> dict[str, str]:
    """Return the Pod annotations that announce `epoch` (int32 >= 1) in both encodings."""
    return {EPOCH: str(epoch), ATTEMPT: str(epoch - 1)}


def epoch_of_pod(annotations: Mapping[str, str]) -> int | None:
    """Read a Pod's announced epoch; None when it never announced.

    Raises:
        RemoteProtocolError: the annotation is not a decimal int32 in range (its writer is at fault).
    """
    return announced_epoch(annotations.get(EPOCH), annotations.get(ATTEMPT))


def announced_epoch(epoch: str | None, attempt: str | None) -> int | None:
    """Read the two encodings of a Pod's announcement; None when there is neither.

    The seed's wins when both are there: only our agent writes it, and it writes both.

    Raises:
        RemoteProtocolError: it is not a decimal int32 in range (its writer is at fault).
    """
    if epoch is not None:
        return parse_int32(epoch, EPOCH, least=1)
    if attempt is not None:
        return parse_int32(attempt, ATTEMPT, least=0, most=INT32_MAX - 1) + 1
    return None


def epochs_of_status(status: Mapping[str, Any]) -> tuple[int, int]:
    """Read (S, D), the synced and the deprecated epoch of a JobSet status; 0 is never.

    A status with D beyond S contradicts itself: no controller deprecates what never ran, so S was lost. Epoch D is
    over either way: S reads as D, nobody joins an epoch up to D, and the next one is D + 1. docs/adr/0007

    Raises:
        RemoteProtocolError: a field is not an int32.
    """
    synced, deprecated = epochs_as_written(status)
    return max(synced, deprecated), deprecated


def epochs_as_written(status: Mapping[str, Any]) -> tuple[int, int]:
    """Read (S, D) as a status has them, also where D is beyond S. The larger encoding wins: both only grow.

    Raises:
        RemoteProtocolError: a field is not an int32.
    """
    return (
        max(_count(status, SYNCED_EPOCH, 0), _count(status, CURRENT_ATTEMPT, 1)),
        max(_count(status, DEPRECATED_EPOCH, 0), _count(status, PREVIOUS_ATTEMPT, 1)),
    )


def status_of_scope(status: Mapping[str, Any], scope: str) -> dict[str, Any] | None:
    """Return the part of a JobSet's status that is about one scope; None when it is not divided into such scopes.

    Raises:
        RemoteProtocolError: the field is no list of objects with names.
    """
    return {name: entry for name, entry in _scoped(status) if scope}.get(scope)


def scope_names(status: Mapping[str, Any]) -> list[str]:
    """Return the names of the scopes that a JobSet's status has.

    Raises:
        RemoteProtocolError: the field is no list of objects with names.
    """
    return [name for name, _ in _scoped(status)]


def status_of_epochs(synced: int, deprecated: int) -> dict[str, int]:
    """Return the status fields for (synced, deprecated) in both encodings; upstream's are absent for an epoch of 0."""
    status = {SYNCED_EPOCH: synced, DEPRECATED_EPOCH: deprecated}
    if synced > 0:
        status[CURRENT_ATTEMPT] = synced - 1
    if deprecated > 0:
        status[PREVIOUS_ATTEMPT] = deprecated - 1
    return status


def saving_epoch(status: Mapping[str, Any]) -> int | None:
    """Read the epoch whose workers are asked to save, of a status or a scope of it; None for none that can be read."""
    saving = status.get(SAVING)
    epoch = saving.get("epoch") if isinstance(saving, Mapping) else None
    return epoch if isinstance(epoch, int) and 0 < epoch <= INT32_MAX else None


def parse_int32(text: object, name: str, *, least: int, most: int = INT32_MAX) -> int:
    """Read a decimal integer in [least, most]: ASCII digits only, no sign, no space.

    Raises:
        RemoteProtocolError: anything else, with the name, what was expected and what was seen.
    """
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= most:
        return int(text)
    raise RemoteProtocolError(f"{name}: expected an integer from {least} to {most}, saw {str(text)[:40]!r}")


def _scoped(status: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    try:
        return [(entry["name"], entry) for entry in status.get(SCOPED_EPOCHS) or ()]
    except (TypeError, KeyError) as error:
        seen = str(status.get(SCOPED_EPOCHS))[:80]
        raise RemoteProtocolError(f"status.{SCOPED_EPOCHS}: expected a list of scopes, saw {seen!r}") from error


def _count(status: Mapping[str, Any], field: str, offset: int) -> int:
    value = status.get(field)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INT32_MAX - offset:
        raise RemoteProtocolError(f"status.{field}: expected an int32 >= 0, saw {value!r}")
    return value + offset
