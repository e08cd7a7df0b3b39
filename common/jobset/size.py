"""
Bound the size of a JobSet: beyond these bounds the controller only sets the condition SpecProblem.

A spec of 500 bytes can ask for 2^31 Pods. The controller's cost for a JobSet follows the Jobs and Pods that exist, with
two exceptions: a pass looks at the place of each Job, and a barrier counts slots that can be filled. docs/adr/0056
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inplace.common.jobset.fields import ReplicatedJob

REPLICATED_JOBS_MAX: Final = 100  # our CRD's; some steps compare each of them with each, which is 10,000 looks
JOBS_MAX: Final = 10_000  # of one JobSet: a pass takes 10 us for each, and nothing else runs meanwhile
SLOTS_MAX: Final = 100_000  # of the groups of one JobSet: what Kubernetes allows one Indexed Job; a cluster has 150,000
ANNOTATION_BYTES_MAX: Final = 252 * 1024  # of a template: the API takes 256 KiB, and ours are up to 4 KiB of them
ETCD_BYTES_MAX: Final = 1_536 * 1024  # of one object, by etcd's default; a JobSet of the user's is below it
TEMPLATE_BYTES_MAX: Final = ETCD_BYTES_MAX - 48 * 1024  # of JSON; labels, annotations and an agent are added to the Job
CURE: Final = "nothing is done for this jobset; recreate it smaller, or divide it into several"


def oversize(replicated_jobs: Sequence[ReplicatedJob], *, in_place: bool) -> Iterator[str]:
    """Yield why a JobSet is larger than this controller takes; only groups that restart in place have slots."""
    where = "spec.replicatedJobs"
    if (count := len(replicated_jobs)) > REPLICATED_JOBS_MAX:
        yield f"{where}: expected at most {REPLICATED_JOBS_MAX} of them, saw {count}; {CURE}"
    if (jobs := sum(job.replicas for job in replicated_jobs)) > JOBS_MAX:
        yield f"{where}: expected replicas of at most {JOBS_MAX:,} in all of them together, saw {jobs:,}; {CURE}"
    for job in replicated_jobs:
        if (size := job.form.annotation_bytes) > ANNOTATION_BYTES_MAX:
            yield (
                f'{where}[name="{job.name}"].template: expected annotations of at most {ANNOTATION_BYTES_MAX:,} bytes, '
                f"saw {size:,}: the API refuses a job whose annotations, ours included, exceed 262,144; {CURE}"
            )
    members = [job for job in replicated_jobs if in_place and not job.has_opted_out]
    if (slots := sum(job.replicas * job.parallelism for job in members)) > SLOTS_MAX:
        yield (
            f"{where}: expected replicas * parallelism of at most {SLOTS_MAX:,} pods that restart together in place, "
            f"saw {slots:,}; {CURE}"
        )


def heavy_templates(replicated_jobs: Sequence[ReplicatedJob]) -> Iterator[str]:
    """Yield which templates leave too little room for what a Job gets beside them; a server may take larger ones."""
    for job in replicated_jobs:
        if (size := len(job.template_json)) > TEMPLATE_BYTES_MAX:
            yield (
                f'spec.replicatedJobs[name="{job.name}"].template: expected at most {TEMPLATE_BYTES_MAX:,} bytes of '
                f"JSON, saw {size:,}: with what its jobs get beside it they may exceed the {ETCD_BYTES_MAX:,} bytes "
                "that etcd takes, and the API refuses them; move data into a ConfigMap or a volume, in a new jobset"
            )
