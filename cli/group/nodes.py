"""
Find the nodes that a JobSet's new Pods avoid, as its controller does, and the Pods on nodes that do not answer. Pure.

Nobody can see the worker of such a Pod end. It ends by itself, when its fence is over (docs/adr/0072).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import GroupState
from inplace.common.bare.record import record
from inplace.common.jobset.bad_nodes import avoided, find, records_of
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.jobset import JobSet
from inplace.common.kube.timestamps import precise_time
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire

LATE_S: Final = 10.0  # from the first sign of a failure to the status that ends the epoch, of a slow controller


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


def fenced_pods(state: GroupState, pods: Iterable[PodFact], now_s: float) -> dict[str, float]:
    """Return until about when the group waits for each Pod, by name; those whose time is long over are left out.

    The controller counts from when it knew that the epoch is over. The status says when the group restart began, a
    moment earlier; and a new leader counts anew.
    """
    began_s = unix_time(state.last.started_at) if state.last is not None else None
    if began_s is None:
        return {}
    promises = {pod.name: _promise_s(pod) for pod in pods if pod.is_leaving and pod.status.phase == "Running"}
    waits = {name: began_s + promised_s for name, promised_s in promises.items() if promised_s is not None}
    return {name: until_s for name, until_s in waits.items() if until_s + LATE_S > now_s}


def _promise_s(pod: PodFact) -> int | None:
    """Return within how many seconds a Pod's worker ends once its epoch is over; None for ever."""
    text = pod.metadata.annotations.fenced_within if pod.metadata.annotations is not None else None
    try:
        return None if text is None else wire.parse_int32(text, wire.FENCED_WITHIN, least=1)
    except RemoteProtocolError:
        return None
