"""Find the nodes that a JobSet's new Pods avoid, as its controller does. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from inplace.cli.group.pod_facts import PodFact
from inplace.common.bare.record import record
from inplace.common.jobset.bad_nodes import avoided, find, records_of
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.jobset import JobSet
from inplace.common.kube.timestamps import precise_time


@record
class AvoidedNode:
    """One node.

    Args:
        failures: so many workers failed first on it, each in another epoch; 0 after a failed check.
        until_s: when it is forgotten if nothing fails there, in seconds since 1970.
        why: the newest failure on it.
    """

    node: str
    failures: int
    until_s: float
    why: str


def avoided_nodes(jobset: JobSet, pods: Iterable[PodFact], now_s: float) -> tuple[AvoidedNode, ...]:
    """Return the nodes that are avoided, the one that failed last at the end."""
    policy = jobset.bad_nodes
    if policy is None:
        return ()
    records = records_of(jobset.status, policy, precise_time(now_s))
    in_use = {pod.spec.node_name for pod in pods if pod.status.phase == "Running"}
    found = (find(records, node) for node in avoided(records, policy, len(in_use)))
    # A time in the future counts as now, as for the controller.
    since = ((record, min(unix_time(record.avoided_since) or now_s, now_s)) for record in found)
    return tuple(
        AvoidedNode(record.node, len(record.failed_at), at_s + policy.window_s, record.why) for record, at_s in since
    )
