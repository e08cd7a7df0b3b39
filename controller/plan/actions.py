"""The actions of a plan: one class for each kind of write, and the other decisions of a pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from inplace.common.jobset.causes import Cause
from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import COUNTERS, JobSet
from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.note import Note
from inplace.common.jobset.pod_groups import PodGroup
from inplace.common.jobset.service import Service
from inplace.common.kube.resources import KubeObject, Resource
from inplace.common.wire import names as wire
from inplace.controller.plan.jobs import build_job


@dataclass(frozen=True, slots=True, match_args=False, eq=False)
class CreateJob:
    """Create the Job of one place; it is built when its turn comes, so that a plan for 10,000 stays small.

    Two are equal when they create the same: the JobSets may be two versions, or spelled in two ways.

    Args:
        execution: in which execution of the JobSet the Job begins to run; None before the first.
        group: in which its Pods are placed; None for each alone.
    """

    __match_args__: ClassVar = ("manifest",)

    jobset: JobSet = field(repr=False)
    job: ReplicatedJob = field(repr=False)
    index: int
    execution: int | None = None
    group: PodGroup | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Return the Job's name."""
        return self.jobset.job_name(self.job.name, self.index)

    @property
    def group_template(self) -> str | None:
        """Return the template of the Workload that its Pods belong to: ours, or one that its author wrote there."""
        return self.job.form.annotations.get(wire.GROUP_TEMPLATE) if self.group is None else self.group.template

    @property
    def manifest(self) -> KubeObject:
        """Build the Job."""
        return build_job(self.jobset, self.job, self.index, self.execution, self.group)

    def __eq__(self, other: object) -> bool:
        return self.manifest == other.manifest if isinstance(other, CreateJob) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete this very Job (by UID), its Pods first."""

    PREVIOUS: ClassVar[str] = "of an earlier restart"
    FINISHED: ClassVar[str] = "the jobset is finished"
    COMPLETED_PODS: ClassVar[str] = "its completed pods cannot restart in place"
    LATE: ClassVar[str] = "its pods did not reach the barrier in time"
    ASTRAY: ClassVar[str] = "its pods wait for nodes of a domain that their leader has left"
    DEADLINE: ClassVar[str] = "the jobset was active for longer than its deadline"
    REGROUPED: ClassVar[str] = "its pods are placed in another group since the jobset was suspended"

    name: str
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """Set spec.suspend of this very Job."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ResumeJob:
    """Let this very Job run, with its place's pod template as far as a resume may change it."""

    name: str
    uid: str
    place: CreateJob


