"""What a group remembers of its Pods: which are blocked, silent, marked or fenced, and who uses a name."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from inplace.common.jobset.blocked import Blocked, BlockedCause, causes_of
from inplace.common.jobset.furthest_behind import NAMED_MAX, FurthestBehind
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import PersistentVolumeClaim, Pod
from inplace.common.jobset.marked_nodes import MarkedPod
from inplace.common.jobset.service import Service
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.protocol.lease import fenced_in_s


class BlockedPods:
    """Keeps why, by the Pod's name; whether the Pod still exists is asked of the cache, so that none is left over."""

    def __init__(self) -> None:
        self._why: dict[str, Blocked] = {}
        self._since_s = 0.0

    def note(self, pod: Pod, now_s: Callable[[], float]) -> bool:
        """Take in a Pod; say whether it brings news. The clock is asked only of the first one that is blocked."""
        name, why = pod.metadata.name, _blocked(pod)
        if why is None:
            return self._why.pop(name, None) is not None
        if not self._why:
            self._since_s = now_s()
        is_news = name not in self._why
        self._why[name] = why
        return is_news

    def causes(self, find: Callable[[str], Pod | None]) -> Sequence[BlockedCause]:
        """Return why Pods are blocked, most Pods first.

        Args:
            find: returns a Pod of the JobSet's namespace by its name.
        """
        self._why = {name: why for name, why in self._why.items() if find(name) is not None}
        return causes_of(self._why.values())

    def lasts_s(self, now_s: float) -> float:
        """Return for how long some Pod has been blocked."""
        return now_s - self._since_s if self._why else 0.0


def _blocked(pod: Pod) -> Blocked | None:
    """Return why a Pod is blocked; one that has ended, or ends, waits for nothing."""
    if pod.status.phase in ("Failed", "Succeeded") or pod.metadata.deletion_timestamp is not None:
        return None
    return pod.status.blocked


# Find the Pods that were silent first while a group announces: O(1) for each Pod.


@dataclass(slots=True)
class LastSteps:
    """What the Pods of a scope told since its last sync.

    A Pod that tells no step may be as far behind as any: often one rank alone reports.
    """

    _step: int | None = None
    _count: int = 0
    _stepped: int = 0  # Pods that told a step
    _first: list[tuple[float, str, str, LastProgress]] = field(
        default_factory=list
    )  # (minus quiet, Pod, node), NAMED_MAX

    def note(self, pod: str, node: str, progress: LastProgress) -> None:
        """Take in how far the worker of a Pod was, and on which node; each Pod tells it once."""
        self._stepped += progress.step is not None
        if self._count and progress.step != self._step:
            if progress.step is None or (self._step is not None and progress.step > self._step):
                return
            self._count, self._first = 0, []
        self._step = progress.step
        self._count += 1
        insort(self._first, (-progress.quiet_s, pod, node, progress), key=lambda told: told[:2])
        del self._first[NAMED_MAX:]

    def result(self, pods: int) -> FurthestBehind | None:
        """Return who was silent first, of so many Pods that ran; None if no Pod told."""
        if not self._first:
            return None
        _, _, node, progress = self._first[0]
        unknown = max(0, pods - self._stepped) if progress.step is not None else 0
        return FurthestBehind(tuple(pod for _, pod, *_ in self._first), self._count + unknown, progress, node)


# The Pods of one scope of which it is asked whether they leave their node, and those that do, until the next sync.
ASK_AGAIN_S: Final = 30.0  # of a Pod for which a barrier waits; a node may be marked meanwhile
HOLD_S_MAX: Final = 1.0  # for which the next epoch waits for an answer; most often it is there before the Pods are


@dataclass(slots=True)
class MarkedPods:
    """What was asked and answered since the last sync; at most one entry for each Pod."""

    _asked_s: dict[str, float] = field(default_factory=dict)  # by UID
    _open_s: dict[str, float] = field(default_factory=dict)  # by UID: when a question that is not answered was asked
    _leaving: dict[str, MarkedPod] = field(default_factory=dict)  # by UID, the first answered first

    def ask(self, uid: str, now_s: float) -> bool:
        """Note that somebody wants to ask about a Pod; say False if it was asked a moment ago."""
        asked_s = self._asked_s.get(uid)
        if asked_s is not None and now_s - asked_s < ASK_AGAIN_S:
            return False
        self._asked_s[uid] = self._open_s[uid] = now_s
        return True

    def answer(self, uid: str, marked: MarkedPod | None) -> None:
        """Take in the answer about a Pod: that it is to leave, or nothing."""
        self._open_s.pop(uid, None)
        if marked is not None:
            self._leaving[uid] = marked

    def unmark(self, node: str) -> bool:
        """Drop what was answered about the Pods of a node; say whether one of them was to leave."""
        found = [uid for uid, marked in self._leaving.items() if marked.pod.spec.node_name == node]
        for uid in found:
            self.forget(uid)
        return bool(found)

    def forget(self, uid: str) -> bool:
        """Drop a Pod that is gone; say whether it makes room for another that is to leave."""
        self._asked_s.pop(uid, None)
        self._open_s.pop(uid, None)
        return self._leaving.pop(uid, None) is not None and bool(self._leaving)

    def open_s(self, now_s: float) -> float:
        """Return for how many seconds the next epoch still waits for an answer."""
        return max((asked_s + HOLD_S_MAX - now_s for asked_s in self._open_s.values()), default=0.0)

    @property
    def leaving(self) -> tuple[MarkedPod, ...]:
        """Return the Pods that are to leave."""
        return tuple(self._leaving.values())


