"""The plan while the steps of one pass fill it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from inplace.common.jobset import last_restart
from inplace.common.jobset.buckets import Buckets
from inplace.common.jobset.causes import Cause, Failure, Trigger, unix_time
from inplace.common.jobset.conditions import Condition, is_true, set_condition
from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import COUNTERS_HOLD_S, JobSet
from inplace.common.jobset.kinds import Job
from inplace.common.jobset.note import Note
from inplace.common.jobset.pod_groups import PodGroup
from inplace.common.jobset.scopes import Scope
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import (
    Action,
    CreateJob,
    DeleteJob,
    Plan,
    ResizeJob,
    ResumeJob,
    SuspendJob,
    TaintNode,
    is_news,
)
from inplace.controller.plan.observed import Observed
from inplace.controller.plan.order import order_of

LOOK_AGAIN_S_MIN = 0.01
REWORD_S = 30.0  # between two versions of one condition: at 5,000 agents of 300 bytes each 50 kB/s at most
COUNTERS_HOLD_RESTART_S = 5.0  # every status write reaches N agents, which are busy with restarting


class Draft:
    """Collects what the steps of one pass decide."""

    def __init__(self, observed: Observed) -> None:
        self.observed = observed
        self.jobset: JobSet = observed.jobset
        self.buckets = Buckets.of(observed.jobset, observed.jobs, observed.matches)
        self.order = order_of(self.jobset, self.buckets)
        self.status: dict[str, Any] = dict(observed.jobset.status)
        self.hold_s = COUNTERS_HOLD_S
        self.is_urgent = False
        self.may_start_jobs = True  # create them, and resume them
        self.groups: tuple[PodGroup, ...] = ()  # in which the Pods are placed
        # Scopes whose epoch ends although no Pod announces another: a person asked for it, or they shrink.
        self.deprecating: set[str] = set()
        self.causes: dict[str, Cause] = dict(observed.causes)
        self.overdue: dict[str, int] = {}
        self.paused: dict[str, float] = {}
        self.escalation_steps: list[str] = []
        self.taints: list[TaintNode] = []
        self.requeue_after_s: float | None = None
        self.deadline_exceeded = False
        self._carried: dict[str, Any] = {}
        self._actions: list[Action] = []
        self._notes: list[Note] = []
        self._warnings: list[Note] = []

    def add(self, action: Action) -> None:
        """Plan an action."""
        self._actions.append(action)

    def place(self, job: ReplicatedJob, index: int) -> CreateJob:
        """Return the Job of a place, as this pass creates it."""
        group = next((group for group in self.groups if group.has(job, index)), None)
        return CreateJob(self.jobset, job, index, self.execution, group)

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

    def carry(self, name: str, value: Any) -> None:
        """Set a field that is no reason to write the status; it is written with the next field that is one."""
        self._carried[name] = value

    @property
    def now(self) -> str:
        """Return the time, with microseconds where they are known; RFC 3339."""
        return self.observed.now_micro or self.observed.now

    @property
    def now_s(self) -> float:
        """Return the same as Unix time."""
        return unix_time(self.now) or 0.0

    def end_of_epoch(self, scope: Scope) -> last_restart.EpochEnd:
        """Return how the synced epoch of a scope ended, which is over."""
        cause, silent = self.causes.get(scope.name, last_restart.UNSEEN), self.observed.silent.get(scope.name)
        return last_restart.end_of_epoch(self.status, scope, cause, self.now, silent)

    @property
    def execution(self) -> int | None:
        """Return in which execution a Job that this pass creates or resumes begins to run."""
        value = self.status.get(wire.EXECUTION_ATTEMPTS)
        return self._carried.get(wire.EXECUTION_ATTEMPTS) if value is None else int(value)

    def is_true(self, kind: str) -> bool:
        """Say whether a condition will be True."""
        return is_true(self.status.get("conditions") or [], kind)

    def message_of(self, kind: str) -> str:
        """Return what a condition says that is True; "" if it is not."""
        told = self.status.get("conditions") or ()
        return next((str(one.get("message")) for one in told if one.get("type") == kind and self.is_true(kind)), "")

    def may_reword(self, every_s: float = REWORD_S) -> bool:
        """Say whether a condition that stands may get other words: with a write that happens anyway, or rarely."""
        reported_s = self.observed.reported_s
        return self.is_written_anyway or reported_s is None or reported_s >= every_s

    def blame(self, scope: Scope, trigger: Trigger, failure: Failure | None = None, request: str = "") -> None:
        """Note that this pass brings about the next restart of a scope, whatever was seen before.

        What a person asks for has no first failure: a suspension deletes Pods, and so does a smaller size.
        """
        seen = self.causes.get(scope.name, Cause(trigger, self.now))
        if scope.synced == 0 or (scope.name in self.causes and seen.trigger is trigger):
            return
        failed = seen.failure or failure if trigger.is_failure else None
        cause = replace(seen, trigger=trigger, failure=failed, request=request)
        self.causes[scope.name] = cause
        self.status[wire.LAST_GROUP_RESTART] = last_restart.begun(self.status, scope, cause, self.now)

    @property
    def is_written_anyway(self) -> bool:
        """Say whether the status will be written at once, whatever else is said in it."""
        old = self.jobset.status
        return any(is_news(name, value) and old.get(name) != value for name, value in self.status.items())

    def look_again(self, after_s: float) -> None:
        """Ask for another pass by then, but not at once: what is left of a wait may be a rounding error."""
        after_s = max(after_s, LOOK_AGAIN_S_MIN)
        self.requeue_after_s = after_s if self.requeue_after_s is None else min(after_s, self.requeue_after_s)

    def turn_false(self, kind: str, message: str = "") -> None:
        """Turn a condition False that another one contradicts; the other one's Event is enough.

        Its words stay, unless there are better ones by now.

        One that an earlier step of this pass brought up was never told, and is dropped.
        """
        if not self.is_true(kind):
            return
        told = {old.get("type") for old in self.jobset.status.get("conditions") or ()}
        changes = {"status": "False", "lastTransitionTime": self.observed.now}
        if message:
            changes["message"] = message
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
        if changes:
            changes = self._carried | changes
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
            paused=self.paused,
            escalation_steps=tuple(self.escalation_steps),
            taints=tuple(self.taints),
            deadline_exceeded=self.deadline_exceeded,
        )

    def _wanted_actions(self) -> Iterator[Action]:
        """Yield the actions, but none for a Job that another step deletes."""
        deleted = {action.uid for action in self._actions if isinstance(action, DeleteJob)}
        for action in self._actions:
            if not (isinstance(action, SuspendJob | ResumeJob | ResizeJob) and action.uid in deleted):
                yield action
