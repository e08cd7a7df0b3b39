"""The names of a JobSet's Jobs, `<jobset>-<replicatedJob>-<index>`: computed and parsed, never kept in a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from inplace.common.bare.record import record
from inplace.common.jobset.fields import ReplicatedJob

_DIGITS_MAX = 10  # of an int32; a Job of another program may have any name

Place = tuple[str, int]
"""Name of a replicatedJob, and index of a Job in it."""


def job_of_pod(pod: str) -> str:
    """Return the name of the Job that made a Pod of this name, JOB-INDEX-SUFFIX; the Pod itself may be gone."""
    return pod.rsplit("-", 2)[0]


class Places(Mapping[str, Place]):
    """Every expected Job name with its place, in spec order; costs nothing until a caller goes through all of them."""

    def __init__(self, jobset_name: str, replicated_jobs: Sequence[ReplicatedJob]) -> None:
        self._prefix = f"{jobset_name}-"
        self._replicas = {job.name: max(0, job.replicas) for job in replicated_jobs}
        self._first: dict[str, int] = {}
        self._size = 0
        for name, replicas in self._replicas.items():
            self._first[name] = self._size
            self._size += replicas
        self._found: dict[str, Place | None] = {}  # names that were looked up: those of Jobs that exist

    def find(self, name: str) -> Place | None:
        """Return the place of a Job name; None where there is none."""
        try:
            return self._found[name]
        except KeyError:
            place = self._found[name] = self._read(name)
            return place

    def __getitem__(self, name: str) -> Place:
        place = self.find(name)
        if place is None:
            raise KeyError(name)
        return place

    def __iter__(self) -> Iterator[str]:
        for name, replicas in self._replicas.items():
            yield from (f"{self._prefix}{name}-{index}" for index in range(replicas))

    def __len__(self) -> int:
        return self._size

    def position(self, name: str) -> int:
        """Return where a Job name stands in spec order; names of no expected place come last."""
        place = self.find(name)
        return self._size if place is None else self._first[place[0]] + place[1]

    def _read(self, name: str) -> Place | None:
        """Find the place of a name; a replicatedJob's name may hold hyphens, an index never does."""
        if not name.startswith(self._prefix):
            return None
        replicated_job, _, digits = name[len(self._prefix) :].rpartition("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS_MAX:
            return None
        index = int(digits)
        is_expected = index < self._replicas.get(replicated_job, 0) and str(index) == digits
        return (replicated_job, index) if is_expected else None


@record
class Numbers:
    """How Jobs are counted within their group (groupName), and slots among those that restart together; made once.

    Args:
        jobs: how many Jobs a group has.
        first_job: by replicatedJob, the number in its group of its first Job.
        slots: how many slots a scope has.
        first_slot: by replicatedJob, the number in its scope of its first slot.
    """

    jobs: Mapping[str, int]
    first_job: Mapping[str, int]
    slots: Mapping[str, int]
    first_slot: Mapping[str, int]

    @classmethod
    def of(cls, members: Iterable[tuple[str, ReplicatedJob]]) -> Numbers:
        """Count; `members` are the replicatedJobs in spec order, with their scopes."""
        jobs: Counter[str] = Counter()
        slots: Counter[str] = Counter()
        first_job, first_slot = {}, {}
        for scope, job in members:
            first_job[job.name], first_slot[job.name] = jobs[job.group_name], slots[scope]
            jobs[job.group_name] += job.replicas
            slots[scope] += 0 if job.has_opted_out else job.replicas * job.parallelism
        return cls(jobs, first_job, slots, first_slot)
