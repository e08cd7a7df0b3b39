"""
Read how many spares a JobSet asks for: placeholder Pods that hold room for the Pods that are replaced. Pure.

At most one for each Pod of the group: a user then asks for at most twice what the group itself takes. docs/adr/0095
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.controller.spec.fields import ReplicatedJob

NAME_CHARACTERS_MAX: Final = 50  # of the JobSet's name; with `-spares-99999` it makes 63, a label's most
QUEUES_TOPOLOGY: Final = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
)
"""Annotations of a Pod template whose Pods Kueue places: it counts a spare as room that is taken."""


def read_spares(annotations: Mapping[str, Any], pods: int) -> int | None:
    """Return how many spares are asked for; None for nothing.

    Args:
        annotations: of the JobSet.
        pods: of the group.

    Raises:
        RemoteProtocolError: it is no number, or more than `pods`.
    """
    text = annotations.get(wire.SPARES)
    if text is None:
        return None
    try:
        return wire.parse_int32(text, f"metadata.annotations[{wire.SPARES}]", least=0, most=pods)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{error} (the group has {pods} pods); no spare is held; correct it") from error


def count_spares(annotations: Mapping[str, Any], jobs: Sequence[ReplicatedJob], pods: int) -> int:
    """Return how many spares to hold; none where that cannot be read, or where a queue places the Pods."""
    try:
        count = read_spares(annotations, pods) or 0
    except RemoteProtocolError:
        return 0
    return 0 if count and is_placed_by_queue(largest(jobs)) else count


def largest(jobs: Sequence[ReplicatedJob]) -> ReplicatedJob:
    """Return the replicatedJob with most Pods, of those in the group; spares ask for what its Pods ask for."""
    return max((job for job in jobs if not job.has_opted_out), key=lambda job: job.replicas * job.parallelism)


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
