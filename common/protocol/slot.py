"""Slots: the Pods a JobSet expects, one name each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

    def __post_init__(self) -> None:
        """Count the slots: their number is asked at every Pod event."""
        whole = sum(replicas * parallelism for replicas, parallelism in self.replicated_jobs.values())
        gone = sum(self.replicated_jobs[name][1] for name, _ in self.without)
        object.__setattr__(self, "size", whole - gone)

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
