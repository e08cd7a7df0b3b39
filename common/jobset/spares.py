"""
Read how many spares a JobSet asks for: placeholder Pods that hold room for the Pods that are replaced. Pure.

At most one for each Pod of the largest replicatedJob, whose requests a spare has: so all spares together ask for no
more than the group does. docs/adr/0095
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.settings import SPARES
from inplace.common.protocol.errors import RemoteProtocolError

NAME_CHARACTERS_MAX: Final = 50  # of the JobSet's name; with `-spares-99999` it makes 63, a label's most
QUEUES_TOPOLOGY: Final = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
)
"""Annotations of a Pod template whose Pods Kueue places: it counts a spare as room that is taken."""


def read_spares(annotations: Mapping[str, Any], jobs: Sequence[ReplicatedJob]) -> int | None:
    """Return how many spares are asked for; None for nothing.

    Raises:
        RemoteProtocolError: it is no number, or more than the largest replicatedJob has Pods, or a queue places these.
    """
    given = SPARES.read(annotations)
    if not given:
        return None
    count: int = given["pods"]
    if count > (most := max(map(_pods, jobs), default=0)):
        raise RemoteProtocolError(
            f"{SPARES.where}: expected at most {most}, the pods of the largest replicatedJob, saw {count}; "
            f"{SPARES.effect}; correct it"
        )
    if count and is_placed_by_queue(largest(jobs)):
        raise RemoteProtocolError(
            f"{SPARES.where}: expected pods that the scheduler places, saw a template that Kueue places (its topology "
            "annotations), which counts a spare's room as taken; no spare is held; remove it"
        )
    return count


def count_spares(annotations: Mapping[str, Any], jobs: Sequence[ReplicatedJob]) -> int:
    """Return how many spares to hold; none where the annotation is wrong."""
    try:
        return read_spares(annotations, jobs) or 0
    except RemoteProtocolError:
        return 0


def largest(jobs: Sequence[ReplicatedJob]) -> ReplicatedJob:
    """Return the replicatedJob with most Pods in the group; spares ask for what its Pods ask for."""
    return max(jobs, key=_pods)


def _pods(job: ReplicatedJob) -> int:
    """Return how many Pods of a replicatedJob are in the group."""
    return 0 if job.has_opted_out else job.replicas * job.parallelism


def is_placed_by_queue(job: ReplicatedJob) -> bool:
    """Say whether a queue chooses the nodes of a replicatedJob's Pods."""
    pod_template = (job.template().get("spec") or {}).get("template") or {}
    annotations = (pod_template.get("metadata") or {}).get("annotations") or {}
    return any(name in annotations for name in QUEUES_TOPOLOGY)


def spares_name(jobset_name: str) -> str:
    """Return the name of the spares' Job; no Job of a JobSet has it, because those end with a number.

    Of a long name it has the beginning: a Pod's host name has the index behind it.
    """
    return f"{jobset_name[:NAME_CHARACTERS_MAX].rstrip('-')}-spares"