# Wait for the end of workers whose Pods are being deleted, where nobody can say that they have ended (docs/adr/0072).
#
# The controller's side of `common.protocol.lease`, for one scope: since when it has known that every epoch so far is
# over, and what the agents of such Pods promised. Both are of this process alone: the next leader counts anew.


@dataclass(slots=True)
class Fences:
    """The Pods of one scope that leave with a promise.

    Args:
        shows_over: the stored status says that every epoch so far is over, and is not behind what the ledger knows.
        over_since_s: since when it does; None while it does not.
        promises: within how many seconds the worker of each Pod ends then, by UID.
    """

    shows_over: bool = False
    over_since_s: float | None = None
    promises: dict[str, int] = field(default_factory=dict)

    def note_status(self, *, shows_over: bool) -> None:
        """Take in what a status says; one that was lost, or that lets an epoch run, ends the count."""
        self.shows_over = shows_over
        if not shows_over:
            self.over_since_s = None

    def note_pod(self, uid: str, promised_s: int | None) -> bool:
        """Take in a Pod's promise, None for none; say whether it is a new one."""
        if promised_s == self.promises.get(uid):
            return False
        if promised_s is None:
            del self.promises[uid]
            return False
        self.promises[uid] = promised_s
        return True

    def forget(self, uid: str) -> None:
        """Drop a Pod that is gone."""
        self.promises.pop(uid, None)

    def since_s(self, now_s: float) -> float | None:
        """Return since when every epoch so far is over; None while one may run."""
        if self.over_since_s is None and self.shows_over:
            self.over_since_s = now_s
        return self.over_since_s

    def kept(self, now_s: float) -> tuple[str, ...]:
        """Return the Pods whose workers have ended by now."""
        since_s = self.since_s(now_s)
        if since_s is None or not self.promises:
            return ()
        return tuple(uid for uid, promised in self.promises.items() if fenced_in_s(since_s, promised, now_s) <= 0.0)

    def next_in_s(self, now_s: float) -> float | None:
        """Return when the next promise is kept; None when none is waited for."""
        if self.over_since_s is None:
            return None
        waits_s = [fenced_in_s(self.over_since_s, promised, now_s) for promised in self.promises.values()]
        return min((wait_s for wait_s in waits_s if wait_s > 0.0), default=None)


# Find the JobSets that use a Service or a claim by its name: they wait for it, and create their own when it goes.
#
# Neither label nor owner would do: an object that was made by hand has neither, and two JobSets may share a subdomain.
_Name = tuple[type, str, str]  # of what kind, in which namespace, under what name


@dataclass(slots=True)
class NameReferences:
    """An index of JobSets, by UID; a spec's names never change while it lives, but are cheap to note again.

    Args:
        wake: asks for a JobSet to be reconciled, after so many seconds.
    """

    wake: Callable[[tuple[str, str], float], None]
    _users: dict[_Name, dict[str, tuple[str, str]]] = field(default_factory=dict)  # by UID: namespace and name
    _names: dict[str, frozenset[_Name]] = field(default_factory=dict)

    def note(self, jobset: JobSet) -> None:
        """Take in a version of a JobSet."""
        names: list[_Name] = [
            (PersistentVolumeClaim, jobset.namespace, jobset.claim_name(claim)) for claim in jobset.claims
        ]
        if jobset.network.dns_hostnames:
            names.append((Service, jobset.namespace, jobset.subdomain))
        if frozenset(names) == self._names.get(jobset.uid):
            return
        self.forget(jobset.uid)
        self._names[jobset.uid] = frozenset(names)
        for name in names:
            self._users.setdefault(name, {})[jobset.uid] = jobset.namespace, jobset.name

    def forget(self, uid: str) -> None:
        """Drop a JobSet; one that is unknown is fine."""
        for name in self._names.pop(uid, ()):
            users = self._users[name]
            users.pop(uid, None)
            if not users:
                del self._users[name]

    def service_changed(self, old: Service | None, new: Service | None) -> None:
        """Take in a Service event: one that is gone must be created (again), and ours keep their ports."""
        if old is not None and (new is None or old.spec != new.spec):
            self._wake_users(old)

    def claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        """Take in a claim event: Jobs wait for one that is new; one that is gone is created again, or made room."""
        if (old is None) != (new is None):
            self._wake_users(old or new)

    def _wake_users(self, used: Service | PersistentVolumeClaim | None) -> None:
        """Queue the JobSets that use an object by its name."""
        meta = used.metadata if used is not None else None
        for key in self._users.get((type(used), meta.namespace, meta.name), {}).values() if meta is not None else ():
            self.wake(key, 0.0)
