"""
Count the Pods of a slot that failed by themselves BEFORE they joined their group: no epoch shows them.

A supervisor refuses a command that does not exist before it announces, and its Job replaces the Pod, again and again.
Failed Pods stay until their Job goes, so their number outlives this controller, and nothing has to be written. Only
ends count that come again in each Pod: a Pod that was killed, deleted or evicted, or whose check failed (ADR 71),
may do better elsewhere. Only Jobs with failed Pods are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from inplace.common.epoch.errors import RemoteProtocolError
from inplace.controller.plan.observed import NeverJoined
from inplace.controller.spec.causes import Failure
from inplace.controller.spec.kinds import Job, Pod
from inplace.controller.tracking.pods import epoch_of
from inplace.controller.tracking.signs import exit_of

COME_AGAIN: Final = frozenset((2, 126, 127, 128))
"""An agent's refused settings (`agent.exit_code`); a shell's not executable and not found; the runtime's StartError."""


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
    failure = exit_of(pod, (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ())))
    return failure if failure.container and failure.exit_code in COME_AGAIN else None
