"""
Map Pods to Jobs, Jobs to JobSets, and each Pod to the ledger of its scope, by UID.

Every event is O(1): a Pod event changes one ledger (controller/tracking/group.py) and asks it whether the status should
change. Only then is the JobSet queued. A Pod counts if the Job that controls it is a current Job of the JobSet; labels
do not matter. Jobs and Pods may become known in any order: Pods are indexed by the UID of their Job, and read again
when the Job appears, changes to another JobSet or goes. A UID in an owner reference or a label counts only if both
objects are in one namespace, as for Kubernetes' owners: no Pod of another namespace joins a group, or blocks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inplace.common.jobset.buckets import is_current
from inplace.common.jobset.causes import Cause, Trigger
from inplace.common.jobset.jobset import COUNTERS_HOLD_S, JobSet, parse_jobset
from inplace.common.jobset.kinds import Job, Pod
from inplace.common.jobset.last_restart import synced_at_of
from inplace.common.jobset.note import Note
from inplace.common.jobset.notices import NO_KINDS, restart_on
from inplace.common.kube.clock import Clock
from inplace.common.kube.informer import Log
from inplace.common.kube.resources import KubeObject
from inplace.common.kube.timestamps import micro_time
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.controller.plan.observed import PATIENCE_S
from inplace.controller.tracking.completions import blame_completed, blame_late, completed_pods
from inplace.controller.tracking.counts import GroupCount, current, division, readable, side
from inplace.controller.tracking.gathering import Gathering
from inplace.controller.tracking.group import Group, Key
from inplace.controller.tracking.memories import NameReferences
from inplace.controller.tracking.pods import Reading, account_of, fenced_within_s, labelled_place, read_pod
from inplace.controller.tracking.scope_ledger import ScopeLedger
from inplace.controller.tracking.signs import corrected, seconds_since, sign_of, with_exit
from inplace.controller.tracking.spares import FirstSight

_Owner = tuple[str, str]  # namespace and UID
PLACEMENT_HOLD_S = 0.05  # the Pods of a Job appear in a burst; one pass lifts the gates of a burst


@dataclass(slots=True)
class Membership:
    """All JobSets of this controller.

    Args:
        wake: asks for a JobSet to be reconciled, after so many seconds.
        warn: reports broken fields of a Pod or a JobSet.
        gathering: of the Pods' events; told how many Pods are missing.
        users: which JobSets use a Service or a claim.
        first_sight: of which it may have missed Pods.
    """

    wake: Callable[[Key, float], None]
    warn: Callable[[KubeObject, Note], None]
    clock: Clock
    log: Log
    gathering: Gathering = field(default_factory=Gathering)
    users: NameReferences = field(init=False)
    first_sight: FirstSight = field(default_factory=FirstSight)
    _groups: dict[str, Group] = field(default_factory=dict)  # by JobSet UID
    _uids: dict[Key, str] = field(default_factory=dict)
    _jobs: dict[str, Job] = field(default_factory=dict)  # by Job UID
    _jobs_of: dict[_Owner, dict[str, Job]] = field(default_factory=dict)  # by JobSet, then by name
    _pods_of: dict[str, dict[str, Pod]] = field(default_factory=dict)  # by Job UID, then by Pod UID
    _home_of: dict[str, ScopeLedger] = field(default_factory=dict)  # by Pod UID: who counts it

    def __post_init__(self) -> None:
        self.users = NameReferences(self.wake)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def get(self, key: Key) -> Group | None:
        """Return the group of a JobSet; None when there is no such JobSet, or it cannot be read."""
        uid = self._uids.get(key)
        return self._groups.get(uid) if uid is not None else None

    def jobs_of(self, jobset: JobSet) -> Mapping[str, Job]:
        """Return the Jobs that a JobSet owns, by name."""
        return self._jobs_of.get((jobset.namespace, jobset.uid), {})

    def counts(self) -> Iterator[GroupCount]:
        """Yield how each group stands; for metrics."""
        now_s = self.clock.monotonic_s()
        for group in tuple(self):  # JobSets and their scopes come and go while the reader pauses
            yield from tuple(group.counts(now_s))

    def jobset_changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Take in a JobSet event."""
        if new is None:
            assert old is not None
            key = (old["metadata"]["namespace"], old["metadata"]["name"])
            self._groups.pop(old["metadata"]["uid"], None)
            self.first_sight.divided.discard(old["metadata"]["uid"])
            self.users.forget(old["metadata"]["uid"])
            self._uids.pop(key, None)
            self.wake(key, 0.0)
            return
        try:
            jobset = parse_jobset(new)
            _ = jobset.scopes
        except RemoteProtocolError as error:
            names = new["metadata"]
            self._groups.pop(names["uid"], None)
            self.users.forget(names["uid"])
            self.log.error(
                "jobset_unreadable",
                message=str(error),
                then="it waits for its next change",
                namespace=new["metadata"]["namespace"],
                jobset=new["metadata"]["name"],
            )
            self.warn(new, Note("UnreadableJobSet", f"{error}; nothing is done until it changes", warning=True))
            return
        self.users.note(jobset)
        group = self._groups.get(jobset.uid)
        if group is None:
            group = self._groups[jobset.uid] = Group(jobset)
            self._uids[group.key] = jobset.uid
            self._open_ledgers(group)
        else:
            self._follow(group, jobset)
        self.wake(group.key, 0.0)

    def pods_listed(self, version: int) -> None:
        """Take in that what happened to Pods before this version may have been missed: a list was read."""
        self.first_sight.note_list(version)
        for group in self:
            group.relisted(version)

    def expect(self, group: Group, expected: frozenset[str], left: frozenset[tuple[str, int]]) -> None:
        """Take in which replicatedJobs the barriers wait for, and which of their Jobs it does not."""
        if (group.expected, group.left) == (expected, left):
            return
        group.expected, group.left = expected, left
        group.reshape()
        self._wake_if_due(group, *group.ledgers.values())

    def job_changed(self, old: Job | None, new: Job | None) -> None:
        """Take in a Job event."""
        job = new if new is not None else old
        assert job is not None
        uid, owner, former = job.metadata.uid, _owner_of(job), _owner_of(old)
        if former is not None and (new is None or former != owner):
            self._jobs_of.get(former, {}).pop(job.metadata.name, None)
        if new is None:
            self._jobs.pop(uid, None)
            if owner is not None and not self._jobs_of.get(owner):
                self._jobs_of.pop(owner, None)
        else:
            self._jobs[uid] = new
            if owner is not None:
                self._jobs_of.setdefault(owner, {})[job.metadata.name] = new
        if old is None or new is None or side(old) != side(new):
            self._read_pods_of(uid)
        if former != owner and (group := self._owned_by(former)) is not None:
            self.wake(group.key, 0.0)  # its Job was taken away
        if (group := self._owned_by(owner)) is not None:
            only_counters = old is not None and new is not None and side(old) == side(new)
            self.wake(group.key, COUNTERS_HOLD_S if only_counters else 0.0)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Take in a Pod event."""
        job_uid = new.job_uid if new is not None else None
        if old is not None and (left_uid := old.job_uid) is not None and left_uid != job_uid:
            self._drop(old, left_uid, vanished=new is None and old.spec.node_name is not None)  # it may have run
        if new is None or job_uid is None:
            return
        self._pods_of.setdefault(job_uid, {})[new.metadata.uid] = new
        self._wake_to_place(old, new)
        lived = self._lives(new)
        group, scope_ledger, problem, moved = self._read(new, job_uid)
        if group is None or scope_ledger is None:
            return
        self._note_sign(scope_ledger, old, new, lived=lived)
        if problem and (old is None or readable(old) != readable(new)):
            message = f"pod {new.metadata.name}: {problem}; a value that cannot be read counts as absent"
            self.warn(group.jobset.raw, Note("UnreadablePod", message, warning=True))
        if moved:
            ledger = scope_ledger.ledger
            self.gathering.note_missing(scope_ledger.expected - ledger.arrived(ledger.next_epoch))
            self._wake_if_due(group, scope_ledger)

    def pods_of(self, job: Job) -> Sequence[Pod]:
        """Return the Pods that a Job controls."""
        pods = self._pods_of.get(job.metadata.uid, {}).values()
        return tuple(pod for pod in pods if pod.metadata.namespace == job.metadata.namespace)

    def home_of(self, pod_uid: str) -> ScopeLedger | None:
        """Return who counts a Pod."""
        return self._home_of.get(pod_uid)

    def pod_of(self, job: Job | None, uid: str) -> Pod | None:
        """Return one Pod, of this Job or, in O(Jobs), of one that is gone."""
        own = self._pods_of.get(job.metadata.uid, {}) if job is not None else {}
        return own.get(uid) or next((pods[uid] for pods in self._pods_of.values() if uid in pods), None)

    def _wake_to_place(self, old: Pod | None, new: Pod) -> None:
        """Queue a JobSet when a Pod waits behind our gate, or when one that others may follow got its node."""
        got_node = new.spec.node_name is not None and (old is None or old.spec.node_name is None)
        if not (new.is_gated or (got_node and new.completion_index == "0")):
            return
        group = self._owned_by(_owner_of(self._job_of(new, new.job_uid or "")))
        if group is not None and group.jobset.is_placed_exclusively:
            self.wake(group.key, PLACEMENT_HOLD_S)

    def _follow(self, group: Group, jobset: JobSet) -> None:
        """Take in a new version of a known JobSet."""
        old, group.jobset = group.jobset, jobset
        if division(old) != division(jobset):
            self._open_ledgers(group)
            return
        group.learn()
        group.reshape()
        if current(old) != current(jobset):
            self._read_all_pods(group)
        self._note_due(group, *group.ledgers.values())

    def _open_ledgers(self, group: Group) -> None:
        """Start counting from nothing, with every Pod that is known."""
        group.open_ledgers(self.first_sight.since(group.jobset.uid))
        self._read_all_pods(group)
        self._note_due(group, *group.ledgers.values())

    def _read_all_pods(self, group: Group) -> None:
        for job in tuple(self.jobs_of(group.jobset).values()):
            self._read_pods_of(job.metadata.uid)

    def _read_pods_of(self, job_uid: str) -> None:
        """Read the Pods of one Job again: which side it is on has changed."""
        for pod in self._pods_of.get(job_uid, {}).values():
            group, scope_ledger, *_ = self._read(pod, job_uid)
            if group is not None and scope_ledger is not None:
                if scope_ledger.ledger.has_died(pod.metadata.uid):  # since a notice of its kind restarts the group
                    self._note_sign(scope_ledger, pod, pod, lived=True)
                self._wake_if_due(group, scope_ledger)

    def _read(self, pod: Pod, job_uid: str) -> tuple[Group | None, ScopeLedger | None, str, bool]:
        """Show a Pod to the ledger it belongs to.

        Return its group, that ledger, the Pod's broken fields, and whether the ledger may decide otherwise now.
        """
        group, scope_ledger, reading = self._assign(pod, job_uid)
        if group is not None and group.blocked.note(pod, self.clock.monotonic_s):
            self.wake(group.key, COUNTERS_HOLD_S)
        uid = pod.metadata.uid
        home = self._home_of.get(uid)
        moved = home is not scope_ledger or reading.view is None
        if home is not None and moved:
            self._evict(pod)
        if scope_ledger is None or group is None:
            return None, None, "", False
        if group.nodes.note(pod):
            self.wake(group.key, PLACEMENT_HOLD_S)
        if reading.view is not None:
            self._home_of[uid] = scope_ledger
            moved |= scope_ledger.ledger.observe(reading.view)
            if reading.view.epoch is None and group.note_account(reading.view.slot.replicated_job, account_of(pod)):
                self.wake(group.key, 0.0)
            joined = scope_ledger.ledger.synced > 0 and bool(reading.view.epoch)
            group.note_joined(pod, joined=joined)
            if scope_ledger.early_ends.note(pod, joined=joined):
                self.wake(group.key, 0.0)
            if scope_ledger.fences.note_pod(uid, fenced_within_s(pod)) and group is not None:
                self.wake(group.key, 0.0)  # the pass looks again when the promise is kept
        if scope_ledger.note_notice(pod, reading, group.number_of):
            self.wake(group.key, 0.0)
        return group, scope_ledger, reading.problem, moved

    def _evict(self, pod: Pod, *, vanished: bool = False) -> ScopeLedger | None:
        """Take a Pod out of the ledger it is in; return that."""
        pod_uid = pod.metadata.uid
        home = self._home_of.pop(pod_uid, None)
        if home is not None:
            home.fences.forget(pod_uid)
            home.early_ends.forget(pod_uid)
            is_news = home.notices.forget(pod.metadata.name)
            is_news |= home.marked.forget(pod_uid)
            if (group := self._groups.get(home.jobset_uid)) is not None:
                group.index_failures.pop(pod_uid, None)
                if is_news:
                    self.wake(group.key, 0.0)
        if home is not None and vanished:
            home.ledger.vanish(pod_uid)
        elif home is not None:
            home.ledger.forget(pod_uid)
        return home

    def _assign(self, pod: Pod, job_uid: str) -> tuple[Group | None, ScopeLedger | None, Reading]:
        """Find the group and the ledger of a Pod: through its Job; when that is unknown, where it was, or by its label.

        A Job may be gone before its Pods; their containers may still run, and that must hold the barrier up.
        """
        job = self._job_of(pod, job_uid)
        if job is None:
            return self._assign_by_label(pod)
        group = self._owned_by(_owner_of(job))
        if group is None:
            return None, None, Reading(None)
        expected = group.jobset.places.find(job.metadata.name)
        place = expected or labelled_place(pod)  # a slot that is not expected now may be again
        if place[0] in group.jobset.opted_out:
            return group, None, Reading(None)
        jobset, uid = group.jobset, pod.metadata.uid
        counts = expected is not None and is_current(jobset, job) and uid not in jobset.replaced_pods
        scope_ledger = group.ledger_of(place[0])
        has_spares = scope_ledger is not None and scope_ledger.members is not None
        reading = read_pod(pod, place, current=counts, annotations=jobset.annotations, has_spares=has_spares)
        return group, scope_ledger, reading

    def _assign_by_label(self, pod: Pod) -> tuple[Group | None, ScopeLedger | None, Reading]:
        """Find them for a Pod whose Job is unknown, as it may be deleted: its labels tell its slot."""
        home, labels = self._home_of.get(pod.metadata.uid), pod.metadata.labels
        uid = home.jobset_uid if home is not None else (labels.jobset_uid if labels is not None else None)
        group = self._owned_by((pod.metadata.namespace, uid or ""))
        if group is None:
            return None, None, Reading(None)
        replicated_job = labels.replicated_job if labels is not None else None
        scope_ledger = group.ledgers.get(home.name) if home is not None else group.ledger_of(replicated_job)
        return group, scope_ledger, read_pod(pod, labelled_place(pod), current=False)

    def _job_of(self, pod: Pod, job_uid: str) -> Job | None:
        """Return the Job that controls a Pod; None when it is unknown, or is in another namespace."""
        job = self._jobs.get(job_uid)
        return job if job is not None and job.metadata.namespace == pod.metadata.namespace else None

    def _owned_by(self, owner: _Owner | None) -> Group | None:
        """Return the group of a JobSet that something claims for its owner."""
        group = self._groups.get(owner[1]) if owner is not None else None
        return group if group is not None and owner is not None and group.jobset.namespace == owner[0] else None

    def _drop(self, pod: Pod, job_uid: str, *, vanished: bool) -> None:
        """Forget a Pod that is gone, or that its Job no longer controls."""
        pods = self._pods_of.get(job_uid, {})
        pods.pop(pod.metadata.uid, None)
        if not pods:
            self._pods_of.pop(job_uid, None)
        lived = self._lives(pod)
        home = self._evict(pod, vanished=vanished)
        if home is not None:
            self._note_sign(home, pod, None, lived=lived)
        group = self._groups.get(home.jobset_uid) if home is not None else None
        if group is not None:
            group.nodes.forget(pod.metadata.uid)
        if home is not None and group is not None and group.ledgers.get(home.name) is home:
            self._wake_if_due(group, home)

    def _lives(self, pod: Pod) -> bool:
        """Say whether a Pod is counted as live."""
        home = self._home_of.get(pod.metadata.uid)
        return home is not None and home.ledger.lives(pod.metadata.uid)

    def _note_sign(self, scope_ledger: ScopeLedger, old: Pod | None, new: Pod | None, *, lived: bool) -> None:
        """Remember the first sign of a restart to come: what failed is soon gone from the Pods."""
        group = self._groups.get(scope_ledger.jobset_uid)
        if not scope_ledger.plays(new if new is not None else old):
            return
        if scope_ledger.cause is not None:
            if new is not None and group is not None:
                job = self._job_of(new, new.job_uid or "")
                known, synced = scope_ledger.cause, scope_ledger.ledger.synced
                cause = corrected(with_exit(known, new, synced), new, synced)
                scope_ledger.cause = blame_late(cause, group.jobset, scope_ledger.name, job, new)
                if group.jobset.is_finished and scope_ledger.cause != known:
                    self.wake(group.key, 0.0)  # no other write is to come
            return
        synced_at = synced_at_of(group.jobset.status) if group is not None else ""
        kinds = restart_on(group.jobset.annotations) if group is not None else NO_KINDS
        sign = sign_of(old, new, scope_ledger.ledger, lived=lived, synced_at=synced_at, restart_on=kinds)
        if sign is None:
            return
        now_s, now = self.clock.monotonic_s(), micro_time(self.clock)
        trigger, failure = sign
        if group is not None:
            done = completed_pods(group.jobset, scope_ledger.name, self.jobs_of(group.jobset), self.pods_of)
            trigger, failure = blame_completed(sign, done, now)
        after_s = seconds_since(failure.finished_at, self.clock.wall_s()) if failure is not None else None
        scope_ledger.cause = Cause(trigger, now, now_s, failure, after_s)
        if trigger is Trigger.DISRUPTED and group is not None:
            self.wake(group.key, 0.0)  # that it is not counted is written BEFORE the Pod is forgotten

    def _wake_if_due(self, group: Group, *ledgers: ScopeLedger) -> None:
        calm = [scope_ledger for scope_ledger in ledgers if scope_ledger.waits_since_s is None]
        if self._note_due(group, *ledgers):
            self.wake(group.key, 0.0)
        elif any(scope_ledger.waits_since_s is not None for scope_ledger in calm):
            self.wake(group.key, PATIENCE_S)  # an epoch that runs lost a Pod: perhaps nothing else happens

    def _note_due(self, group: Group, *ledgers: ScopeLedger) -> bool:
        """Say whether some ledger asks for another status; each notes since when."""
        now_s = self.clock.monotonic_s()
        return True in [group.note_due(scope_ledger, now_s) for scope_ledger in ledgers]  # ask each of them


def _owner_of(job: Job | None) -> _Owner | None:
    """Return the JobSet that a Job claims for its controller."""
    uid = job.owner_uid if job is not None else None
    return None if job is None or uid is None else (job.metadata.namespace, uid)
