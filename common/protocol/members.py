"""
The members of an epoch: which unit plays which rank. A group with spares has more units than it needs.

A unit is a Pod of the one Job of a replicatedJob, or a whole Job of one that has several: a slice, a rack. Units are
numbers from 0 to n - 1: a Pod's completion index, a Job's index. Ranks are 0 to size - 1. Rank r is played by unit r
unless the list says otherwise, so that a lost member's rank is taken over and nobody else moves. A unit that announced
and plays no rank is a spare.

Within a Job each Pod keeps its place: of Jobs with 4 Pods each, Pod 1 of the Job that plays rank 3 has the rank 13
among all Pods (`Members.place_of`). Pure, and on the agent's start path.
"""

from __future__ import annotations

from inplace.common.bare.record import record
from inplace.common.bare.typed import TYPE_CHECKING, Final
from inplace.common.protocol.resume import Resume

if TYPE_CHECKING:
    from collections.abc import Iterable

SLOTS_MAX: Final = 5_500  # Pods of a group with spares: 5,000 members and 500 spares; the text stays below 6 kB
EXCHANGES_MAX: Final = 500  # ranks that another slot plays; with more of them lost at once the barrier waits


@record
class Sizes:
    """How many members a group may have.

    Args:
        least: 1 <= least <= most.
        most: at most the number of units.
        step: sizes are most, most - step, and so on down to least.
    """

    least: int
    most: int
    step: int = 1

    def fit(self, available: int) -> int:
        """Return the largest size for so many units; 0 for none."""
        missing = max(0, self.most - available)
        size = self.most - self.step * -(-missing // self.step)  # so many steps, rounded up
        return size if size >= self.least else 0

    def of_pods(self, each: int) -> Sizes:
        """Return the same in Pods, of so many for each member."""
        return Sizes(self.least * each, self.most * each, self.step * each)


@record
class Members:
    """Who runs in an epoch.

    Args:
        epoch: int32 >= 1.
        size: so many ranks.
        exchanged: (rank, unit) of each rank that another unit plays, by rank.
        seen: the version up to which the controller had taken in announcements.
        skipped: it counted none of them: nobody runs in this epoch, and the ranks are those of the one before.
        resume: from which step they go on; None where nobody can say.
        everyone: of a group without spares: each of its `size` slots is a member, and nobody plays another's rank.
        pods: of each Job, where the units are Jobs; 0 where they are Pods.
    """

    epoch: int
    size: int
    exchanged: tuple[tuple[int, int], ...] = ()
    seen: int = 0
    skipped: bool = False
    resume: Resume | None = None
    everyone: bool = False
    pods: int = 0

    def rank_of(self, unit: int) -> int | None:
        """Return the rank that a unit plays; None for a spare. O(exchanged)."""
        for rank, player in self.exchanged:
            if player == unit:
                return rank
        is_away = any(rank == unit for rank, _ in self.exchanged)
        return unit if unit < self.size and not is_away else None

    def unit_of(self, job: int, index: int) -> int:
        """Return the unit of a Pod, by its Job's index and its own in that Job."""
        return job if self.pods else index

    def place_of(self, job: int, index: int) -> int | None:
        """Return the rank of a Pod among all Pods of the members, by the same; None for a spare's."""
        rank = self.rank_of(self.unit_of(job, index))
        if rank is None or not self.pods:
            return rank
        return rank * self.pods + index if index < self.pods else None

    @property
    def pods_in_all(self) -> int:
        """Return how many Pods are members, or of members."""
        return self.size * (self.pods or 1)

    def slots(self) -> list[int]:
        """Return the unit of each rank."""
        slots = list(range(self.size))
        for rank, slot in self.exchanged:
            slots[rank] = slot
        return slots

    def is_sound(self) -> bool:
        """Say whether each rank is played by one unit, and no unit plays two."""
        ranks = [rank for rank, _ in self.exchanged]
        slots = self.slots() if all(rank < self.size for rank in ranks) else [0, 0]
        return len(set(slots)) == len(slots) and ranks == sorted(set(ranks))


def members_of(epoch: int, slots: list[int], seen: int, resume: Resume | None = None, pods: int = 0) -> Members:
    """Return the members of which the unit `slots[r]` plays rank r."""
    exchanged = tuple((rank, slot) for rank, slot in enumerate(slots) if rank != slot)
    return Members(epoch, len(slots), exchanged, seen, resume=resume, pods=pods)


def of_epoch(members: Members | None, epoch: int) -> Members | None:
    """Return the list if it is that of an epoch; else None."""
    return members if members is not None and members.epoch == epoch else None


def choose(
    arrived: Iterable[int], before: Members, size: int, avoided: frozenset[int] = frozenset()
) -> list[int] | None:
    """Choose the slot of each rank; None where more than EXCHANGES_MAX ranks would be exchanged.

    Who played a rank keeps it. One that is lost, or played by a slot that is to be avoided, goes to a spare. An avoided
    slot plays on where no other one is left.

    Args:
        arrived: slots that may be members, at least `size` of them.
        before: the members of the epoch before.
        size: so many ranks.
        avoided: slots on nodes that Pods leave.
    """
    here, was = set(arrived), before.slots()
    played = set(was)
    owners = was[:size] + list(range(len(was), size))
    found = {rank: slot for rank, slot in enumerate(was[:size]) if slot in here and slot not in avoided}
    free = here.difference(found.values())
    # Lost ranks first: where the spares are too few, it is the avoided players that keep theirs.
    for rank in sorted(set(range(size)).difference(found), key=lambda rank: owners[rank] in here):
        own = owners[rank]
        prices = {slot: (slot in avoided, slot not in played, slot != own, slot) for slot in free}
        found[rank] = min(free, key=prices.__getitem__)
        free.remove(found[rank])
    slots = [found[rank] for rank in range(size)]
    if _exchanges(slots) > EXCHANGES_MAX:
        others = iter([slot for slot in slots if slot >= size])
        chosen = set(slots)
        slots = [rank if rank in chosen else next(others) for rank in range(size)]
    return slots if _exchanges(slots) <= EXCHANGES_MAX else None


def _exchanges(slots: list[int]) -> int:
    return sum(rank != slot for rank, slot in enumerate(slots))
