"""Slots: the Pods a JobSet expects, one name each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Slot(NamedTuple):
    """One expected Pod: replicatedJob, index of the Job in it, completion index in that Job."""

    replicated_job: str
    job_index: int
    completion_index: int

    def __str__(self) -> str:
        """Return `workers-0-3`, the form that Pod names carry."""
        return f"{self.replicated_job}-{self.job_index}-{self.completion_index}"


@dataclass(frozen=True, slots=True)
class Shape:
    """How many Pods a JobSet expects.

    Args:
        replicated_jobs: name -> (replicas, parallelism), both >= 0.
        without: (replicatedJob, job index) of Jobs that left for good; each is one of the above.
    """

    replicated_jobs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    without: frozenset[tuple[str, int]] = frozenset()
    size: int = field(init=False, compare=False, repr=False)  # N, the number of expected slots
    pods: int = field(init=False, compare=False, repr=False)  # of each Job, where Jobs are units; 0 where Pods are
    each: int = field(init=False, compare=False, repr=False)  # so many slots has a unit

    def __post_init__(self) -> None:
        """Count the slots: their number is asked at every Pod event."""
        whole = sum(replicas * parallelism for replicas, parallelism in self.replicated_jobs.values())
        gone = sum(self.replicated_jobs[name][1] for name, _ in self.without)
        object.__setattr__(self, "size", whole - gone)
        replicas, parallelism = next(iter(self.replicated_jobs.values()), (0, 0))
        object.__setattr__(self, "pods", parallelism if replicas > 1 else 0)
        object.__setattr__(self, "each", self.pods or 1)

    def __iter__(self) -> Iterator[Slot]:
        """Yield the expected slots in their order."""
        for name, job_index in self.jobs():
            yield from (Slot(name, job_index, index) for index in range(self.size_of(name, job_index)))

    def jobs(self) -> Iterator[tuple[str, int]]:
        """Yield the (replicatedJob, job index) of each expected Job, in their order."""
        for name, (replicas, _) in self.replicated_jobs.items():
            yield from ((name, index) for index in range(replicas) if (name, index) not in self.without)

    def size_of(self, replicated_job: str, job_index: int) -> int:
        """Return how many slots one Job has; 0 for one that is not expected."""
        replicas, parallelism = self.replicated_jobs.get(replicated_job, (0, 0))
        is_expected = 0 <= job_index < replicas and (replicated_job, job_index) not in self.without
        return parallelism if is_expected else 0

    def expects(self, slot: Slot) -> bool:
        """Say whether `slot` is one of the expected ones."""
        replicas, parallelism = self.replicated_jobs.get(slot.replicated_job, (0, 0))
        is_inside = 0 <= slot.job_index < replicas and 0 <= slot.completion_index < parallelism
        return is_inside and (not self.without or slot[:2] not in self.without)

    # Of a group with spares, which is one replicatedJob: what plays a rank is a unit (`common.protocol.members`).

    def units(self) -> Sequence[int]:
        """Return the numbers of the units: of the expected Jobs where it has several, else of the one Job's Pods."""
        return [index for _, index in self.jobs()] if self.pods else range(self.size)

    def unit_of(self, slot: Slot) -> int:
        """Return the number of a slot's unit."""
        return slot.job_index if self.pods else slot.completion_index

    def has_unit(self, slot: Slot, pods: int = 0) -> bool:
        """Say whether a slot is one of a unit, also of one that is not expected; `pods` as in `slots_of`."""
        is_inside = slot.completion_index < max(self.pods, pods) if self.pods else slot.job_index == 0
        return is_inside and slot.replicated_job in self.replicated_jobs

    def slots_of(self, unit: int, pods: int = 0) -> Iterator[Slot]:
        """Yield the slots of a unit, also of one that is not expected; where a Job had more Pods, also those."""
        name = next(iter(self.replicated_jobs), "")
        if self.pods:
            return (Slot(name, unit, index) for index in range(max(self.pods, pods)))
        return iter((Slot(name, 0, unit),))