@dataclass(frozen=True, slots=True)
class ResizeJob:
    """Let this very Indexed Job have so many Pods."""

    name: str
    uid: str
    pods: int


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the headless Service."""

    manifest: KubeObject


@dataclass(frozen=True, slots=True)
class UpdateService:
    """Give this very Service (in this version) these ports."""

    service: Service
    ports: tuple[KubeObject, ...]


@dataclass(frozen=True, slots=True)
class BindAgents:
    """Give a ServiceAccount the rights with which agents of this JobSet announce."""

    account: str


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """Create a PersistentVolumeClaim."""

    manifest: KubeObject


@dataclass(frozen=True, slots=True)
class CreateSchedulingObject:
    """Create a Workload or a PodGroup."""

    resource: Resource
    manifest: KubeObject


@dataclass(frozen=True, slots=True)
class ResizeSchedulingObject:
    """Give the gangs of this very Workload or PodGroup (by UID) their size."""

    resource: Resource
    name: str
    uid: str
    spec: KubeObject


@dataclass(frozen=True, slots=True)
class DeleteSchedulingObject:
    """Delete this very Workload or PodGroup (by UID)."""

    resource: Resource
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteJobSet:
    """Delete this very JobSet (by UID), its Jobs first."""

    uid: str


@dataclass(frozen=True, slots=True)
class LiftGate:
    """Let the scheduler see this very Pod (in this version).

    Args:
        selector: node labels that it must be placed by, as pairs.
    """

    pod: Pod
    selector: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AvoidNodes:
    """Let the scheduler see this very Pod (in this version), as far as bad nodes are concerned.

    Args:
        nodes: that it is to avoid where it can.
        topology: the node label whose values are domains; "" for none.
        domains: that it is to avoid where it can.
    """

    pod: Pod
    nodes: tuple[str, ...] = ()
    topology: str = ""
    domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResetIndexBackoff:
    """Let this very Pod (by UID) say no more that its index failed before: its Job replaces it after 10 s then."""

    CHANGE: ClassVar[KubeObject] = dict.fromkeys((wire.INDEX_FAILURES, wire.INDEX_FAILURES_IGNORED))

    pod: Pod


@dataclass(frozen=True, slots=True)
class ReplacePod:
    """Let kubelet end this very Pod (by UID), so that its Job replaces it."""

    DEADLINE_S: ClassVar[int] = 1  # spec.activeDeadlineSeconds, from the Pod's start; the least that the API takes

    pod: Pod


@dataclass(frozen=True, slots=True)
class TaintNode:
    """Taint the node of this Pod, which a queue has pinned to it, and let the Pod leave then.

    Args:
        nodes_max: so many nodes may be tainted for its JobSet.
    """

    pod: Pod
    scope: str
    nodes_max: int


Action = (
    CreateJob
    | DeleteJob
    | SuspendJob
    | ResumeJob
    | ResizeJob
    | LiftGate
    | AvoidNodes
    | ReplacePod
    | ResetIndexBackoff
    | CreateService
    | UpdateService
    | CreateClaim
    | CreateSchedulingObject
    | ResizeSchedulingObject
    | DeleteSchedulingObject
    | BindAgents
    | DeleteJobSet
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    Args:
        status: the fields of the status that should change, whole new values; empty when it says all that it
        should. actions: to perform AFTER the status was written (a conflict there means that they were
        decided on old state). notes: Events to emit once the status is written. warnings: Events to emit at
        once. hold_s: how long a change of counters alone may wait for company. urgent: no change may wait. expected:
        the replicatedJobs that the barrier waits for; known BEFORE the actions are performed. left: their Jobs that it
        does not wait for, (replicatedJob, job index). requeue_after_s: look
        again by then, whether or not something changes. causes: by scope, why it restarts. overdue: by scope
        whose barrier missed its deadline, how many Jobs are recreated for that. paused: by scope
        whose next epoch waits after failures without progress, for how many seconds. escalation_steps: names of those
        that this pass uses. taints: nodes to taint AFTER the status was written.
        deadline_exceeded: the JobSet fails for its activeDeadlineSeconds.
    """

    status: Mapping[str, Any]
    actions: tuple[Action, ...] = ()
    notes: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    hold_s: float = 0.0
    urgent: bool = False
    expected: frozenset[str] = frozenset()
    left: frozenset[tuple[str, int]] = frozenset()
    requeue_after_s: float | None = None
    causes: Mapping[str, Cause] = field(default_factory=dict)
    overdue: Mapping[str, int] = field(default_factory=dict)
    paused: Mapping[str, float] = field(default_factory=dict)
    escalation_steps: tuple[str, ...] = ()
    taints: tuple[TaintNode, ...] = ()
    deadline_exceeded: bool = False

    @property
    def is_urgent(self) -> bool:
        """Say whether the status must be written at once: something other than counters changes."""
        return self.urgent or any(is_news(name, value) for name, value in self.status.items())


def is_news(name: str, value: object) -> bool:
    """Say whether a field of the status that changes is more than a counter, or a field that begins with the first."""
    return name not in (COUNTERS, wire.EXECUTION_ATTEMPTS, wire.START_TIME) and (name, value) != ("restarts", 0)
