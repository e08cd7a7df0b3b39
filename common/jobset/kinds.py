"""
The fields of Jobs and Pods that the controller keeps: those that a decision reads.

A user who may create a Pod can put a megabyte into it. Of the fields that are read, the API server lets annotations,
owner references and scheduling gates grow so far. They are cut here, so that a Pod takes some 2 kB.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from inplace.common.jobset.blocked import Blocked, blocked
from inplace.common.jobset.containers import ContainerStatus, InitStatus
from inplace.common.kube.codec import SlimMeta, slim
from inplace.common.wire import names as wire

VALUE_CHARACTERS_MAX: Final = 256  # phases, the longest value that an agent writes, has 160
GATES_MAX: Final = 16  # ours, and a queue's or a quota's or two
HOSTNAME: Final = "kubernetes.io/hostname"


class Owner(msgspec.Struct, frozen=True, gc=False):
    """One ownerReference."""

    kind: str
    uid: str
    controller: bool | None = None


class Condition(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One condition of a Job."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class Keys(msgspec.Struct, frozen=True, gc=False):
    """Some labels or annotations; a value has at most `VALUE_CHARACTERS_MAX` characters, the rest is cut off."""

    def __post_init__(self) -> None:
        """Cut; what need not be cut, as with each event of 5,000 Pods, costs little."""
        for name, value in zip(self.__struct_fields__, msgspec.structs.astuple(self), strict=True):
            if value is not None and len(value) > VALUE_CHARACTERS_MAX:
                msgspec.structs.force_setattr(self, name, value[:VALUE_CHARACTERS_MAX])


class OwnedMeta(SlimMeta, rename="camel", frozen=True, gc=False):
    """Metadata of what a controller owns; of the owners only that one is kept."""

    owner_references: tuple[Owner, ...] | None = None

    def __post_init__(self) -> None:
        """Drop the other owners: an object may name thousands."""
        if self.owner_references is not None and len(self.owner_references) > 1:
            controller = tuple(owner for owner in self.owner_references if owner.controller)
            msgspec.structs.force_setattr(self, "owner_references", controller)


class JobKeys(
    Keys,
    frozen=True,
    gc=False,
    rename={
        "attempt": wire.RESTART_ATTEMPT,
        "job_attempt": wire.JOB_RESTART_ATTEMPT,
        "execution": wire.EXECUTION_ATTEMPT,
        "group_template": wire.GROUP_TEMPLATE,
    },
):
    """The labels (and, with the same value, annotations) of a Job that are read back; the last two are no labels."""

    attempt: str | None = None
    job_attempt: str | None = None
    execution: str | None = None
    group_template: str | None = None


class JobMeta(OwnedMeta, rename="camel", frozen=True, gc=False):
    """Metadata of a Job."""

    labels: JobKeys | None = None
    annotations: JobKeys | None = None


class JobSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Spec of a Job."""

    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class JobStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Status of a Job."""

    active: int | None = None
    ready: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    start_time: str | None = None
    conditions: tuple[Condition, ...] | None = None


class Job(msgspec.Struct, frozen=True, gc=False):
    """A Job, slim."""

    metadata: JobMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def owner_uid(self) -> str | None:
        """Return the UID of the JobSet that controls this Job."""
        return controller_uid(self.metadata.owner_references, wire.KIND)

    @property
    def group_template(self) -> str | None:
        """Return the template of the Workload that its Pods belong to; None for none."""
        return self.metadata.annotations.group_template if self.metadata.annotations is not None else None

    @property
    def is_leaving(self) -> bool:
        """Say whether the Job is being deleted."""
        return self.metadata.deletion_timestamp is not None

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of this type when it is True."""
        for condition in self.status.conditions or ():
            if condition.type == kind and condition.status == "True":
                return condition
        return None


class PodLabels(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={
        "jobset_uid": wire.JOBSET_UID,
        "replicated_job": wire.REPLICATED_JOB_NAME,
        "job_index": wire.JOB_INDEX,
        "completion_index": wire.JOB_COMPLETION_INDEX,
    },
):
    """The labels of a Pod that are read."""

    jobset_uid: str | None = None
    replicated_job: str | None = None
    job_index: str | None = None
    completion_index: str | None = None


