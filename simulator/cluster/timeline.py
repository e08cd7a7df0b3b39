"""
Record the moments of a JobSet's group restarts from outside.

The moments come from the containers (the cluster's observers) and from the writes to the API server (its store). The
timeline changes nothing and sends no request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Set
from dataclasses import dataclass, field
from typing import Any

from inplace.common.jobset.last_restart import seconds_of
from inplace.common.kube.clock import Clock
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire
from inplace.common.wire.members import read_members
from inplace.common.wire.worker_failure import parse_failure
from inplace.simulator.apiserver import ApiServer
from inplace.simulator.apiserver.store import CollectionKey, Event
from inplace.simulator.cluster.events import ClusterEvent, Kind, Observers

PRINTS_NO_STEP = "(prints no step=)"
RequestCounts = dict[tuple[str, str, str], int]
MOMENTS = (
    ("death seen in the API", "detected_s"),
    ("epoch deprecated", "deprecated_s"),
    ("last agent exited", "agent_exited_s"),
    ("last agent started", "agent_started_s"),
    ("last announcement", "announced_s"),
    ("epoch synced", "synced_s"),
    ("last worker started", "worker_started_s"),
    ("last first step", "stepped_s"),
)
OF_RESTARTS = frozenset({"detected_s", "deprecated_s", "agent_exited_s"})  # a first start has no such moment
OF_AGENTS = frozenset({"agent_exited_s", "agent_started_s"})  # a restart has none where the agents stay


@dataclass(slots=True)
class GroupRestart:
    """One group restart (number 0 is the first start). Times are seconds of the cluster's clock; None is not yet.

    Args:
        began_s: the fault, or for a restart without one the first sign of it.
        victim: the Pod whose container was killed, "" for none.
        epoch: the epoch at which the group synced.
        trigger: why the group restarted, as the controller says; "" before the sync.
        first_failure: status.lastGroupRestart.firstFailure; empty without one.
        first_silent: the Pods that were silent first, from status.lastGroupRestart.firstSilent; empty if none told.
        seconds: how long it took as the JobSet's status, its Event, the metrics and the boards tell it: from
            status.lastGroupRestart.startedAt to syncedAt; None before the sync.
        first_line: what the first worker printed for its first step; "" before.
        requests: requests by (verb, resource, user-agent family) from `began_s` to the last first step.
        rejected: how many of them got 429.
        pods_recreated: Pods created in the place of another, up to the end of this restart.
    """

    number: int
    began_s: float
    victim: str = ""
    epoch: int = 0
    trigger: str = ""
    first_failure: KubeObject = field(default_factory=dict)
    first_silent: list[str] = field(default_factory=list)
    seconds: float | None = None
    first_line: str = ""
    detected_s: float | None = None
    deprecated_s: float | None = None
    agent_exited_s: float | None = None
    agent_started_s: float | None = None
    announced_s: float | None = None
    synced_s: float | None = None
    worker_started_s: float | None = None
    stepped_s: float | None = None
    requests: RequestCounts = field(default_factory=dict)
    rejected: int = 0
    pods_recreated: int = 0

    @property
    def complete(self) -> bool:
        """Return whether every worker has done its first step."""
        return self.stepped_s is not None

    def moments(self, *, agents_stay: bool = False) -> list[tuple[str, float | None]]:
        """Return each moment that it has or waits for, with its seconds since the beginning, in the protocol's order.

        Args:
            agents_stay: in a restart, as in depth `process` and in supervisor mode.
        """
        left_out = OF_RESTARTS if self.number == 0 else OF_AGENTS if agents_stay else frozenset()
        found: list[tuple[str, float | None]] = []
        for words, name in MOMENTS:
            at_s: float | None = getattr(self, name)
            if name not in left_out:
                found.append((words, None if at_s is None else at_s - self.began_s))
        return found


class Timeline:
    """The start and the restarts of one JobSet, oldest first, in `restarts`; the last one may be going on.

    Args:
        agents, workers: the containers' names.
        members: the replicatedJobs whose Pods restart together; None is all of them.
        pods: how many Pods must be there before a start or restart can be complete.
    """

    def __init__(
        self,
        server: ApiServer,
        observers: Observers,
        *,
        clock: Clock,
        jobset: str,
        namespace: str = "default",
        agents: Collection[str] = ("agent",),
        workers: Collection[str] = ("worker",),
        members: Collection[str] | None = None,
        pods: int = 0,
    ) -> None:
        self.restarts: list[GroupRestart] = []
        self.pods_recreated = 0
        self.containers_restarted = 0  # by a kubelet, of any container of the JobSet's Pods
        self._server = server
        self._clock = clock
        self._jobset = namespace, jobset
        self._agents = agents
        self._workers = workers
        self._members = members
        self._ranks: Members | None = None  # of the epoch that runs; None where all Pods train
        self._slots: dict[str, tuple[int, int]] = {}  # uid -> index of the Job, completion index; -1 where unknown
        self._pods_min = pods
        self._counted_as_step: tuple[Kind, ...] = (Kind.FIRST_STEP,)
        self._working: set[str] = set()  # uids whose worker was started since the sync
        self._pods: dict[str, int] = {}  # uid -> announced epoch
        self._places: set[tuple[tuple[str, ...], str]] = set()  # Job and completion index of every Pod that was there
        self._running: set[str] = set()  # uids whose worker's status was seen running
        self._stepped: set[str] = set()
        self._started: set[tuple[str, str]] = set()  # (uid, container) of every container that was started
        self._synced = 0
        self._deprecated = 0
        self._before: Counter[tuple[str, str, str]] = Counter()
        self._rejected_before = 0
        self._begin("")
        observers.add(self._observe)
        self._unsubscribe = server.store.listen(self._take_write)

    @property
    def current(self) -> GroupRestart:
        """Return the newest restart."""
        return self.restarts[-1]

    def close(self) -> None:
        """Stop recording."""
        self._unsubscribe()

    @property
    def all_work(self) -> bool:
        """Return whether the worker of every Pod was started since the last sync."""
        training = self._training()
        return len(training) >= max(1, self._pods_min) and self._working >= training

    def trains(self, uid: str) -> bool:
        """Say whether a Pod trains; without spares all do."""
        return uid in self._training()

    def count_starts(self, kind: Kind) -> None:
        """Count a worker's start as its first step from now on: these workers print no step."""
        self._counted_as_step = (Kind.FIRST_STEP, kind)
        for uid in sorted(self._working & self._training()):
            now_s = self._clock.monotonic_s()
            self._step(self.current, ClusterEvent(now_s, kind, *self._jobset, uid))

    def _training(self) -> Set[str]:
        """Return the uids of the Pods that train: all, or the members where there are spares."""
        if self._ranks is None:
            return self._pods.keys()
        ranks, units = self._ranks, set(self._ranks.slots())
        return {uid for uid in self._pods if ranks.unit_of(*self._slots[uid]) in units}

    def _is_spare(self, uid: str) -> bool:
        """Say whether what becomes of a Pod concerns nobody: its epoch runs without it."""
        runs = self._ranks is not None and self._synced > self._deprecated
        return runs and self._ranks is not None and self._ranks.place_of(*self._slots.get(uid, (-1, -1))) is None

    def _begin(self, victim: str) -> GroupRestart:
        restart = GroupRestart(len(self.restarts), self._clock.monotonic_s(), victim)
        self.restarts.append(restart)
        self._stepped = set()
        self._working = set()
        self._before = Counter(self._server.requests)
        self._rejected_before = self._server.requests.rejected
        return restart

    def _observe(self, event: ClusterEvent) -> None:
        """Record an event of a container."""
        if event.uid not in self._pods:
            return
        if event.kind is Kind.FAULT and self.current.complete:
            self._begin(event.pod)
            return
        if event.kind is Kind.CONTAINER_STARTED:
            self.containers_restarted += (event.uid, event.container) in self._started
            self._started.add((event.uid, event.container))
        restart = self.current
        if event.container in self._agents and restart.synced_s is None:
            if event.kind is Kind.CONTAINER_EXITED and restart.number:
                restart.agent_exited_s = event.time_s
            elif event.kind is Kind.CONTAINER_STARTED:
                restart.agent_started_s = event.time_s
        if event.container in self._workers and restart.synced_s is not None:
            if event.kind in (Kind.CONTAINER_STARTED, Kind.WORKER_STARTED):
                restart.worker_started_s = event.time_s
                self._working.add(event.uid)
            if event.kind in self._counted_as_step and not restart.complete:
                self._step(restart, event)

    def _step(self, restart: GroupRestart, event: ClusterEvent) -> None:
        self._stepped.add(event.uid)
        line = event.detail.strip() if event.kind is Kind.FIRST_STEP else PRINTS_NO_STEP
        restart.first_line = restart.first_line or line
        size = len(self._pods) if self._ranks is None else self._ranks.pods_in_all
        is_enough = len(self._stepped) >= size >= self._pods_min  # lengths first: N steps
        if is_enough and self._stepped >= self._training():
            restart.stepped_s = event.time_s
            restart.requests = dict(Counter(self._server.requests) - self._before)
            restart.rejected = self._server.requests.rejected - self._rejected_before
            restart.pods_recreated = self.pods_recreated

    def _take_write(self, key: CollectionKey, event: Event) -> None:
        """Record a write to the API server; the store calls this inside the write."""
        if key[1] == "pods":
            self._take_pod(event.type, event.obj)
        elif key[1] == "jobsets" and event.key == self._jobset and event.type != "DELETED":
            self._take_jobset(event.obj)

    def _take_jobset(self, jobset: KubeObject) -> None:
        own = own_status(jobset)
        synced, deprecated = wire.epochs_of_status(own)
        now_s = self._clock.monotonic_s()
        if deprecated > self._deprecated:
            self._deprecated = deprecated
            self._signal().deprecated_s = now_s
        if synced > self._synced:
            self._synced, self._ranks = synced, read_members(own.get(wire.MEMBERS_FIELD))
        if synced > max(self.current.epoch, deprecated):
            self.current.synced_s, self.current.epoch = now_s, synced
            cause = (jobset.get("status") or {}).get(wire.LAST_GROUP_RESTART) or {}
            if cause.get("epoch") == synced:
                self.current.trigger = cause.get("trigger") or ""
                self.current.first_failure = cause.get("firstFailure") or {}
                self.current.first_silent = (cause.get("firstSilent") or {}).get("pods") or []
                self.current.seconds = seconds_of(cause)

    def _take_pod(self, event_type: str, pod: KubeObject) -> None:
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        if (meta["namespace"], labels.get(wire.JOBSET_NAME)) != self._jobset:
            return
        if self._members is not None and labels.get(wire.REPLICATED_JOB_NAME) not in self._members:
            return
        uid = meta["uid"]
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if event_type == "DELETED" or ended:
            if uid in self._pods and self._ranks is not None and not self._is_spare(uid):
                self._signal()
            self._pods.pop(uid, None)
            self._running.discard(uid)
            return
        if uid not in self._pods:
            self._pods[uid] = 0
            owners = tuple(owner["name"] for owner in meta.get("ownerReferences") or ())  # its Job
            index = (meta.get("annotations") or {}).get(wire.JOB_COMPLETION_INDEX, "")
            self.pods_recreated += (owners, index) in self._places
            self._places.add((owners, index))
            job = (meta.get("labels") or {}).get(wire.JOB_INDEX, "")
            self._slots[uid] = (int(job) if job.isdigit() else -1, int(index) if index.isdigit() else -1)
        self._take_announcement(uid, meta.get("annotations") or {})
        self._take_failure(meta.get("annotations") or {})
        self._take_worker(uid, pod)

    def _take_announcement(self, uid: str, annotations: dict[str, str]) -> None:
        try:
            epoch = wire.epoch_of_pod(annotations) or 0
        except RemoteProtocolError:
            return
        if epoch > self._pods[uid]:
            self._pods[uid] = epoch
            if self._is_spare(uid):
                return
            self._signal().announced_s = self._clock.monotonic_s()

    def _take_failure(self, annotations: dict[str, str]) -> None:
        """Note that an agent told of its worker's death, before kubelet has seen it."""
        try:
            told = parse_failure(annotations[wire.WORKER_FAILED]).epoch if wire.WORKER_FAILED in annotations else 0
        except RemoteProtocolError:
            return
        if told == self._synced > self._deprecated:
            self._signal()

    def _take_worker(self, uid: str, pod: KubeObject) -> None:
        """Record the change from running to terminated: the first sign of a death at the API server."""
        for status in pod.get("status", {}).get("containerStatuses") or ():
            if status["name"] not in self._workers:
                continue
            if "running" in status["state"]:
                self._running.add(uid)
            elif uid in self._running:
                self._running.discard(uid)
                if "terminated" in status["state"]:
                    self._signal()

    def _signal(self) -> GroupRestart:
        """Return the restart that a sign belongs to, a new one if the last is complete, and note the first sign."""
        restart = self._begin("") if self.current.complete else self.current
        if restart.detected_s is None:
            restart.detected_s = self._clock.monotonic_s()
        return restart


def own_status(jobset: KubeObject) -> dict[str, Any]:
    """Return the part of the status that has S and D: that of the only scope, if there is one."""
    status: dict[str, Any] = jobset.get("status") or {}
    scopes = status.get(wire.SCOPED_EPOCHS) or []
    return scopes[0] if len(scopes) == 1 else status
