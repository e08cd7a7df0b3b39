"""The plan while it is being made, and when it is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from common import wire
from common.kube.client import KubeObject
from controller import last_restart
from controller.causes import Cause, Failure, Trigger
from controller.conditions import Condition, is_true, set_condition
from controller.jobs import build_job
from controller.jobset import JobSet
from controller.jobset_spec import ReplicatedJob
from controller.kinds import Job, Pod
from controller.observed import Buckets, Observed
from controller.order import order_of
from controller.scopes import Scope

COUNTERS = "replicatedJobsStatus"
COUNTERS_HOLD_S = 0.2  # Jobs change in bursts; one status write for a burst
LOOK_AGAIN_S_MIN = 0.01
COUNTERS_HOLD_RESTART_S = 5.0  # every status write reaches N agents, which are busy with restarting


@dataclass(frozen=True, slots=True, match_args=False, eq=False)
class CreateJob:
    """Create the Job of one place; it is built when its turn comes, so that a plan for 10,000 stays small.

    Two are equal when they create the same: the JobSets may be two versions, or spelled in two ways.
    """

    __match_args__: ClassVar = ("manifest",)

    jobset: JobSet = field(repr=False)
    job: ReplicatedJob = field(repr=False)
    index: int

    @property
    def name(self) -> str:
        """Return the Job's name."""
        return self.jobset.job_name(self.job.name, self.index)

    @property
    def manifest(self) -> KubeObject:
        """Build the Job."""
        return build_job(self.jobset, self.job, self.index)

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

    name: str
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """Set spec.suspend of this very Job."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True, match_args=False)
class ResumeJob:
    """Let this very Job run, with its place's pod template as far as a resume may change it."""

    __match_args__: ClassVar = ("name", "uid", "template")

    name: str
    uid: str
    place: CreateJob

    @property
    def template(self) -> KubeObject:
        """Build the pod template."""
        template: KubeObject = self.place.manifest["spec"]["template"]
        return template


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
class CreateClaim:
    """Create a PersistentVolumeClaim."""

    manifest: KubeObject


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


Action = (
    CreateJob | DeleteJob | SuspendJob | ResumeJob | ResizeJob | LiftGate | CreateService | CreateClaim | DeleteJobSet
)


@dataclass(frozen=True, slots=True)
class Note:
    """An Event about the JobSet."""

    reason: str
    message: str
    warning: bool = False


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
        whose barrier missed its deadline, how many Jobs are recreated for that.
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

    @property
    def is_urgent(self) -> bool:
        """Say whether the status must be written at once: something other than counters changes."""
        return self.urgent or any(_is_news(name, value) for name, value in self.status.items())


class Draft:
    """Collects what the steps of one pass decide."""

    def __init__(self, observed: Observed) -> None:
        self.observed = observed
        self.jobset: JobSet = observed.jobset
        self.buckets = Buckets.of(observed)
        self.order = order_of(self.jobset, self.buckets)
        self.status: dict[str, Any] = dict(observed.jobset.status)
        self.hold_s = COUNTERS_HOLD_S
        self.is_urgent = False
        self.may_create_jobs = True
        # Scopes whose epoch ends although no Pod announces another: somebody asked for it, or they shrink.
        self.deprecating: set[str] = set()
        self.causes: dict[str, Cause] = dict(observed.causes)
        self.overdue: dict[str, int] = {}
        self.requeue_after_s: float | None = None
        self._actions: list[Action] = []
        self._notes: list[Note] = []
        self._warnings: list[Note] = []

    def add(self, action: Action) -> None:
        """Plan an action."""
        self._actions.append(action)

    def delete(self, job: Job, why: str) -> None:
        """Plan to delete a Job, unless that is under way."""
        if not job.is_leaving:
            self.add(DeleteJob(job.metadata.name, job.metadata.uid, why))

    def set(self, condition: Condition, *, quietly: bool = False) -> None:
        """Set a condition, with an Event about the change unless another one tells of it."""
        old = list(self.status.get("conditions") or ())
        changed = set_condition(old, condition, self.observed.now, self.jobset.generation)
        if changed is not None:
            self.status["conditions"] = changed
            if not quietly:
                self.note(condition.reason, condition.message, warning=condition.warning)

    def is_true(self, kind: str) -> bool:
        """Say whether a condition will be True."""
        return is_true(self.status.get("conditions") or [], kind)

    def blame(self, scope: Scope, trigger: Trigger, failure: Failure | None = None, request: str = "") -> None:
        """Note that this pass brings about the next restart of a scope, whatever was seen before."""
        now = self.observed.now_micro or self.observed.now
        seen = self.causes.get(scope.name, Cause(trigger, now))
        if scope.synced == 0 or (scope.name in self.causes and seen.trigger is trigger):
            return
        cause = replace(seen, trigger=trigger, failure=seen.failure or failure, request=request)
        self.causes[scope.name] = cause
        self.status[wire.LAST_GROUP_RESTART] = last_restart.begun(self.status, scope, cause, now)

    @property
    def is_written_anyway(self) -> bool:
        """Say whether the status will be written at once, whatever else is said in it."""
        old = self.jobset.status
        return any(_is_news(name, value) and old.get(name) != value for name, value in self.status.items())

    def look_again(self, after_s: float) -> None:
        """Ask for another pass by then, but not at once: what is left of a wait may be a rounding error."""
        after_s = max(after_s, LOOK_AGAIN_S_MIN)
        self.requeue_after_s = after_s if self.requeue_after_s is None else min(after_s, self.requeue_after_s)

    def turn_false(self, kind: str) -> None:
        """Turn a condition False that another one contradicts; its words stay, and the other one's Event is enough.

        One that an earlier step of this pass brought up was never told, and is dropped.
        """
        if not self.is_true(kind):
            return
        told = {old.get("type") for old in self.jobset.status.get("conditions") or ()}
        changes = {"status": "False", "lastTransitionTime": self.observed.now}
        self.status["conditions"] = [
            dict(old) | changes if old.get("type") == kind else old
            for old in self.status["conditions"]
            if old.get("type") != kind or kind in told
        ]

    def note(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Emit an Event once the status is written."""
        self._notes.append(Note(reason, message, warning))

    def warn(self, reason: str, message: str) -> None:
        """Emit a Warning at once, whatever becomes of the status."""
        self._warnings.append(Note(reason, message, warning=True))

    def finish(self) -> Plan:
        """Return the plan."""
        old = self.jobset.status
        changes = {name: value for name, value in self.status.items() if name not in old or old[name] != value}
        return Plan(
            status=changes,
            actions=tuple(self._wanted_actions()),
            notes=tuple(self._notes),
            warnings=tuple(self._warnings),
            hold_s=self.hold_s,
            urgent=self.is_urgent,
            expected=self.order.expected,
            left=frozenset(self.jobset.places[job.metadata.name] for job in self.buckets.left),
            requeue_after_s=self.requeue_after_s,
            causes=self.causes,
            overdue=self.overdue,
        )

    def _wanted_actions(self) -> Iterator[Action]:
        """Yield the actions, but none for a Job that another step deletes."""
        deleted = {action.uid for action in self._actions if isinstance(action, DeleteJob)}
        for action in self._actions:
            if not (isinstance(action, SuspendJob | ResumeJob | ResizeJob) and action.uid in deleted):
                yield action


def _is_news(name: str, value: object) -> bool:
    """Say whether a field of the status that changes is more than a counter."""
    return name != COUNTERS and (name, value) != ("restarts", 0)
