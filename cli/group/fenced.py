"""Find the Pods that nobody can see end, and whose workers end by themselves (docs/adr/0072). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import GroupState
from inplace.common.jobset.causes import unix_time
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire

LATE_S: Final = 10.0  # from the first sign of a failure to the status that ends the epoch, of a slow controller


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