class PodAnnotations(
    Keys,
    frozen=True,
    gc=False,
    rename={
        "epoch": wire.EPOCH,
        "attempt": wire.ATTEMPT,
        "completion_index": wire.JOB_COMPLETION_INDEX,
        "phases": wire.PHASES,
        "worker_failed": wire.WORKER_FAILED,
        "last_line": wire.LAST_LINE,
        "notice": wire.NOTICE,
        "fenced_within": wire.FENCED_WITHIN,
        "ran": wire.RAN,
        "index_failures": wire.INDEX_FAILURES,
        "index_failures_ignored": wire.INDEX_FAILURES_IGNORED,
    },
):
    """The annotations of a Pod that are read."""

    epoch: str | None = None
    attempt: str | None = None
    completion_index: str | None = None
    phases: str | None = None
    worker_failed: str | None = None
    last_line: str | None = None
    notice: str | None = None
    fenced_within: str | None = None
    ran: str | None = None
    index_failures: str | None = None
    index_failures_ignored: str | None = None


class PodMeta(OwnedMeta, rename="camel", frozen=True, gc=False):
    """Metadata of a Pod."""

    labels: PodLabels | None = None
    annotations: PodAnnotations | None = None


class Gate(msgspec.Struct, frozen=True, gc=False):
    """One scheduling gate."""

    name: str


class NodeSelector(msgspec.Struct, frozen=True, gc=False, rename={"hostname": HOSTNAME}):
    """The labels by which a Pod asks for a node that are read."""

    hostname: str | None = None


class PodSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Spec of a Pod."""

    node_name: str | None = None
    service_account_name: str | None = None
    scheduling_gates: tuple[Gate, ...] | None = None
    active_deadline_seconds: int | None = None
    node_selector: NodeSelector | None = None

    def __post_init__(self) -> None:
        """Drop the gates of a Pod that has more than anybody uses; it is not for us to lift one then.

        Drop a selector that names no host, too.
        """
        if self.scheduling_gates is not None and len(self.scheduling_gates) > GATES_MAX:
            msgspec.structs.force_setattr(self, "scheduling_gates", None)
        if self.node_selector is not None and self.node_selector.hostname is None:
            msgspec.structs.force_setattr(self, "node_selector", None)

    @property
    def is_pinned(self) -> bool:
        """Say whether the Pod may run on one node only, as Kueue's Topology Aware Scheduling has it."""
        return self.node_selector is not None


class PodCondition(msgspec.Struct, frozen=True, gc=False):
    """One condition of a Pod."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None


KEPT_CONDITIONS: Final = {"PodScheduled": "False", "DisruptionTarget": "True"}
"""Conditions that say why a Pod is not there; of 5,000 Pods that run as they should, none is kept.

