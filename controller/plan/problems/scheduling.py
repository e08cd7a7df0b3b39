"""Find gangs that can never be complete. What else is wrong in spec.scheduling is refused by deploy/admission."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.pod_groups import pod_groups
from inplace.common.jobset.topology import finds_domain

_EFFECT: Final = "the pods are scheduled one by one"


def bad_scheduling(jobset: JobSet) -> Iterator[str]:
    """Yield why no Workload is made."""
    for group in pod_groups(jobset):
        names = ", ".join(job.name for job in group.members)
        if not group.placing.is_gang:
            continue
        if len(group.members) > 1 and jobset.has_order:
            yield (
                f"spec.scheduling: expected replicatedJobs that start together in the gang of {names}, saw dependsOn "
                f"or startupPolicy InOrder: the first would wait for the others' pods; {_EFFECT}; use a group for each"
            )
        placed = next((job.name for job in group.members if finds_domain(jobset, job)), None)
        if placed is not None:
            yield (
                f"spec.scheduling: expected no exclusive placement in the gang of {names}, saw it for {placed}: its "
                f"leader would wait for followers, which wait for the leader's node; {_EFFECT}; use the strategy "
                "node-selector, or schedulingConstraints.topology"
            )
