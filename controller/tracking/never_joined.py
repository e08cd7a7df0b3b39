"""
Count the Pods of a slot that failed by themselves BEFORE they joined their group: no epoch shows them.

A supervisor refuses a command that does not exist before it announces, and its Job replaces the Pod, again and again.
Failed Pods stay until their Job goes, so their number outlives this controller, and nothing has to be written. Only
ends count that come again in each Pod: a Pod that was killed, deleted, evicted, or whose check failed (docs/adr/0024),
may do better elsewhere. Only Jobs with failed Pods are looked at.

In sidecar mode the Pod stays: the rule RestartAllContainers starts its containers again, and kubelet never pauses. A
worker's image without the guard's interpreter does that. `EarlyEnds` keeps the count of such Pods, O(1) per Pod event:
kubelet's own, less what it was when the Pod was first seen, or was last seen in an epoch. A Pod whose annotation
somebody removes has restarted with its group before. Another controller begins to count anew. Only a container that
ended by itself, in a Pod that was restarted whole before, is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from inplace.common.jobset.causes import Failure
from inplace.common.jobset.containers import LAST_RESTARTED_WHOLE, InitStatus
from inplace.common.jobset.kinds import Job, Pod
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire.unfit import CHECK_FAILED_EXIT_CODE as UNFIT
from inplace.controller.plan.observed import NeverJoined
from inplace.controller.tracking.pods import epoch_of
from inplace.controller.tracking.signs import exit_of

COME_AGAIN: Final = frozenset((2, 126, 127, 128))
"""
An agent's refused settings (`agent.settings.exit_code`); a shell's not executable and not found; the runtime's
StartError.
"""
ENDED_BY_OTHERS: Final = frozenset((0, UNFIT, 130, 137, 143))
"""A worker's container that waited at the barrier, and ended because kubelet or its agent ended it, or by its check."""


@dataclass(slots=True)
class EarlyEnds:
    """The Pods of one scope whose containers start again and again before they join."""

    _pods: dict[str, NeverJoined] = field(default_factory=dict)  # by UID
    _before: dict[str, int] = field(default_factory=dict)  # by UID: kubelet's count that is no sign of an early end

    def note(self, pod: Pod, *, joined: bool) -> bool:
        """Take a Pod in; say whether one more end of it counts."""
        uid = pod.metadata.uid
        if joined or uid not in self._before:
            self._before[uid] = _restarts(pod)
        if joined:
            self._pods.pop(uid, None)
            return False
        found = _ended_in_place(pod, self._before[uid])
        known = self._pods.get(uid)
        if found is None or (known is not None and known.count >= found.count):
            return False
        self._pods[uid] = found
        return True

    def of(self, uid: str) -> NeverJoined | None:
        """Return how a Pod ended before it joined; None if it did not."""
        return self._pods.get(uid)

    def worst(self) -> NeverJoined | None:
        """Return the Pod that ended most often."""
        return max(self._pods.values(), key=lambda one: one.count, default=None)

    def forget(self, uid: str) -> None:
        """Drop a Pod that is gone."""
        self._pods.pop(uid, None)
        self._before.pop(uid, None)

    def clear(self) -> None:
        """Drop all: the group came together."""
        self._pods.clear()
        self._before.clear()


def _restarts(pod: Pod) -> int:
    return max((status.restart_count for status in pod.status.all_statuses), default=0)


def _ended_in_place(pod: Pod, before: int) -> NeverJoined | None:
    """Read a Pod's newest end before it joined, where kubelet restarted the whole Pod before; None for no such end."""
    if pod.status.phase in ("Failed", "Succeeded") or pod.is_disrupted:
        return None
    workers, others = pod.status.container_statuses or (), pod.status.init_container_statuses or ()
    ended: list[InitStatus] = [
        *(status for status in workers if (code := _code(status)) is not None and code not in ENDED_BY_OTHERS),
        *(status for status in others if _code(status) in COME_AGAIN),
    ]
    if not ended or not any(status.last_state is LAST_RESTARTED_WHOLE for status in ended):
        return None
    return NeverJoined(_restarts(pod) - before + 1, exit_of(pod, ended), stays=True)


def _code(status: InitStatus) -> int | None:
    return status.state.terminated.exit_code if status.state.terminated is not None else None


def never_joined(jobs: Iterable[Job], pods_of: Callable[[Job], Sequence[Pod]]) -> NeverJoined | None:
    """Return the slot with most such Pods; None where there is none."""
    counts: dict[tuple[str, str | None], list[Failure]] = {}
    for job in jobs:
        if not job.status.failed or job.is_leaving:
            continue
        for pod in pods_of(job):
            failure = _end_before_joining(pod)
            if failure is not None:
                counts.setdefault((job.metadata.name, pod.completion_index), []).append(failure)
    if not counts:
        return None
    failures = max(counts.values(), key=len)
    return NeverJoined(len(failures), failures[-1])


def _end_before_joining(pod: Pod) -> Failure | None:
    if pod.status.phase != "Failed" or pod.is_disrupted or pod.metadata.deletion_timestamp is not None:
        return None
    try:
        if epoch_of(pod):
            return None
    except RemoteProtocolError:
        return None
    failure = exit_of(pod, pod.status.all_statuses)
    return failure if failure.container and failure.exit_code in COME_AGAIN else None
