"""
Who belongs to whom, by UID, and one ledger for each JobSet that restarts in place.

Every event is O(1): a Pod event touches its ledger and asks it one question, whether the status should
change; only then is the JobSet queued. A Pod counts when the Job that controls it is a current Job of the
JobSet, whatever its labels say. Jobs and Pods may become known in any order: Pods are indexed by the UID of
their Job and read again when the Job appears, changes sides or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from common.epoch.errors import RemoteProtocolError
from common.epoch.ledger import Decision, Ledger
from common.epoch.slot import Shape
from common.kube.client import KubeObject
from common.kube.clock import Clock
from common.kube.informer import Log
from controller.draft import COUNTERS_HOLD_S, Note
from controller.jobset import JobSet, parse_jobset
from controller.kinds import Job, PersistentVolumeClaim, Pod, Service
from controller.metrics import GroupCount
from controller.observed import is_current
from controller.pods import NOWHERE, Reading, read_pod

Key = tuple[str, str]
"""Namespace and name of a JobSet."""

PLACEMENT_HOLD_S = 0.05  # the Pods of a Job appear in a burst; one pass lifts the gates of a burst


@dataclass(slots=True)
class Group:
    """One JobSet with its ledger.

    Args:
        ledger: None where groups do not restart in place.
        expected: the replicatedJobs that the barrier waits for; None while no pass has said so: then all of them,
            with which nothing can be complete too early.
        left: (replicatedJob, job index) of the Jobs in them that it does not wait for: they failed, and stay so.
        due_since_s: since when the ledger asks for another status; None while it does not.
    """

    jobset: JobSet
    ledger: Ledger | None = None
    expected: frozenset[str] | None = None
    left: frozenset[tuple[str, int]] = frozenset()
    due_since_s: float | None = None

    @property
    def shape(self) -> Shape:
        """Return the slots that the barrier waits for."""
        sizes = self.jobset.shape.replicated_jobs
        if self.expected is not None:
            sizes = {name: size for name, size in sizes.items() if name in self.expected}
        return Shape(sizes, frozenset(place for place in self.left if place[0] in sizes))

    @property
    def key(self) -> Key:
        """Return (namespace, name)."""
        return self.jobset.namespace, self.jobset.name

    def decide(self) -> Decision | None:
        """Ask the ledger what the status should say."""
        policy = self.jobset.failure_policy
        if self.ledger is None or policy is None:
            return None
        return self.ledger.decide(restarts_max=policy.restarts_max, uncounted=self.jobset.uncounted_epochs)


@dataclass(slots=True)
class Groups:
    """All JobSets of this controller.

    Args:
        wake: asks for a JobSet to be reconciled, after so many seconds.
        warn: reports what somebody broke on a Pod or a JobSet.
    """

    wake: Callable[[Key, float], None]
    warn: Callable[[KubeObject, Note], None]
    clock: Clock
    log: Log
    _groups: dict[str, Group] = field(default_factory=dict)  # by JobSet UID
    _uids: dict[Key, str] = field(default_factory=dict)
    _jobs: dict[str, Job] = field(default_factory=dict)  # by Job UID
    _jobs_of: dict[str, dict[str, Job]] = field(default_factory=dict)  # by JobSet UID, then by name
    _pods_of: dict[str, dict[str, Pod]] = field(default_factory=dict)  # by Job UID, then by Pod UID
    _home_of: dict[str, str] = field(default_factory=dict)  # Pod UID -> UID of the JobSet that counts it

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def get(self, key: Key) -> Group | None:
        """Return the group of a JobSet; None when there is no such JobSet, or it cannot be read."""
        uid = self._uids.get(key)
        return self._groups.get(uid) if uid is not None else None

    def jobs_of(self, jobset_uid: str) -> Mapping[str, Job]:
        """Return the Jobs that a JobSet owns, by name."""
        return self._jobs_of.get(jobset_uid, {})

    def counts(self) -> Iterator[GroupCount]:
        """Yield how each group stands; for metrics."""
        for group in self:
            ledger, policy, decision = group.ledger, group.jobset.failure_policy, group.decide()
            if ledger is None or policy is None or decision is None or group.jobset.is_finished:
                continue
            pods = ledger.histogram()
            yield GroupCount(
                *group.key,
                expected=ledger.shape.size,
                running=pods.get(ledger.synced, 0) if ledger.synced > ledger.deprecated else 0,
                waiting=sum(count for epoch, count in pods.items() if epoch > ledger.synced),
                synced=ledger.synced,
                deprecated=ledger.deprecated,
                restarts_left=max(0, policy.restarts_max - decision.restarts),
            )

    def jobset_changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Take in a JobSet event."""
        if new is None:
            assert old is not None
            key = (old["metadata"]["namespace"], old["metadata"]["name"])
            self._groups.pop(old["metadata"]["uid"], None)
            self._uids.pop(key, None)
            self.wake(key, 0.0)
            return
        try:
            jobset = parse_jobset(new)
            synced, deprecated = jobset.epochs
        except RemoteProtocolError as error:
            self._groups.pop(new["metadata"]["uid"], None)
            self.log.error("jobset unreadable, left alone until it changes", error=str(error), **_name(new))
            self.warn(new, Note("UnreadableJobSet", f"{error}; nothing is done until it changes", warning=True))
            return
        group = self._groups.get(jobset.uid)
        if group is None:
            group = self._groups[jobset.uid] = Group(jobset)
            self._uids[group.key] = jobset.uid
            self._open_ledger(group, synced, deprecated)
        else:
            self._follow(group, jobset, synced, deprecated)
        self.wake(group.key, 0.0)

    def expect(self, group: Group, expected: frozenset[str], left: frozenset[tuple[str, int]]) -> None:
        """Take in which replicatedJobs the barrier waits for, and which of their Jobs it does not."""
        if (group.expected, group.left) == (expected, left):
            return
        group.expected, group.left = expected, left
        if group.ledger is not None:
            group.ledger.reshape(group.shape)
            self._wake_if_due(group)

    def job_changed(self, old: Job | None, new: Job | None) -> None:
        """Take in a Job event."""
        job = new if new is not None else old
        assert job is not None
        uid, owner = job.metadata.uid, job.owner_uid
        if old is not None and old.owner_uid is not None and (new is None or old.owner_uid != owner):
            self._jobs_of.get(old.owner_uid, {}).pop(job.metadata.name, None)
        if new is None:
            self._jobs.pop(uid, None)
            if owner is not None and not self._jobs_of.get(owner):
                self._jobs_of.pop(owner, None)
        else:
            self._jobs[uid] = new
            if owner is not None:
                self._jobs_of.setdefault(owner, {})[job.metadata.name] = new
        if old is None or new is None or _side(old) != _side(new):
            self._read_pods_of(uid)
        if owner is not None and (group := self._groups.get(owner)) is not None:
            only_counters = old is not None and new is not None and _side(old) == _side(new)
            self.wake(group.key, COUNTERS_HOLD_S if only_counters else 0.0)

    def service_changed(self, old: Service | None, new: Service | None) -> None:
        """Take in a Service event: one of ours that was deleted must be created again."""
        if old is not None and new is None and (group := self._groups.get(old.owner_uid or "")) is not None:
            self.wake(group.key, 0.0)

    def claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        """Take in a claim event: Jobs wait for one that is new; one that is gone is created again, or made room."""
        if old is not None and new is not None:
            return
        claim = old if old is not None else new
        assert claim is not None
        name = claim.metadata.labels.jobset if claim.metadata.labels is not None else None
        uid = self._uids.get((claim.metadata.namespace, name or ""), claim.owner_uid or "")
        if (group := self._groups.get(uid)) is not None:
            self.wake(group.key, 0.0)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Take in a Pod event."""
        if old is not None and old.job_uid is not None and (new is None or new.job_uid != old.job_uid):
            self._drop(old, old.job_uid)
        if new is None or new.job_uid is None:
            return
        self._pods_of.setdefault(new.job_uid, {})[new.metadata.uid] = new
        self._wake_to_place(old, new)
        group, problem = self._read(new)
        if group is None:
            return
        if problem and (old is None or _readable(old) != _readable(new)):
            message = f"pod {new.metadata.name}: {problem}; it counts as a pod that announced nothing"
            self.warn(group.jobset.raw, Note("UnreadablePod", message, warning=True))
        self._wake_if_due(group)

    def pods_of(self, job: Job) -> Sequence[Pod]:
        """Return the Pods that a Job controls."""
        return tuple(self._pods_of.get(job.metadata.uid, {}).values())

    def _wake_to_place(self, old: Pod | None, new: Pod) -> None:
        """Queue a JobSet when a Pod waits behind our gate, or when one that others may follow got its node."""
        got_node = new.spec.node_name is not None and (old is None or old.spec.node_name is None)
        if not (new.is_gated or (got_node and new.completion_index == "0")):
            return
        job = self._jobs.get(new.job_uid or "")
        group = self._groups.get((job.owner_uid if job is not None else None) or "")
        if group is not None and group.jobset.is_placed_exclusively:
            self.wake(group.key, PLACEMENT_HOLD_S)

    def _follow(self, group: Group, jobset: JobSet, synced: int, deprecated: int) -> None:
        """Take in a new version of a known JobSet."""
        old, group.jobset = group.jobset, jobset
        if (old.is_in_place, old.is_ours) != (jobset.is_in_place, jobset.is_ours):
            self._open_ledger(group, synced, deprecated)
            return
        if group.ledger is not None:
            group.ledger.learn(synced, deprecated)
            group.ledger.reshape(group.shape)
        if (old.restarts, old.job_restarts) != (jobset.restarts, jobset.job_restarts):
            self._read_all_pods(group)
        self._note_due(group)

    def _open_ledger(self, group: Group, synced: int, deprecated: int) -> None:
        """Start counting from nothing, with every Pod that is known."""
        group.ledger = None
        if group.jobset.is_in_place and group.jobset.is_ours:
            group.ledger = Ledger(group.shape, synced, deprecated)
        self._read_all_pods(group)
        self._note_due(group)

    def _read_all_pods(self, group: Group) -> None:
        for job in tuple(self.jobs_of(group.jobset.uid).values()):
            self._read_pods_of(job.metadata.uid)

    def _read_pods_of(self, job_uid: str) -> None:
        """Read the Pods of one Job again: which side it is on has changed."""
        for pod in self._pods_of.get(job_uid, {}).values():
            group, _ = self._read(pod)
            if group is not None:
                self._wake_if_due(group)

    def _read(self, pod: Pod) -> tuple[Group | None, str]:
        """Show a Pod to the ledger it belongs to; return its group and what somebody broke on it."""
        group, reading = self._assign(pod)
        uid = pod.metadata.uid
        home = self._home_of.get(uid)
        if home is not None and (group is None or group.jobset.uid != home):
            self._evict(uid)
        if group is None or group.ledger is None:
            return None, ""
        if reading.view is None:
            self._evict(uid)
        else:
            self._home_of[uid] = group.jobset.uid
            group.ledger.observe(reading.view)
        return group, reading.problem

    def _evict(self, pod_uid: str) -> Group | None:
        """Take a Pod out of the ledger it is in; return that ledger's group."""
        group = self._groups.get(self._home_of.pop(pod_uid, ""))
        if group is not None and group.ledger is not None:
            group.ledger.forget(pod_uid)
        return group

    def _assign(self, pod: Pod) -> tuple[Group | None, Reading]:
        """Find the group of a Pod: through its Job; when that is unknown, where it was or its label says.

        A Job may be gone before its Pods; their containers may still run, and that must hold the barrier up.
        """
        job = self._jobs.get(pod.job_uid or "")
        if job is None:
            home, labels = self._home_of.get(pod.metadata.uid), pod.metadata.labels
            if home is not None or labels is None:
                return self._groups.get(home or ""), read_pod(pod, NOWHERE, current=False)
            group = self._groups.get(labels.jobset_uid or "")
            if group is not None and labels.replicated_job in group.jobset.opted_out:
                return group, Reading(None)
            return group, read_pod(pod, NOWHERE, current=False)
        group = self._groups.get(job.owner_uid or "")
        if group is None:
            return None, Reading(None)
        place = group.jobset.places.get(job.metadata.name, NOWHERE)
        if place[0] in group.jobset.opted_out:
            return group, Reading(None)
        return group, read_pod(pod, place, current=is_current(group.jobset, job))

    def _drop(self, pod: Pod, job_uid: str) -> None:
        """Forget a Pod that is gone, or that its Job no longer controls."""
        pods = self._pods_of.get(job_uid, {})
        pods.pop(pod.metadata.uid, None)
        if not pods:
            self._pods_of.pop(job_uid, None)
        group = self._evict(pod.metadata.uid)
        if group is not None:
            self._wake_if_due(group)

    def _wake_if_due(self, group: Group) -> None:
        if self._note_due(group):
            self.wake(group.key, 0.0)

    def _note_due(self, group: Group) -> bool:
        """Say whether the ledger asks for something that the status does not show, and note since when."""
        jobset, ledger = group.jobset, group.ledger
        decision = None if jobset.is_finished or jobset.suspended or jobset.is_leaving else group.decide()
        due = (
            decision is not None
            and ledger is not None
            and (
                decision.exceeded
                or bool(decision.recreate)
                or (decision.synced, decision.deprecated) != (ledger.synced, ledger.deprecated)
            )
        )
        if not due:
            group.due_since_s = None
        elif group.due_since_s is None:
            group.due_since_s = self.clock.monotonic_s()
        return due


def _side(job: Job) -> tuple[object, ...]:
    """Return what decides where a Job stands; the rest are counters."""
    finished = job.condition("Failed") is not None, job.condition("Complete") is not None
    meta = job.metadata
    return job.owner_uid, job.is_leaving, finished, meta.labels, meta.annotations, job.spec.suspend


def _readable(pod: Pod) -> tuple[object, object]:
    return pod.metadata.labels, pod.metadata.annotations


def _name(obj: KubeObject) -> dict[str, str]:
    return {"namespace": obj["metadata"]["namespace"], "jobset": obj["metadata"]["name"]}
