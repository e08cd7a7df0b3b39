"""
The controller's ledger: what all Pods of one JobSet announced, counted so that every Pod event costs O(1).

`decide` answers from counters (a histogram of epochs over live Pods, and one over slots), never from a list of Pods.
It is level-based: it says what the status should be now, whatever woke it, and a restarted controller that feeds the
same Pods in any order decides the same. What a ledger knows beyond the API server (who was counted in a sync, which
container ran after it) only ever adds a group restart sooner; losing it loses no safety.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.counters import bump
from inplace.common.protocol.decision import Decision, PodCounts
from inplace.common.protocol.errors import InvariantError
from inplace.common.protocol.members import Members, of_epoch
from inplace.common.protocol.pod_record import Record, epoch_of_slot, may_run, only_live
from inplace.common.protocol.pod_view import PodLife, PodView
from inplace.common.protocol.resume import choose_resume
from inplace.common.protocol.slot import Shape, Slot


@dataclass(slots=True)
class Ledger:
    """Counts Pods by epoch for one JobSet.

    Args:
        shape: the expected slots.
        synced: S as the JobSet shows it.
        deprecated: D as the JobSet shows it.
        members: of S, as the JobSet shows them; None where it does not.
    """

    shape: Shape
    synced: int = 0
    deprecated: int = 0
    members: Members | None = None
    _records: dict[str, Record] = field(default_factory=dict)
    _occupants: dict[Slot, dict[str, Record]] = field(default_factory=dict)  # live and leaving Pods of expected slots
    _pods_at: Counter[int] = field(default_factory=Counter)  # live Pods of expected slots, by epoch
    _slots_at: Counter[int] = field(default_factory=Counter)  # slots whose only occupant is live, by its epoch
    _shared_at: Counter[int] = field(default_factory=Counter)  # slots of two occupants that joined one epoch, by that
    _ghosts: int = 0  # Pods outside every expected slot whose containers may still run
    _succeeded: Counter[tuple[str, int]] = field(default_factory=Counter)  # completed Pods, by Job
    _ahead: set[str] = field(default_factory=set)  # Pods that announce an epoch beyond S + 1
    _slots_ahead: Counter[int] = field(default_factory=Counter)  # slots whose only occupant is of those, by its epoch
    _intruders: set[str] = field(default_factory=set)  # live Pods that announced S or less after the census
    _broken: set[str] = field(default_factory=set)  # Pods whose worker of epoch S died; kept until S grows
    _census: bool = False  # every slot was seen at S: who announces S later was not counted in it
    _vanished: int = 0  # the newest epoch that a Pod had announced which is gone and was not seen to end
    _seen: int = 0  # the newest version that was taken in
    _resized: bool = False  # since S was synced: its Pods' own copies are parts of another whole

    def __post_init__(self) -> None:
        """Begin with no Pod."""
        self.members = of_epoch(self.members, self.synced)

    def observe(self, pod: PodView) -> bool:
        """Take in one Pod event; O(1). Repeats are fine. Say whether `decide` may answer otherwise than before."""
        self._seen = max(self._seen, pod.version)
        record, moved = self._records.get(pod.uid), True
        if record is None:
            record = self._records[pod.uid] = Record(pod, instance_synced=self.synced)
        else:
            old = record.pod
            moved = pod.epoch != old.epoch or pod.life is not old.life or pod.slot != old.slot
            if moved:
                self._withdraw(record)
            if pod.worker.instance != old.worker.instance:
                record.instance_synced, record.ran = self.synced, False
        record.pod = pod
        record.ran = record.ran or pod.worker.running
        if moved:  # of 5,000 Pods that restart, one event in three does
            record.expected = self.shape.expects(pod.slot)
            self._read_announcement(record)
            self._enter(record)
            self._take_census()
        if self._has_broken(record) and pod.uid not in self._broken:
            self._broken.add(pod.uid)
            return True
        return moved

    def forget(self, uid: str) -> None:
        """Drop a Pod that is gone; O(1). Unknown uids are fine: events may repeat."""
        record = self._records.pop(uid, None)
        if record is None:
            return
        self._withdraw(record)
        self._ahead.discard(uid)
        self._intruders.discard(uid)

    def vanish(self, uid: str) -> None:
        """Drop a Pod whose object is gone; if its end was not seen, it may still wait at a barrier. O(1)."""
        record = self._records.get(uid)
        if record is not None and may_run(record):
            self._vanished = max(self._vanished, record.epoch or 0)
        self.forget(uid)

    def fence(self, uid: str) -> None:
        """Count a Pod that leaves as gone: its worker has ended, and it joins only what it announced BEFORE. O(1)."""
        record = self._records.get(uid)
        if record is not None and record.pod.life is PodLife.LEAVING and not record.fenced:
            self._vanished = max(self._vanished, record.epoch or 0)
            self._withdraw(record)
            record.fenced = True

    def reshape(self, shape: Shape) -> None:
        """Expect other slots; O(Pods), once per resize."""
        if shape == self.shape:
            return
        for record in self._records.values():
            self._withdraw(record)
        self.shape, self._resized = shape, True
        for record in self._records.values():
            record.expected = shape.expects(record.pod.slot)
            if not record.expected:
                self._intruders.discard(record.pod.uid)  # a ghost: blocks a sync, restarts nobody
            self._enter(record)
        self._census = False
        self._take_census()

    def learn(self, synced: int, deprecated: int, members: Members | None = None) -> None:
        """Take in the JobSet's status, ours or another leader's. A stale status changes nothing: both only grow."""
        self.deprecated = max(self.deprecated, deprecated)
        if synced == self.synced:
            self.members = of_epoch(members, synced)
        if synced <= self.synced:
            return
        self.synced, self.members, self._resized = synced, of_epoch(members, synced), False
        self._census = False
        self._intruders.clear()
        self._broken.clear()
        for uid in tuple(self._ahead):
            record = self._records[uid]
            self._withdraw(record)
            self._read_announcement(record)
            self._enter(record)
        self._take_census()

    def decide(self, *, restarts_max: int, uncounted: int = 0) -> Decision:
        """Say what the status should be now; changes nothing, O(distinct epochs).

        One restart too many is one that was announced, after those that died had their chance to: the Job of a dead
        Pod may be about to fail, and then the failure policy decides. (No epoch left in int32 is the end at once.)

        Args:
            restarts_max: spec.failurePolicy.maxRestarts.
            uncounted: epochs that were not counted restarts (resumes, uncounted recreations, resizes).
        """
        top = max(self._pods_at, default=0)
        broken = self._is_running() and bool(self._intruders or self._broken or self._shared_at[self.synced])
        must_restart = broken or self._is_restarting()
        reached = max(top, self.synced + 1 if must_restart else self.synced)
        restarts = max(0, reached - 1 - uncounted)
        is_over = restarts > restarts_max and top > self.synced and not self._awaits_the_dead()
        if is_over or reached > INT32_MAX:
            return Decision(self.synced, self.deprecated, restarts, exceeded=True)
        if (found := self._find_lost()) is not None:
            members = self._nobody(found[0]) if found[0] == found[1] else None
            return Decision(*found, max(0, found[0] - 1 - uncounted), members=members)
        synced, deprecated, members = self.synced, self.deprecated, self.members
        if self._vanished > self.synced:  # skip it: deprecated in the write that syncs it, its barrier never lifts
            synced = deprecated = self._vanished
            members = self._nobody(synced)
        elif self._is_complete(top):
            synced, members = top, self._everyone(top)
        elif top > self.synced:
            deprecated = max(deprecated, top - 1)
        elif broken:
            deprecated = self.synced
        if not self.deprecated <= deprecated <= synced:
            raise InvariantError(f"D only grows, up to S: D {self.deprecated} -> {deprecated}, S {synced}")
        return Decision(synced, deprecated, restarts, recreate=self._to_recreate(), members=members)

    def lives(self, uid: str) -> bool:
        """Say whether a Pod stands live in an expected slot."""
        record = self._records.get(uid)
        return record is not None and record.expected and record.pod.life is PodLife.LIVE

    def has_died(self, uid: str) -> bool:
        """Say whether a Pod's worker of epoch S died, as `decide` sees it early."""
        return uid in self._broken

    def standing(self) -> PodCounts:
        """Count the Pods by what they do; O(N), so for a scrape and not for an event."""
        live = sum(pod.pod.life is PodLife.LIVE for slot in self._occupants.values() for pod in slot.values())
        running = self._pods_at[self.synced] if self._is_running() else 0
        waiting = sum(count for epoch, count in self._pods_at.items() if epoch > self.synced)
        missing = max(0, self.shape.size - live - self.completed)
        return PodCounts(running, waiting, max(0, live - running - waiting), missing)

    def arrived(self, epoch: int) -> int:
        """Return how many slots are at an epoch."""
        return self._slots_at[epoch]

    def arrived_by_job(self, epoch: int) -> Counter[tuple[str, int]]:
        """Return how many slots of each Job are at an epoch; O(Pods), however many slots are expected."""
        return Counter(slot[:2] for slot, pods in self._occupants.items() if epoch_of_slot(pods) == epoch)

    def absent(self, epoch: int, arrived: Mapping[tuple[str, int], int]) -> Iterator[tuple[Slot, tuple[str, ...]]]:
        """Yield each slot that is not at an epoch, with its Pods by UID; a Job that `arrived` calls full costs O(1)."""
        for job in self.shape.jobs():
            size = self.shape.size_of(*job)
            for index in range(size if arrived.get(job, 0) < size else 0):
                slot = Slot(*job, index)
                pods = self._occupants.get(slot, {})
                if epoch_of_slot(pods) != epoch:
                    yield slot, tuple(pods)

    @property
    def completed(self) -> int:
        """Return how many Pods completed; O(Jobs that have one)."""
        return sum(self._succeeded.values())

    @property
    def next_epoch(self) -> int:
        """Return the epoch at whose barrier Pods meet."""
        return self.synced + 1

    @property
    def announced(self) -> int:
        """Return the highest epoch that a live Pod announced; 0 for none."""
        return max(self._pods_at, default=0)

    def histogram(self) -> dict[int, int]:
        """Return live Pods by announced epoch."""
        return dict(self._pods_at)

    def names_in_the_way(self) -> Mapping[str, list[str]]:
        """Return the names of Pods in the way by reason; O(Pods), so for a barrier that waits and not for an event."""
        names: dict[str, list[str]] = {"ahead": [], "intruder": [], "ghost": []}
        for uid, record in self._records.items():
            if not record.expected and may_run(record):
                names["ghost"].append(record.pod.name)
            elif uid in self._ahead:
                names["ahead"].append(record.pod.name)
            elif uid in self._intruders:
                names["intruder"].append(record.pod.name)
        return {reason: sorted(found) for reason, found in names.items() if found}

    def _is_running(self) -> bool:
        """Say whether epoch S is the running one: synced, and not deprecated."""
        return self.synced > self.deprecated

    def _is_restarting(self) -> bool:
        """Say whether epoch S ran and is deprecated: the next one is on its way."""
        return 0 < self.synced <= self.deprecated

    def _is_complete(self, top: int) -> bool:
        """Say whether all N slots are live at one epoch beyond S, and nothing of an older one may still run."""
        size = self.shape.size
        return top > self.synced and size > 0 and self._ghosts == 0 and self._slots_at[top] == size

    def _find_lost(self) -> tuple[int, int] | None:
        """Return S and D as Pods prove them where the status lost them; None elsewhere. O(distinct epochs).

        One Pod alone proves nothing: a person may have written its annotation. When every slot announces one epoch, it
        is the group's, and nobody restarts. When two slots got beyond S + 1, but not all to one epoch, nobody can say
        who ran in which: everything up to what both have reached is over, and the group meets in the epoch after.
        """
        if not self._slots_ahead:
            return None
        newest = max(self._slots_ahead)
        if self._slots_ahead[newest] == self.shape.size:
            # From which step it goes on is lost as well: where Pods told of steps, it is over.
            deprecated = newest if self._has_told() else self.deprecated
            return (newest, deprecated) if self._ghosts == 0 else None
        reached = newest
        if self._slots_ahead[newest] == 1:
            reached = max((epoch for epoch in self._slots_ahead if epoch < newest), default=0)
        return (reached, reached) if reached else None

    def _everyone(self, epoch: int) -> Members | None:
        """Return the list of an epoch whose barrier lifts; None for a group that tells of no steps. O(Pods)."""
        pods = [record.pod.saved for slot in self._occupants.values() for record in slot.values()]
        if self.members is None and not any(pods):
            return None
        is_whole = not self._resized and (self.members is None or self.members.size == self.shape.size)
        resume = choose_resume(pods, same=is_whole, tellers=pods)
        return Members(epoch, self.shape.size, seen=self._seen, resume=resume, everyone=True)

    def _nobody(self, epoch: int) -> Members | None:
        """Return the list of an epoch in which nobody runs; None for a group that tells of no steps. O(Pods)."""
        if self.members is None and not self._has_told():
            return None
        return Members(epoch, self.shape.size, seen=self._seen, skipped=True, everyone=True)

    def _has_told(self) -> bool:
        """Say whether some Pod told of steps; O(Pods)."""
        return any(record.pod.saved is not None for record in self._records.values())

    def _awaits_the_dead(self) -> bool:
        """Say whether some slot whose worker of epoch S died has announced nothing since.

        O(dead), and only asked beyond maxRestarts; `any` stops at the first, so a burst of N deaths costs O(N log N).
        """
        return not all(self._has_come_back(uid) for uid in self._broken)

    def _has_come_back(self, uid: str) -> bool:
        """Say whether a dead Pod, or its replacement, announced beyond S; one that is gone is not waited for."""
        record = self._records.get(uid)
        if record is None or not record.expected:
            return True
        occupants = self._occupants.get(record.pod.slot, {}).values()
        return any((occupant.epoch or 0) > self.synced for occupant in occupants)

    def _to_recreate(self) -> frozenset[tuple[str, int]]:
        """Name the Jobs with completed Pods, once a group restart has begun: a completed Pod cannot restart."""
        return frozenset(self._succeeded) if self._is_restarting() else frozenset()

    def _read_announcement(self, record: Record) -> None:
        """Believe the highest valid epoch; set one beyond S + 1 aside.

        An epoch beyond S + 1 is tampering, or news from beyond our view of the JobSet, or all that is left of a status
        that was lost. In the second case the status arrives soon, and `learn` reads it again; the third is
        `_find_lost`'s, whose write fails in the second, because its resourceVersion is old.
        """
        uid, epoch = record.pod.uid, record.pod.epoch
        if record.pod.life is not PodLife.LIVE:
            self._intruders.discard(uid)
        if epoch is not None and epoch > self.synced + 1:
            self._ahead.add(uid)
            return
        self._ahead.discard(uid)
        if epoch is None or (record.epoch is not None and epoch <= record.epoch):
            return
        record.epoch = epoch
        if record.pod.life is PodLife.LIVE:
            record.joined = epoch
        if epoch > self.synced:
            self._intruders.discard(uid)
        elif self._census and record.expected and record.pod.life is PodLife.LIVE:
            self._intruders.add(uid)

    def _has_broken(self, record: Record) -> bool:
        """Say whether the worker of epoch S died: its agent told, kubelet shows it, or it is `PodView.given_up`.

        kubelet's status lags the announcement, so a Pod can show the new epoch beside the old container's exit. So its
        word counts if this run of the container was first seen after S was synced, was seen running, then failed.
        """
        if not (record.expected and record.epoch == self.synced > 0):
            return False
        is_told = record.pod.failed_epoch == self.synced and record.pod.life is PodLife.LIVE
        is_lost = record.pod.given_up and record.joined == self.synced  # it may announce until it ends
        return is_told or is_lost or (record.pod.worker.failed and record.ran and self.synced == record.instance_synced)

    def _take_census(self) -> None:
        """Note that every slot was seen at S."""
        if not self._census and self.synced > 0 and self._slots_at[self.synced] == self.shape.size:
            self._census = True

    def _enter(self, record: Record) -> None:
        """Add what one Pod contributes to the counters."""
        self._count(record, +1)
        if not (record.expected and may_run(record)):
            return
        slot = self._occupants.setdefault(record.pod.slot, {})
        if slot:
            self._count_slot(slot, -1)
        slot[record.pod.uid] = record
        self._count_slot(slot, +1)

    def _withdraw(self, record: Record) -> None:
        """Take back what `_enter` added; the record must not have changed in between."""
        self._count(record, -1)
        if not (record.expected and may_run(record)):
            return
        slot = self._occupants[record.pod.slot]
        self._count_slot(slot, -1)
        del slot[record.pod.uid]
        if slot:
            self._count_slot(slot, +1)
        else:
            del self._occupants[record.pod.slot]

    def _count(self, record: Record, sign: int) -> None:
        """Count one Pod in (+1) or out (-1), apart from its slot."""
        pod = record.pod
        if not record.expected:
            self._ghosts += sign if may_run(record) else 0
        elif pod.life is PodLife.SUCCEEDED:
            bump(self._succeeded, (pod.slot.replicated_job, pod.slot.job_index), sign)
        elif pod.life is PodLife.LIVE and record.epoch is not None:
            bump(self._pods_at, record.epoch, sign)

    def _count_slot(self, slot: dict[str, Record], sign: int) -> None:
        """Count a slot in or out."""
        joined = [record.joined for record in slot.values()] if len(slot) > 1 else []
        for epoch in {epoch for epoch in joined if joined.count(epoch) > 1}:
            bump(self._shared_at, epoch, sign)
        if (only := only_live(slot)) is None:
            return
        if only.epoch is not None:
            bump(self._slots_at, only.epoch, sign)
        if only.pod.epoch is not None and only.pod.uid in self._ahead:
            bump(self._slots_ahead, only.pod.epoch, sign)