Ready=False is kept without a reason: kubelet gives one, and kube-controller-manager, for a node of which it does not
hear, gives none (k8s.io/kubernetes pkg/controller/util/node, MarkPodsNotReady).
"""

_BY_TAINT: Final = "DeletionByTaintManager"  # of DisruptionTarget


class PodStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Status of a Pod."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[InitStatus, ...] | None = None
    conditions: tuple[PodCondition, ...] | None = None

    def __post_init__(self) -> None:
        """Drop the conditions that say nothing, and the init containers that wait for nothing and have not failed.

        Plain loops: this runs for each of the 15,000 events of a restart of 5,000 Pods, and mostly finds nothing.
        """
        telling = None
        for condition in self.conditions or ():
            is_unheard = condition.type == "Ready" and condition.status == "False" and not condition.reason
            if is_unheard or KEPT_CONDITIONS.get(condition.type) == condition.status:
                telling = (*(telling or ()), condition)
        msgspec.structs.force_setattr(self, "conditions", telling)
        kept = None
        for status in self.init_container_statuses or ():
            waiting, ended = status.state.waiting, status.state.terminated
            if (waiting is not None and waiting.reason not in (None, "PodInitializing")) or (ended and ended.exit_code):
                kept = (*(kept or ()), status)
        msgspec.structs.force_setattr(self, "init_container_statuses", kept)

    @property
    def all_statuses(self) -> tuple[InitStatus, ...]:
        """Return all that is kept of the containers, the workers' first."""
        return (*(self.container_statuses or ()), *(self.init_container_statuses or ()))

    @property
    def blocked(self) -> Blocked | None:
        """Return why the first container that kubelet cannot start does not; those that come first, first."""
        for status in (*(self.init_container_statuses or ()), *(self.container_statuses or ())):
            if (waiting := status.state.waiting) is not None and waiting.is_blocked:
                return blocked(status.name, status.image or "", waiting.reason, waiting.message)
        return None

    @property
    def waiting_reason(self) -> str | None:
        """Return what the first container that waits waits for, with its name; those that come first, first."""
        for status in (*(self.init_container_statuses or ()), *(self.container_statuses or ())):
            if status.state.waiting is not None and status.state.waiting.reason:
                return f"{status.state.waiting.reason} of container {status.name}"
        return None

    def condition(self, kind: str) -> PodCondition | None:
        """Return the condition of this type, of those that are kept."""
        return next((one for one in self.conditions or () if one.type == kind), None)


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A Pod, slim."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_disrupted(self) -> bool:
        """Say whether something else than its containers ends the Pod: a deletion, an eviction, its node."""
        status = self.status
        leaving = self.metadata.deletion_timestamp is not None
        return leaving or bool(status.reason) or status.condition("DisruptionTarget") is not None

    @property
    def is_given_up(self) -> bool:
        """Say whether Kubernetes deletes the Pod because it does not hear of its node; nobody there will end it."""
        by = self.status.condition("DisruptionTarget")
        is_evicted = by is not None and by.reason == _BY_TAINT and self.metadata.deletion_timestamp is not None
        return is_evicted and self.status.condition("Ready") is not None

    @property
    def is_gated(self) -> bool:
        """Say whether the gate of exclusive placement holds the Pod back."""
        return self.waits_for(wire.PLACEMENT_GATE)

    def waits_for(self, gate: str) -> bool:
        """Say whether a scheduling gate of this name holds the Pod back."""
        gates = self.spec.scheduling_gates
        return gates is not None and any(one.name == gate for one in gates)

    @property
    def completion_index(self) -> str | None:
        """Return the completion index as it stands there; None for a Pod of a Job that is not Indexed."""
        for keys in (self.metadata.annotations, self.metadata.labels):
            if keys is not None and keys.completion_index is not None:
                return keys.completion_index
        return None

    @property
    def job_uid(self) -> str | None:
        """Return the UID of the Job that controls this Pod."""
        return controller_uid(self.metadata.owner_references, "Job")


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """A Namespace, slim: that it is there is all that is read, of those with the label that is watched."""

    metadata: SlimMeta


class Node(msgspec.Struct, frozen=True, gc=False):
    """A Node, slim: its name is all that is read, of those that are cordoned."""

    metadata: SlimMeta


def controller_uid(owners: tuple[Owner, ...] | None, kind: str) -> str | None:
    """Return the UID of the one owner that is the controller, when it is of this kind."""
    for owner in owners or ():
        if owner.controller and owner.kind == kind:
            return owner.uid
    return None


JOB_CODEC: Final = slim(Job)
POD_CODEC: Final = slim(Pod)
NAMESPACE_CODEC: Final = slim(Namespace)
NODE_CODEC: Final = slim(Node)


# What the controller keeps of a PersistentVolumeClaim.


class PersistentVolumeClaim(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim, slim: that it exists, whose it is, and its spec as it is stored, to compare."""

    metadata: OwnedMeta
    spec: dict[str, Any] = {}

    @property
    def owner_uid(self) -> str | None:
        """Return the UID of the JobSet that controls this claim."""
        return controller_uid(self.metadata.owner_references, wire.KIND)


CLAIM_CODEC: Final = slim(PersistentVolumeClaim)
