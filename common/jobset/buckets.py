"""Sort the Jobs of a JobSet: from an earlier restart, active, finished, or not the JobSet's."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Final

from inplace.common.bare.record import record
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Job
from inplace.common.jobset.rules import left_failed
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire

ATTEMPTS_KEPT: Final = 1_024  # texts, each of at most 256 characters


class Bucket(Enum):
    """Where a Job stands."""

    PREVIOUS = "previous"  # of an earlier restart: to be deleted
    ACTIVE = "active"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    STRAY = "stray"  # ours by UID, but of no expected name: left alone


@record
class Buckets:
    """The Jobs of a JobSet, sorted by where they stand; names in each bucket are in spec order.

    Args:
        unreadable: those of `previous` whose attempt is unreadable.
    """

    previous: tuple[Job, ...]
    active: tuple[Job, ...]
    successful: tuple[Job, ...]
    failed: tuple[Job, ...]
    unreadable: tuple[Job, ...]
    left: tuple[Job, ...] = ()  # failed too, and the failure policy leaves them so

    @classmethod
    def of(cls, jobset: JobSet, jobs: Mapping[str, Job], matches: Mapping[str, int | None]) -> Buckets:
        """Sort the Jobs; `matches` says which rule of the failure policy each failed one matches."""
        sorted_jobs: dict[Bucket, list[Job]] = {bucket: [] for bucket in Bucket}
        unreadable = []
        places = jobset.places
        for name in sorted(jobs, key=lambda name: (places.position(name), name)):
            job = jobs[name]
            bucket = bucket_of(jobset, job)
            sorted_jobs[bucket].append(job)
            if bucket is Bucket.PREVIOUS and (attempt_of(job) is None or job_attempt_of(job) is None):
                unreadable.append(job)
        failed = sorted_jobs[Bucket.FAILED]
        left = tuple(left_failed(jobset, failed, matches))
        stay = {job.metadata.uid for job in left}
        return cls(
            previous=tuple(sorted_jobs[Bucket.PREVIOUS]),
            active=tuple(sorted_jobs[Bucket.ACTIVE]),
            successful=tuple(sorted_jobs[Bucket.SUCCESSFUL]),
            failed=tuple(job for job in failed if job.metadata.uid not in stay),
            unreadable=tuple(unreadable),
            left=left,
        )

    @property
    def current(self) -> tuple[Job, ...]:
        """Return the Jobs of this restart attempt."""
        return self.active + self.successful + self.failed + self.left


def bucket_of(jobset: JobSet, job: Job) -> Bucket:
    """Say where one Job stands; asked at every Pod event and in every pass, so the answer is kept with the JobSet."""
    judged = jobset.judged.get(job.metadata.uid)
    if judged is None or judged[0] is not job:
        judged = jobset.judged[job.metadata.uid] = job, _judge(jobset, job)
    bucket: Bucket = judged[1]
    return bucket


def _judge(jobset: JobSet, job: Job) -> Bucket:
    """Find the bucket.

    A Job in a place of ours whose restart-attempt is unreadable, as label and as annotation, counts as
    previous: it is deleted and created anew, which cures it. So does a broken job-restart-attempt; one that is missing
    is 0, because controllers that cannot restart single Jobs do not write it.
    """
    attempt, job_attempt = attempt_of(job), job_attempt_of(job)
    if attempt is not None and attempt < jobset.restarts:
        return Bucket.PREVIOUS
    place = jobset.places.find(job.metadata.name)
    if place is None:
        return Bucket.STRAY
    if attempt is None or job_attempt is None or job_attempt < jobset.job_restarts_of(*place):
        return Bucket.PREVIOUS
    if job.condition("Failed") is not None:
        return Bucket.FAILED
    if job.condition("Complete") is not None:
        return Bucket.SUCCESSFUL
    return Bucket.ACTIVE


def attempt_of(job: Job) -> int | None:
    """Read a Job's restart-attempt: the label, or the annotation if the label is broken."""
    metadata = job.metadata
    first, second = (keys.attempt if keys else None for keys in (metadata.labels, metadata.annotations))
    attempt = _read_attempt(first)
    return attempt if attempt is not None else _read_attempt(second)


def job_attempt_of(job: Job) -> int | None:
    """Read a Job's job-restart-attempt, as `attempt_of` does; 0 when there is none."""
    metadata = job.metadata
    first, second = (keys.job_attempt if keys else None for keys in (metadata.labels, metadata.annotations))
    if first is None and second is None:
        return 0
    attempt = _read_attempt(first)
    return attempt if attempt is not None else _read_attempt(second)


def execution_of(job: Job) -> int | None:
    """Read in which execution a Job began to run; None for a Job that carries no readable number."""
    annotations = job.metadata.annotations
    return _read_attempt(annotations.execution) if annotations else None


@lru_cache(maxsize=ATTEMPTS_KEPT)
def _read_attempt(text: str | None) -> int | None:
    """Read a counter; None for what is none. Most Jobs have the same few, and a pass reads two of each of 10,000."""
    try:
        return wire.parse_int32(text, "attempt", least=0)
    except RemoteProtocolError:
        return None


def is_current(jobset: JobSet, job: Job) -> bool:
    """Say whether a Job's Pods belong to the group as it should be now."""
    return not job.is_leaving and bucket_of(jobset, job) in (Bucket.ACTIVE, Bucket.SUCCESSFUL, Bucket.FAILED)


def is_ready(job: Job) -> bool:
    """Say whether every Pod of an active Job is ready or done."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    wanted = parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)
    return (job.status.succeeded or 0) + (job.status.ready or 0) >= wanted
