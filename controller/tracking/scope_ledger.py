"""The ledger of one scope, and what its controller remembers beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from inplace.common.jobset.causes import Cause
from inplace.common.jobset.headline import Slots, SlotState
from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.members import noun_of
from inplace.common.jobset.scopes import Scope
from inplace.common.jobset.slow_ranks import PodWork
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.slot import Slot
from inplace.controller.tracking.counts import GroupCount
from inplace.controller.tracking.memories import Fences, LastSteps, MarkedPods
from inplace.controller.tracking.never_joined import EarlyEnds
from inplace.controller.tracking.notice_board import NoticeBoard
from inplace.controller.tracking.pods import Reading
from inplace.controller.tracking.spares import SpareClock

_NONE: Final = frozenset[int]()


@dataclass(frozen=True, slots=True)
class RestartTiming:
    """When a group restart began, and when the status that began it was accepted.

    Args:
        blamed: the Pod that had failed first, as far as the Event of that moment says; "" for none.
    """

    began_s: float
    deprecated_s: float
    blamed: str = ""


@dataclass(slots=True, eq=False)
class ScopeLedger:
    """The ledger of one scope.

    Args:
        jobset_uid: of the JobSet.
        name: of the scope.
        due_since_s: since when the ledger asks for another status; None while it does not.
        waits_since_s: since when a barrier waits; None while none does.
        deadline_from_s: from when its deadline counts: since it waits, and again from each deadline on.
        cause: why it restarts next, or restarts now; None while all is well.
        timing: of the restart that is under way; None while none is, or when its beginning was not seen.
        barrier_s_min: the shortest wait at the last barrier that a Pod has told of; None while none has.
        silence: what Pods told of their workers since the last sync.
        paused_until_s: until when its next epoch waits after failures without progress.
        fences: which Pods leave although nobody can say that their workers have ended.
        early_ends: which Pods start again and again before they join.
        marked: which Pods are on marked nodes, since the last sync.
        bad: its Pods that failed on bad nodes; where it has spares, they play no rank that a spare can take.
        requested: its Pods that somebody asks to evict; asked in scopes with spares alone.
        notices: what its Pods tell of the workers that run.
        works: by Pod, how long its slowest rank worked on a step in the epoch that ended, as told since the last sync.
        clock: what a scope with spares waits for.
        members: the ledger of a scope with spares; None of one without.
    """

    jobset_uid: str
    name: str
    ledger: Ledger
    due_since_s: float | None = None
    waits_since_s: float | None = None
    deadline_from_s: float | None = None
    cause: Cause | None = None
    timing: RestartTiming | None = None
    barrier_s_min: float | None = None
    paused_until_s: float = 0.0
    silence: LastSteps = field(default_factory=LastSteps)
    fences: Fences = field(default_factory=Fences)
    early_ends: EarlyEnds = field(default_factory=EarlyEnds)
    marked: MarkedPods = field(default_factory=MarkedPods)
    bad: tuple[Pod, ...] = ()
    requested: tuple[Pod, ...] = ()
    notices: NoticeBoard = field(default_factory=NoticeBoard)
    works: dict[str, PodWork] = field(default_factory=dict)
    clock: SpareClock = field(default_factory=SpareClock)
    members: MemberLedger | None = field(init=False)

    def __post_init__(self) -> None:
        self.members = self.ledger if isinstance(self.ledger, MemberLedger) else None

    def note_status(self, scope: Scope) -> None:
        """Take in a status that the ledger has learnt."""
        ledger = self.ledger
        is_known = (scope.synced, scope.deprecated) == (ledger.synced, ledger.deprecated)
        self.fences.note_status(shows_over=is_known and scope.deprecated >= scope.synced)

    def pass_fences(self, now_s: float) -> None:
        """Count the Pods as gone whose promise is kept by now."""
        for uid in self.fences.kept(now_s):
            self.ledger.fence(uid)

    def trust(self, promised_s: Callable[[], float], now_s: float) -> float | None:
        """Count members of which nobody sees anything as ended, once that was promised; return in how many seconds.

        Args:
            promised_s: within how many seconds a worker whose epoch is over ends; asked where a member is in doubt.
            now_s: monotonic.
        """
        ledger, since_s = self.members, self.fences.since_s(now_s)
        if ledger is None or since_s is None or not ledger.doubted:
            return None
        if (left_s := since_s + promised_s() - now_s) > 0.0:
            return left_s
        for slot in tuple(ledger.doubted):
            ledger.trust(slot)
        return None

    @property
    def avoided(self) -> frozenset[int]:
        """Return the units to which the next epoch gives no rank that another could play."""
        return self.leaving.union(self._units_of(self.bad)) if self.bad else self.leaving

    @property
    def leaving(self) -> frozenset[int]:
        """Return the units for which a running group restarts, so that a spare plays their ranks."""
        marked = self.marked.leaving
        return self._units_of((*(one.pod for one in marked), *self.requested)) if marked or self.requested else _NONE

    def _units_of(self, pods: Iterable[Pod]) -> frozenset[int]:
        """Return the units of Pods of a scope with spares: one Pod of a Job stands for all of it."""
        return frozenset(unit for pod in pods if (unit := self.unit_of(pod)) is not None)

    def unit_of(self, pod: Pod) -> int | None:
        """Return the number of a Pod's unit in a scope with spares; None where its labels do not say it."""
        labels = pod.metadata.labels
        job_index = labels.job_index if labels is not None else None
        number = job_index if self.ledger.shape.pods else pod.completion_index
        return int(number) if number is not None and number.isdigit() else None

    @property
    def bad_spares(self) -> tuple[Pod, ...]:
        """Return the spares that failed on bad nodes, while the members run."""
        pods = self.bad if self.members is not None and self.ledger.synced > self.ledger.deprecated else ()
        return tuple(pod for pod in pods if not self.plays(pod))

    def movable(self, saves: Callable[[], bool]) -> int:
        """Return how many members a restart would move to spares now."""
        return self.members.movable(leaving, self.avoided, saves) if self.members and (leaving := self.leaving) else 0

    def why_exchange(self, saves: Callable[[], bool]) -> str:
        """Return why spares should become members now, in words; "" if they should not."""
        ledger, members = self.members, self.members.members if self.members is not None else None
        if ledger is None or members is None:
            return ""
        if self.clock.may_grow and ledger.grown:
            size = f"{members.size} {noun_of(members, 2)}"
            return f"it runs with {size}, and restarts in place to run with {ledger.grown}"
        if self.clock.may_move and (count := self.movable(saves)):
            marked = self.marked.leaving
            why = marked[0].why if marked else f"pod {self.requested[0].metadata.name}: its eviction is requested"
            whose = f"{members.size} {noun_of(members, 2)}"
            return f"{why}: {count} of its {whose} give their ranks to spares in one restart in place"
        return ""

    def note_time(self, saves: Callable[[], bool], wait_s: Callable[[], float], now_s: float) -> bool:
        """Take in where a ledger with spares stands; say whether a wait has begun, or is over."""
        if (ledger := self.members) is None:
            return False
        return self.clock.note(ledger, self.movable(saves) > 0, wait_s, now_s)

    def slots(self) -> Slots:
        """Return what the ledger knows of its slots in O(1): of an epoch that runs, which have no Pod in it."""
        ledger = self.ledger
        running, done = ledger.arrived(ledger.synced), ledger.completed
        if self.members is not None and ledger.synced <= ledger.deprecated:
            return Slots({}, ledger.synced, ledger.deprecated, self.name)  # no epoch runs, and counting costs O(Pods)
        if self.members is not None:
            return GroupCount(
                "", "", self.name, self.expected, ledger.standing(), ledger.synced, ledger.deprecated
            ).slots
        counts = {SlotState.RUNS: running, SlotState.COMPLETED: done}
        counts[SlotState.VACANT] = max(0, ledger.shape.size - running - done)
        return Slots(counts, ledger.synced, ledger.deprecated, self.name)

    def note_barrier(self, waited_s: float) -> None:
        """Take in how long a Pod waited at the last barrier."""
        self.barrier_s_min = waited_s if self.barrier_s_min is None else min(self.barrier_s_min, waited_s)

    def note_waiting(self, now_s: float, *, waits: bool) -> None:
        """Note whether a barrier waits, and since when."""
        if not waits:
            self.waits_since_s = self.deadline_from_s = None
        elif self.waits_since_s is None:
            self.waits_since_s = self.deadline_from_s = now_s

    def plays(self, pod: Pod | None) -> bool:
        """Say whether a Pod is of the epoch that runs: a spare restarts nobody, whatever becomes of it."""
        unit = self.unit_of(pod) if pod is not None and self.members is not None else None
        if self.members is None or unit is None:
            return True
        return unit in self.members.playing

    @property
    def expected(self) -> int:
        """Return how many slots an epoch needs: of S while that runs, else of the next one."""
        return self.ledger.shape.size if self.members is None else self.members.expected

    def note_notice(self, pod: Pod, reading: Reading, number_of: Callable[[Slot], int | None]) -> bool:
        """Take in what a Pod tells of its worker; say whether that is news."""
        view, notice = reading.view, reading.notice
        if view is None or notice is None:
            return False
        number = number_of(view.slot)
        return self.notices.note(pod, notice, scope=self.name, synced=self.ledger.synced, number=number)
