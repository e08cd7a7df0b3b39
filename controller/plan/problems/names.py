"""Find names that make the API refuse our objects: V3, V6, V7 and V8 of upstream's webhook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import JobSet

NAME_CHARACTERS_MAX: Final = 63  # of a host name, and of a label's value; Jobs and Pods have their names as both
POD_SUFFIX: Final = "-xxxxx"  # what the Job controller appends to a Pod's name
_HOST: Final = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")  # RFC 1035, as Services and upstream's webhook have it


def bad_names(jobset: JobSet) -> Iterator[str]:
    """Yield which names are too long or no host names."""
    if not _HOST.fullmatch(jobset.name):
        yield (
            "metadata.name: expected lower-case letters, digits and '-', beginning with a letter, as in a host name, "
            f"saw {jobset.name!r}; the API refuses what is created for it; recreate the jobset under another name"
        )
    subdomain = jobset.network.subdomain
    if subdomain and not (_HOST.fullmatch(subdomain) and len(subdomain) <= NAME_CHARACTERS_MAX):
        yield (
            f"spec.network.subdomain: expected a host name of at most {NAME_CHARACTERS_MAX} characters, saw "
            f"{subdomain!r}; the API refuses the service and the jobs; recreate the jobset with another subdomain"
        )
    for job in jobset.replicated_jobs:
        yield from _bad_names_of(jobset, job)


def _bad_names_of(jobset: JobSet, job: ReplicatedJob) -> Iterator[str]:
    where = f'spec.replicatedJobs[name="{job.name}"]'
    if not (_HOST.fullmatch(job.group_name) and len(job.group_name) <= NAME_CHARACTERS_MAX):
        yield (
            f"{where}.groupName: expected a host name of at most {NAME_CHARACTERS_MAX} characters, for a label, "
            f"saw {job.group_name!r}; the API refuses the jobs; recreate the jobset with another groupName"
        )
    if job.replicas == 0:
        return
    name = jobset.job_name(job.name, job.replicas - 1)
    indexed = job.form.completion_mode != "NonIndexed"
    pod_name = f"{name}-{job.completions - 1}{POD_SUFFIX}" if indexed and job.completions > 0 else name
    for kind, longest in (("job", name), ("pod", pod_name)):
        if len(longest) > NAME_CHARACTERS_MAX:
            yield (
                f"{where}: JobSet name is too long, {kind} names generated for this JobSet will exceed "
                f"{NAME_CHARACTERS_MAX} characters: found {longest} ({len(longest)}); the API refuses the {kind}s; "
                "recreate the jobset with a shorter name of its own or of the replicatedJob"
            )
            return
