"""
The controller's ledger of a group with spares: its barrier lifts for some of the slots.

`Ledger` counts Pods; here is what a slot means for the barrier of S + 1, kept up to date in O(1) per Pod event:

    arrived    its only Pod announced S + 1, and nothing of an older epoch may run in it
    vacant     nothing of it may run: no Pod, one that never announced, or a spare that is late
    doubted    a Pod of a member went without its end seen, so its worker may still run: neither arrived nor vacant
    blocking   everything else, and what is doubted

The barrier lifts when no slot blocks and enough have arrived (`Sizes`). Spares decide nothing: what a status is
decided from are the slots of the members of S. Where nobody knows the members of S, every slot may be one of them.

A version is a resourceVersion as a number. The order of Pod events is that of their versions, so an announcement of a
version up to `seen` was taken in. But a Pod that announced S + 1 and went before `since`, a controller's first list, is
unknown, and may wait at the barrier beside its replacement. Where a member may have such a double, the epoch is
skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.counters import bump
from inplace.common.protocol.decision import Decision, PodCounts
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.members import Members, Sizes, choose, members_of, no_cost
from inplace.common.protocol.pod_record import Record, epoch_of_slot, may_run
from inplace.common.protocol.pod_view import PodLife, PodView
from inplace.common.protocol.resume import Resume, Saved, choose_resume
from inplace.common.protocol.slot import Shape, Slot


@dataclass
class MemberLedger(Ledger):
    """Counts the Pods of one replicatedJob with one Job; a slot's number is its completion index.

    Args:
        sizes: how many members there may be.
        since: from this version on the ledger sees every event: that of the list with which it began. 0: from the first
            Pod on.
    """

    sizes: Sizes = field(default_factory=lambda: Sizes(1, 1))
    since: int = 0
    _playing: set[int] = field(default_factory=set)  # slots that may be members of S
    _arrived: set[int] = field(default_factory=set)
    _spares: set[int] = field(default_factory=set)  # of these, those that may be no members of S
    _blocking: set[int] = field(default_factory=set)
    _doubted: set[int] = field(default_factory=set)
    _lost: set[int] = field(default_factory=set)  # members of S whose Pod is gone
    _back: set[int] = field(default_factory=set)  # members of S of which a live Pod announced S + 1
    _done: Counter[int] = field(default_factory=Counter)  # completed Pods, by slot
    _gone: set[tuple[int, int]] = field(default_factory=set)  # slot and epoch of Pods that announced; no end was seen
    _trusted: set[int] = field(default_factory=set)  # slots of S whose workers have ended, as was promised

    def __post_init__(self) -> None:
        """Begin with no Pod."""
        super().__post_init__()
        self._weigh_all()

    def observe(self, pod: PodView) -> bool:
        """Take in one Pod event; O(1)."""
        known = self._records.get(pod.uid)
        before = known.pod.slot if known is not None else pod.slot
        moved = super().observe(pod)
        if moved:
            self._weigh(pod.slot.completion_index)
            if before != pod.slot:
                self._weigh(before.completion_index)
        return moved

    def forget(self, uid: str) -> None:
        """Drop a Pod that is gone; O(1)."""
        record = self._records.get(uid)
        super().forget(uid)
        if record is not None:
            self._weigh(record.pod.slot.completion_index)

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
            self._weigh(record.pod.slot.completion_index)

    def trust(self, number: int) -> None:
        """Take a slot for one in which no worker of S is left: what its agent promised has passed since D >= S."""
        if not self._is_running():
            self._trusted.add(number)
            self._weigh(number)

    def relisted(self, version: int) -> None:
        """Note that events before `version` may have been missed; O(slots)."""
        self.since = max(self.since, version)
        self._weigh_all()

    def reshape(self, shape: Shape) -> None:
        """Expect other slots; O(Pods), once per resize."""
        super().reshape(shape)
        self._weigh_all()

    def learn(self, synced: int, deprecated: int, members: Members | None = None) -> None:
        """Take in the JobSet's status; O(slots) where S grows. An S without members ends."""
        is_newer, before = synced > self.synced, self.members
        super().learn(synced, deprecated, members)
        if is_newer:
            self._trusted.clear()
            self._gone = {(number, epoch) for number, epoch in self._gone if epoch >= synced}
        if is_newer or self.members != before:
            self._weigh_all()

    def decide(
        self,
        *,
        restarts_max: int,
        uncounted: int = 0,
        waited: bool = False,
        avoided: frozenset[int] = frozenset(),
        cost: Callable[[int, int], int] = no_cost,
    ) -> Decision:
        """Say what the status should be now; O(1) while a slot blocks, O(slots) when the barrier lifts.

        Args:
            restarts_max: spec.failurePolicy.maxRestarts.
            uncounted: epochs that were not counted restarts.
            waited: long enough for slots that are missing (`is_short`): fewer members than before may begin.
            avoided: slots on nodes that Pods leave.
            cost: of giving a rank to a slot; see `members.choose`.
        """
        synced, deprecated = self.synced, self.deprecated
        if (found := self._find_lost()) is not None:  # who ran in it is lost, too: it is over
            return Decision(found[0], found[0], max(0, found[0] - 1 - uncounted))
        broken = self._is_running() and self._is_broken()
        restarts = max(0, synced + (broken or self._is_restarting()) - 1 - uncounted)
        if self._is_behind() or self.is_done:
            return Decision(synced, deprecated, restarts, members=self.members)
        chosen = self._choose(avoided, cost, waited=waited)
        is_over = restarts > restarts_max and bool(self._back or chosen) and not self._awaits_the_dead()
        if is_over or ((broken or self._is_restarting()) and synced == INT32_MAX):
            return Decision(synced, deprecated, restarts, exceeded=True, members=self.members)
        if chosen:
            return self._lift(chosen, restarts)
        deprecated = synced if broken else deprecated
        return Decision(synced, deprecated, restarts, recreate=self._to_recreate(), members=self.members)

    @property
    def is_done(self) -> bool:
        """Say whether every member of the running epoch completed: nothing restarts any more."""
        is_known = self._is_running() and self.members is not None
        return is_known and len(self._done) >= len(self._playing) and self._done.keys() >= self._playing

    @property
    def is_short(self) -> bool:
        """Say whether slots are missing for full strength; the caller waits from then on, before `waited`."""
        return len(self._arrived) + len(self._blocking) < self.sizes.most

    @property
    def grown(self) -> int:
        """Return the size that the running group would have after a restart, where that is larger; else 0."""
        if self.members is None or not self._is_running() or self._is_behind() or self.is_done:
            return 0
        size = self.sizes.fit(self.members.size + len(self._spares))
        return size if size > self.members.size else 0

    def plays(self, slot: Slot) -> bool:
        """Say whether a worker of epoch S belongs into a slot; where nobody knows, into any."""
        return slot.completion_index in self._playing

    @property
    def expected(self) -> int:
        """Return how many slots an epoch needs: of S while that runs, else of the next one at full strength."""
        is_known = self._is_running() and self.members is not None
        return len(self._playing) if is_known else self.sizes.most

    def standing(self) -> PodCounts:
        """Count the Pods by what they do; while S runs its members, and who may take their ranks as spares."""
        if not (self._is_running() and self.members is not None):
            return super().standing()
        done = len(self._playing.intersection(self._done))
        waiting, missing = len(self._back), len(self._lost)
        running = max(0, len(self._playing) - waiting - missing - done)
        return PodCounts(running, waiting, 0, missing, len(self._spares))

    def absent(self, epoch: int, arrived: Mapping[tuple[str, int], int]) -> Iterator[tuple[Slot, tuple[str, ...]]]:
        """Yield each slot that is not at an epoch, with its Pods by UID; of S those of its members."""
        for slot, uids in super().absent(epoch, arrived):
            if epoch != self.synced or self.plays(slot):
                yield slot, uids

    def movable(self, leaving: frozenset[int], avoided: frozenset[int], saves: Callable[[], bool]) -> int:
        """Return how many members of a running epoch could leave these slots to spares.

        Args:
            leaving: slots on nodes that Pods leave.
            avoided: these, and others that take no rank: a restart would move nobody to them.
            saves: says whether a restart leaves workers the time to save. Where it does not, and the Pod of such a slot
                ends already, none should leave before: its worker may be saving, and its end restarts the group.
        """
        if not leaving or self.members is None or not self._is_running() or self._is_behind() or self.is_done:
            return 0
        moving = leaving & self._playing
        if any(self._is_ending(number) for number in moving) and not saves():
            return 0
        return min(len(moving), self.spares(avoided))

    def spares(self, avoided: frozenset[int]) -> int:
        """Return how many slots could take a rank of a running epoch."""
        return len(self._spares - avoided) if self.members is not None and self._is_running() else 0

    @property
    def doubted(self) -> frozenset[int]:
        """Return the slots in which a worker of S may run unseen; `trust` ends that."""
        return frozenset(self._doubted)

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

    def _choose(self, avoided: frozenset[int], cost: Callable[[int, int], int], *, waited: bool) -> list[int] | None:
        """Return the slot of each rank of the next epoch; None while the barrier waits."""
        before = self.members or Members(1, self.sizes.most)
        least = self.sizes.least if waited else min(self.sizes.most, before.size)
        size = self.sizes.fit(len(self._arrived))
        if self._blocking or self._ghosts or not size >= least > 0:
            return None
        return choose(self._arrived, before, size, avoided, cost)

    def _lift(self, chosen: list[int], restarts: int) -> Decision:
        """Return the decision that syncs the next epoch, or skips it where a member may have a double."""
        epoch, seen = self.next_epoch, max(self._seen, self.since)
        if any(self._may_have_a_double(number) for number in chosen):
            before = self.members or Members(epoch, self.sizes.most)  # it keeps who plays which rank
            skipped = Members(epoch, before.size, before.exchanged, seen, skipped=True)
            return Decision(epoch, epoch, restarts, members=skipped)
        members = members_of(epoch, chosen, seen, self._resume(chosen))
        return Decision(epoch, self.deprecated, restarts, members=members)

    def _resume(self, chosen: list[int]) -> Resume | None:
        """Return from which step the next epoch goes on; what spares tell counts for nothing."""
        saved = {number: self._saved(number) for number in {*chosen, *self._playing}}
        same = self.members is not None and self.members.slots() == chosen
        return choose_resume((saved[number] for number in chosen), same=same, tellers=map(saved.get, self._playing))

    def _saved(self, number: int) -> Saved | None:
        """Return what the Pod of a slot told."""
        pods = self._occupants.get(self._slot(number), {}).values()
        return next((record.pod.saved for record in pods if record.epoch == self.next_epoch), None)

    def _may_have_a_double(self, number: int) -> bool:
        """Say whether another Pod of a slot may have announced S + 1, and wait at its barrier unseen."""
        return (number, self.next_epoch) in self._gone or not (self._is_watched() or self._has_run(number))

    def _is_watched(self) -> bool:
        """Say whether this ledger saw every event since S was synced."""
        if self.members is None:
            return self.synced == self.since == 0
        return self.since <= self.members.seen

    def _has_run(self, number: int) -> bool:
        """Say whether a Pod of a slot ran in S: then it alone was its slot's Pod since."""
        pods = self._occupants.get(self._slot(number), {}).values()
        return any(record.pod.ran == self.synced > 0 for record in pods)

    def _is_doubted(self, number: int) -> bool:
        """Say whether a worker of S may run in a slot unseen."""
        if number not in self._playing or number in self._trusted or number in self._done:
            return False
        if self.members is not None and self.members.skipped:
            return False
        return (number, self.synced) in self._gone or not (self._is_watched() or self._has_run(number))

    def _is_vacant(self, number: int) -> bool:
        """Say whether nothing of a slot may run that is not doubted."""
        return all(
            record.pod.life is PodLife.LIVE
            and (record.epoch is None or (record.epoch <= self.synced and number not in self._playing))
            and record.pod.uid not in self._ahead
            for record in self._occupants.get(self._slot(number), {}).values()
        )

    def _is_ending(self, number: int) -> bool:
        """Say whether a Pod of a slot is about to end."""
        pods = self._occupants.get(self._slot(number), {}).values()
        return any(record.pod.life is PodLife.LEAVING for record in pods)

    def _weigh_all(self) -> None:
        """Judge every slot; O(slots)."""
        everyone = range(self.shape.size if self.synced else 0)
        self._playing = set(everyone if self.members is None else self.members.slots())
        for slots in (self._arrived, self._spares, self._blocking, self._doubted, self._lost, self._back):
            slots.clear()
        for number in self._playing.union(range(self.shape.size)):
            self._weigh(number)

    def _weigh(self, number: int) -> None:
        """Judge one slot; O(its Pods)."""
        pods = self._occupants.get(self._slot(number), {})
        for slots in (self._arrived, self._spares, self._blocking, self._doubted, self._lost, self._back):
            slots.discard(number)
        if number in self._playing:
            if number not in self._done and not any(record.epoch or record.pod.epoch for record in pods.values()):
                self._lost.add(number)
            if any(record.epoch == self.next_epoch and record.pod.life is PodLife.LIVE for record in pods.values()):
                self._back.add(number)
        if self._is_doubted(number):
            self._doubted.add(number)
            self._blocking.add(number)
        elif epoch_of_slot(pods) == self.next_epoch:
            self._arrived.add(number)
            if number not in self._playing:
                self._spares.add(number)
        elif not self._is_vacant(number):
            self._blocking.add(number)

    def _note_gone(self, record: Record) -> None:
        """Note what a Pod had announced of which nobody knows what still runs."""
        epoch = max(record.epoch or 0, record.pod.epoch or 0)
        if record.expected and epoch > 0:
            self._gone.add((record.pod.slot.completion_index, epoch))

    def _find_lost(self) -> tuple[int, int] | None:
        """Return S and D as Pods prove them where the status lost them: a spare stands one epoch beyond the members.

        A person may have written that spare's annotation: at a barrier that skips one epoch, once.
        """
        are_there = bool(self._back) or (self.synced == 0 and bool(self._arrived))
        is_proven = are_there and self._slots_ahead[self.next_epoch + 1] > 0
        return super()._find_lost() or ((self.next_epoch, self.next_epoch) if is_proven else None)

    def _to_recreate(self) -> frozenset[tuple[str, int]]:
        """Name the Job with completed Pods where too few slots are left without them; else spares take their ranks."""
        is_enough = self.shape.size - len(self._done) >= self.sizes.most
        return frozenset() if is_enough else super()._to_recreate()

    def _has_broken(self, record: Record) -> bool:
        """Say whether a member's worker of epoch S died."""
        return record.pod.slot.completion_index in self._playing and super()._has_broken(record)

    def _take_census(self) -> None:
        """Take none: who announces S late finds that it is not counted, and announces S + 1."""

    def _count(self, record: Record, sign: int) -> None:
        """Count one Pod in (+1) or out (-1)."""
        super()._count(record, sign)
        if record.expected and record.pod.life is PodLife.SUCCEEDED:
            bump(self._done, record.pod.slot.completion_index, sign)

    def _slot(self, number: int) -> Slot:
        """Return a slot by its number."""
        return Slot(next(iter(self.shape.replicated_jobs), ""), 0, number)
