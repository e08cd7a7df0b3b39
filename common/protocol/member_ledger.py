"""
The controller's ledger of a group with spares: its barrier lifts for some of the units.

A unit is what plays a rank: a Pod, or a Job with all of its Pods (`common.protocol.members`). `Ledger` counts Pods;
here is what a slot means for the barrier of S + 1, kept up to date in O(1) per Pod event:

    arrived    its only Pod announced S + 1, and nothing of an older epoch may run in it
    vacant     nothing of it may run: no Pod, one that never announced, or a spare that is late
    doubted    a Pod of a member went without its end seen, so its worker may still run: neither arrived nor vacant
    blocking   everything else, and what is doubted

The barrier lifts when no slot blocks and enough units have arrived (`Sizes`), each with all of its slots. Spares decide
nothing: a status is decided from the slots of the members of S. Where nobody knows them, every slot may be one.

A version is a resourceVersion as a number. The order of Pod events is that of their versions, so an announcement of a
version up to `seen` was taken in. But a Pod that announced S + 1 and went before `since`, a controller's first list, is
unknown, and may wait at the barrier beside its replacement. Where a member may have such a double, that is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.counters import bump
from inplace.common.protocol.decision import Decision, PodCounts
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.members import Members, Sizes, choose, members_of
from inplace.common.protocol.pod_record import Record, epoch_of_slot, may_run
from inplace.common.protocol.pod_view import PodLife, PodView
from inplace.common.protocol.resume import Resume, Saved, choose_resume
from inplace.common.protocol.slot import Shape, Slot

_ARRIVED, _BLOCKING, _DOUBTED, _LOST, _BACK = 1, 2, 4, 8, 16  # what a slot means, in flags


@dataclass
class MemberLedger(Ledger):
    """Counts the Pods of one replicatedJob. Where that has one Job, its units are the Pods; else they are the Jobs.

    Args:
        sizes: how many members there may be.
        since: from this version on the ledger sees every event: that of the list with which it began. 0: from the first
            Pod on.
    """

    sizes: Sizes = field(default_factory=lambda: Sizes(1, 1))
    since: int = 0
    playing: set[int] = field(default_factory=set)  # units that may be members of S
    _pods_of_s: int = 0  # so many Pods each Job had in S; 0 where Pods are the units, or nobody knows
    _arrived: set[int] = field(default_factory=set)  # units of which every slot has
    _spares: set[int] = field(default_factory=set)  # of these, those that may be no members of S
    _coming: set[int] = field(default_factory=set)  # units without a vacant slot
    _weights: dict[Slot, int] = field(default_factory=dict)  # what each slot means now, of the flags below
    _blocking: set[Slot] = field(default_factory=set)
    doubted: set[Slot] = field(default_factory=set)  # a worker of S may run in them unseen; `trust` ends that
    _lost: set[Slot] = field(default_factory=set)  # of members of S, whose Pod is gone
    _back: set[Slot] = field(default_factory=set)  # of members of S, of which a live Pod announced S + 1
    _here: Counter[int] = field(default_factory=Counter)  # of each unit, how many slots have arrived
    _there: Counter[int] = field(default_factory=Counter)  # of each unit, how many are not vacant
    _done: Counter[Slot] = field(default_factory=Counter)  # completed Pods, by slot
    _gone: set[tuple[Slot, int]] = field(default_factory=set)  # slot and epoch of Pods that announced; no end was seen
    _trusted: set[Slot] = field(default_factory=set)  # slots of S whose workers have ended, as was promised

    def __post_init__(self) -> None:
        """Begin with no Pod."""
        super().__post_init__()
        self._kept = ((_BLOCKING, self._blocking), (_DOUBTED, self.doubted), (_LOST, self._lost), (_BACK, self._back))
        self._weigh_all()

    def observe(self, pod: PodView) -> bool:
        """Take in one Pod event; O(1)."""
        known = self._records.get(pod.uid)
        before = known.pod.slot if known is not None else pod.slot
        moved = super().observe(pod)
        if moved:
            self._weigh(pod.slot)
            if before != pod.slot:
                self._weigh(before)
        return moved

    def forget(self, uid: str) -> None:
        """Drop a Pod that is gone; O(1)."""
        record = self._records.get(uid)
        super().forget(uid)
        if record is not None:
            self._weigh(record.pod.slot)

    def vanish(self, uid: str) -> None:
        """Drop a Pod whose object is gone; if its end was not seen, its worker may run, or wait at a barrier. O(1)."""
        record = self._records.get(uid)
        if record is not None and may_run(record):
            self._note_gone(record)
        self.forget(uid)

    def fence(self, uid: str) -> None:
        """Count a Pod that leaves as gone: its worker has ended, and it joins only what it announced BEFORE. O(1)."""
        super().fence(uid)
        record = self._records.get(uid)
        if record is not None and record.fenced:
            if (record.epoch or 0) > self.synced:
                self._note_gone(record)
            self._weigh(record.pod.slot)

    def trust(self, slot: Slot) -> None:
        """Take a slot for one in which no worker of S is left: what its agent promised has passed since D >= S."""
        if not self._is_running():
            self._trusted.add(slot)
            self._weigh(slot)

    def relisted(self, version: int) -> None:
        """Note that events before `version` may have been missed; O(slots)."""
        self.since = max(self.since, version)
        self._weigh_all()

    def reshape(self, shape: Shape) -> None:
        """Expect other slots; O(Pods), once per resize."""
        if shape != self.shape:
            super().reshape(shape)
            self._weigh_all()

    def learn(self, synced: int, deprecated: int, members: Members | None = None) -> None:
        """Take in the JobSet's status; O(slots) where S grows. An S without members ends."""
        is_newer, before = synced > self.synced, self.members
        super().learn(synced, deprecated, members)
        if is_newer:
            self._trusted.clear()
            self._gone = {(slot, epoch) for slot, epoch in self._gone if epoch >= synced}
        if is_newer or self.members != before:
            self._weigh_all()

    def decide(
        self, *, restarts_max: int, uncounted: int = 0, waited: bool = False, avoided: frozenset[int] = frozenset()
    ) -> Decision:
        """Say what the status should be now; O(1) while a slot blocks, O(slots) when the barrier lifts.

        Args:
            restarts_max: spec.failurePolicy.maxRestarts.
            uncounted: epochs that were not counted restarts.
            waited: long enough for slots that are missing (`is_short`): fewer members than before may begin.
            avoided: units on nodes that Pods leave.
        """
        synced, deprecated = self.synced, self.deprecated
        if (found := self._find_lost()) is not None:  # who ran in it is lost, too: it is over
            return Decision(found[0], found[0], max(0, found[0] - 1 - uncounted))
        broken = self._is_running() and self._is_broken()
        must_restart = broken or self._is_restarting()
        restarts = max(0, synced + must_restart - 1 - uncounted)
        if self._is_behind() or self.is_done:
            return Decision(synced, deprecated, restarts, members=self.members)
        chosen = None if self._blocking or self._ghosts else self._choose(avoided, waited=waited)
        is_over = restarts > restarts_max and bool(self._back or chosen) and not self._awaits_the_dead()
        if is_over or (must_restart and synced == INT32_MAX):
            return Decision(synced, deprecated, restarts, exceeded=True, members=self.members)
        if chosen:
            return self._lift(chosen, restarts)
        deprecated = synced if broken else deprecated
        return Decision(synced, deprecated, restarts, recreate=self._to_recreate(), members=self.members)

    @property
    def is_done(self) -> bool:
        """Say whether every member of the running epoch completed: nothing restarts any more."""
        if not self._done or self.members is None or not self._is_running() or len(self._done) < self.expected:
            return False
        return all(slot in self._done for unit in self.playing for slot in self.shape.slots_of(unit))

    @property
    def is_short(self) -> bool:
        """Say whether units are missing for full strength; the caller waits from then on, before `waited`."""
        return len(self._coming) < self.sizes.most

    @property
    def grown(self) -> int:
        """Return the size that the running group would have after a restart, where that is larger; else 0."""
        if self.members is None or not self._is_running() or self._is_behind() or self.is_done:
            return 0
        size = self.sizes.fit(self.members.size + len(self._spares))
        return size if size > self.members.size else 0

    def plays(self, slot: Slot) -> bool:
        """Say whether a worker of epoch S belongs into a slot; where nobody knows, into any."""
        return self.shape.unit_of(slot) in self.playing

    @property
    def expected(self) -> int:
        """Return how many slots an epoch needs: of S while that runs, else of the next one at full strength."""
        is_known = self._is_running() and self.members is not None
        return self.shape.each * (len(self.playing) if is_known else self.sizes.most)

    def standing(self) -> PodCounts:
        """Count the Pods by what they do; while S runs its members, and who may take their ranks as spares."""
        if not (self._is_running() and self.members is not None):
            return super().standing()
        done, waiting, missing = sum(map(self.plays, self._done)), len(self._back), len(self._lost)
        running = max(0, self.expected - waiting - missing - done)
        return PodCounts(running, waiting, 0, missing, len(self._spares) * self.shape.each)

    def gathered(self) -> int:
        """Return how many slots have arrived in units that may become members; O(units)."""
        return sum(self._here[unit] for unit in self._coming)

    def absent(self, epoch: int, arrived: Mapping[tuple[str, int], int]) -> Iterator[tuple[Slot, tuple[str, ...]]]:
        """Yield each slot that is not at an epoch, with its Pods by UID; of S those of its members."""
        for slot, uids in super().absent(epoch, arrived):
            if epoch != self.synced or self.plays(slot):
                yield slot, uids

    def movable(self, leaving: frozenset[int], avoided: frozenset[int], saves: Callable[[], bool]) -> int:
        """Return how many members of a running epoch could leave these slots to spares.

        Args:
            leaving: units on nodes that Pods leave.
            avoided: these, and others that take no rank: a restart would move nobody to them.
            saves: says whether a restart leaves workers the time to save. Where it does not, and a Pod of such a unit
                ends already, none should leave before: its worker may be saving, and its end restarts the group.
        """
        if not leaving or self.members is None or not self._is_running() or self._is_behind() or self.is_done:
            return 0
        moving = leaving & self.playing
        slots = (self._occupants.get(slot, {}) for unit in moving for slot in self.shape.slots_of(unit))
        if any(one.pod.life is PodLife.LEAVING for pods in slots for one in pods.values()) and not saves():
            return 0
        return min(len(moving), self.spares(avoided))

    def spares(self, avoided: frozenset[int]) -> int:
        """Return how many units could take a rank of a running epoch."""
        return len(self._spares - avoided) if self.members is not None and self._is_running() else 0

    @property
    def announced(self) -> int:
        """Return the highest epoch that a live Pod of a member announced; a spare's restarts nobody."""
        return self.synced + bool(self._back)

    def _is_broken(self) -> bool:
        """Say whether epoch S must end: a member failed, is lost, or announced the next one, or nobody knows them."""
        return self.members is None or bool(self._broken or self._lost or self._back)

    def _is_behind(self) -> bool:
        """Say whether another controller counted in S what this one has not seen: it knows nothing of S."""
        return self.members is not None and max(self._seen, self.since) < self.members.seen

    def _choose(self, avoided: frozenset[int], *, waited: bool) -> list[int] | None:
        """Return the unit of each rank of the next epoch; None while the barrier waits."""
        before = self.members or Members(1, self.sizes.most)
        least = self.sizes.least if waited else min(self.sizes.most, before.size)
        size = self.sizes.fit(len(self._arrived))
        if not size >= least > 0:
            return None
        return choose(self._arrived, before, size, avoided)

    def _lift(self, chosen: list[int], restarts: int) -> Decision:
        """Return the decision that syncs the next epoch, or skips it where a member may have a double."""
        epoch, seen = self.next_epoch, max(self._seen, self.since)
        slots = (slot for unit in chosen for slot in self.shape.slots_of(unit))
        if (self._gone or not self._is_watched()) and any(map(self._may_have_a_double, slots)):
            before = self.members or Members(epoch, self.sizes.most)  # it keeps who plays which rank
            skipped = Members(epoch, before.size, before.exchanged, seen, skipped=True, pods=self.shape.pods)
            return Decision(epoch, epoch, restarts, members=skipped)
        members = members_of(epoch, chosen, seen, self._resume(chosen) if self._has_told() else None, self.shape.pods)
        return Decision(epoch, self.deprecated, restarts, members=members)

    def _resume(self, chosen: list[int]) -> Resume | None:
        """Return from which step the next epoch goes on; what spares tell counts for nothing."""
        before, pods = self.members, self.shape.pods
        # Else a part that a Pod saved is not of the whole that the members are now.
        same = before is not None and before.slots() == chosen and before.pods == pods
        return choose_resume(self._saved(chosen), same=same, tellers=self._saved(self.playing))

    def _saved(self, units: Iterable[int]) -> Iterator[Saved | None]:
        """Yield what the Pod of each slot told."""
        for slot in (slot for unit in units for slot in self.shape.slots_of(unit)):
            pods = self._occupants.get(slot, {}).values()
            yield next((record.pod.saved for record in pods if record.epoch == self.next_epoch), None)

    def _may_have_a_double(self, slot: Slot) -> bool:
        """Say whether another Pod of a slot may have announced S + 1, and wait at its barrier unseen."""
        return (slot, self.next_epoch) in self._gone or not (self._is_watched() or self._has_run(slot))

    def _is_watched(self) -> bool:
        """Say whether this ledger saw every event since S was synced."""
        if self.members is None:
            return self.synced == self.since == 0
        return self.since <= self.members.seen

    def _has_run(self, slot: Slot) -> bool:
        """Say whether a Pod of a slot ran in S: then it alone was its slot's Pod since."""
        pods = self._occupants.get(slot, {}).values()
        return any(record.pod.ran == self.synced > 0 for record in pods)

    def _is_doubted(self, slot: Slot) -> bool:
        """Say whether a worker of S may run unseen in a slot that plays a rank."""
        is_unseen = (slot, self.synced) in self._gone or not (self._is_watched() or self._has_run(slot))
        is_skipped = self.members is not None and self.members.skipped
        return is_unseen and not (is_skipped or slot in self._trusted or slot in self._done)

    def _is_vacant(self, slot: Slot) -> bool:
        """Say whether nothing of a slot may run that is not doubted."""
        for record in self._occupants.get(slot, {}).values():
            is_late = record.epoch is None or (record.epoch <= self.synced and not self.plays(slot))
            if not is_late or record.pod.life is not PodLife.LIVE or record.pod.uid in self._ahead:
                return False
        return True

    def _weigh_all(self) -> None:
        """Judge every slot; O(slots)."""
        self._pods_of_s = self.members.pods if self.members is not None else 0
        everyone = self.shape.units() if self.synced else ()
        self.playing = set(everyone if self.members is None else self.members.slots())
        for kept in (self._weights, self._blocking, self.doubted, self._lost, self._back):
            kept.clear()
        for units in (self._arrived, self._spares, self._coming, self._here, self._there):
            units.clear()
        for unit in self.playing.union(self.shape.units()):
            for slot in self.shape.slots_of(unit, self._pods_of_s):
                self._weigh(slot)

    def _weigh(self, slot: Slot) -> None:
        """Judge one slot; O(its Pods). A slot of no unit, of a Pod in nobody's place, is none."""
        if not self.shape.has_unit(slot, self._pods_of_s):
            return
        before, now = self._weights.get(slot, 0), self._weight(slot)
        if now == before:
            return
        self._weights[slot], unit = now, self.shape.unit_of(slot)
        for flag, slots in self._kept:
            if (before ^ now) & flag:
                slots.add(slot) if now & flag else slots.discard(slot)
        if (before ^ now) & _ARRIVED:
            self._count_in_unit(self._here, self._arrived, unit, 1 if now & _ARRIVED else -1)
            is_spare = unit in self._arrived and unit not in self.playing
            self._spares.add(unit) if is_spare else self._spares.discard(unit)
        there = _ARRIVED | _BLOCKING
        if (change := bool(now & there) - bool(before & there)) != 0:
            self._count_in_unit(self._there, self._coming, unit, change)

    def _weight(self, slot: Slot) -> int:
        """Say what a slot means now, in flags."""
        pods, weight = self._occupants.get(slot, {}), 0
        has_arrived = epoch_of_slot(pods) == self.synced + 1
        if self.plays(slot):
            live = [one.epoch for one in pods.values() if one.pod.life is PodLife.LIVE] if len(pods) > 1 else ()
            is_back = has_arrived or self.synced + 1 in live
            weight = _BACK * is_back + _LOST * self._is_lost(slot)
            if self._is_doubted(slot):
                return weight | _DOUBTED | _BLOCKING
        if has_arrived:
            return weight | _ARRIVED
        return weight if self._is_vacant(slot) else weight | _BLOCKING

    def _count_in_unit(self, counts: Counter[int], whole: set[int], unit: int, change: int) -> None:
        """Count one slot of a unit more (+1) or less (-1); `whole` has the units of which every slot counts."""
        bump(counts, unit, change)
        whole.add(unit) if counts[unit] == self.shape.each else whole.discard(unit)

    def _is_lost(self, slot: Slot) -> bool:
        """Say whether a member's Pod is gone; a slot that S did not know yet, as its Job grew since, lost none."""
        for one in self._occupants.get(slot, {}).values():
            if one.epoch or one.pod.epoch:
                return False
        return not (0 < self._pods_of_s <= slot.completion_index or slot in self._done)

    def _note_gone(self, record: Record) -> None:
        """Note what a Pod had announced of which nobody knows what still runs."""
        epoch = max(record.epoch or 0, record.pod.epoch or 0)
        if epoch > 0:
            self._gone.add((record.pod.slot, epoch))

    def _find_lost(self) -> tuple[int, int] | None:
        """Return S and D as Pods prove them where the status lost them: a spare stands one epoch beyond the members.

        A person may have written that spare's annotation: at a barrier that skips one epoch, once.
        """
        if not self._slots_ahead:
            return None
        are_there = bool(self._back) or (self.synced == 0 and bool(self._arrived))
        is_proven = are_there and self.next_epoch + 1 in self._slots_ahead
        return super()._find_lost() or ((self.next_epoch, self.next_epoch) if is_proven else None)

    def _to_recreate(self) -> frozenset[tuple[str, int]]:
        """Name the Jobs with completed Pods where too few units are left without them; else spares take their ranks."""
        found = super()._to_recreate()
        left = len(self.shape.units()) - len(set(map(self.shape.unit_of, self._done))) if found else 0
        return frozenset() if left >= self.sizes.most else found

    def _has_broken(self, record: Record) -> bool:
        """Say whether a member's worker of epoch S died."""
        return super()._has_broken(record) and self.plays(record.pod.slot)

    def _take_census(self) -> None:
        """Take none: who announces S late finds that it is not counted, and announces S + 1."""

    def _count(self, record: Record, sign: int) -> None:
        """Count one Pod in (+1) or out (-1)."""
        super()._count(record, sign)
        if record.pod.life is PodLife.SUCCEEDED and record.expected:
            bump(self._done, record.pod.slot, sign)
