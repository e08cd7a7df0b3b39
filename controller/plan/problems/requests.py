"""Find reasons why the annotations that ask for a restart, a deadline or a watchdog have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.stall_limit import EXPECTED, parse_limit
from inplace.controller.spec.bad_nodes import read_bad_nodes
from inplace.controller.spec.crash_loop import read_backoff
from inplace.controller.spec.escalation import read_escalation
from inplace.controller.spec.jobset import JobSet
from inplace.controller.spec.marked_nodes import read_marked_nodes
from inplace.controller.spec.no_progress import read_no_progress
from inplace.controller.spec.notices import read_restart_on
from inplace.controller.spec.requests import read_deadline, read_fence, read_request
from inplace.controller.spec.settings import read_settings
from inplace.controller.spec.spares import is_placed_by_queue, largest, read_spares
from inplace.controller.spec.stored import LIMITS, OF_GROUPS

READERS: Final = (
    read_request,
    read_deadline,
    read_fence,
    read_bad_nodes,
    read_marked_nodes,
    read_escalation,
    read_no_progress,
    read_backoff,
    read_restart_on,
)


def bad_requests(jobset: JobSet) -> Iterator[str]:
    """Yield each value that cannot be read, and those that mean nothing without restarts in place."""
    for read in READERS:
        try:
            read(jobset.annotations)
        except RemoteProtocolError as error:
            yield str(error)
    yield from bad_spares(jobset)
    yield from read_settings(jobset.annotations)[1]
    for name in LIMITS:
        try:
            parse_limit(str(jobset.annotations.get(name, "0")))
        except ValueError:
            seen = str(jobset.annotations[name])[:40]
            yield (
                f"metadata.annotations[{name}]: expected {EXPECTED}, saw {seen!r}; the agents leave their limit as it "
                "was; correct it"
            )
    if jobset.fence_after_s is not None:
        yield from _unfenced(jobset)
    if jobset.is_in_place:
        yield from _wider_than_the_budget(jobset)
        return
    for name in OF_GROUPS:
        if name in jobset.annotations:
            yield (
                f"metadata.annotations[{name}]: expected restartStrategy {wire.IN_PLACE_RESTART}, saw another: it has "
                "no effect; remove it"
            )


def bad_spares(jobset: JobSet) -> Iterator[str]:
    """Yield a number of spares that cannot be read or is too large, and Pods that a queue places."""
    try:
        count = read_spares(jobset.annotations, jobset.shape.size)
    except RemoteProtocolError as error:
        yield str(error)
        return
    if count and jobset.is_in_place and is_placed_by_queue(largest(jobset.replicated_jobs)):
        yield (
            f"metadata.annotations[{wire.SPARES}]: expected pods that the scheduler places, saw a template that Kueue "
            "places (its topology annotations), which counts a spare's room as taken; no spare is held; remove it"
        )


def _wider_than_the_budget(jobset: JobSet) -> Iterator[str]:
    """Yield that the last places of the escalation can never be used: maxRestarts is reached before."""
    restarts_max = jobset.failure_policy.restarts_max if jobset.failure_policy is not None else 0
    uses_max = sum(step.uses_max for step in jobset.escalation)
    if uses_max > restarts_max:
        yield (
            f"metadata.annotations[{wire.ESCALATION}]: expected at most maxRestarts ({restarts_max}) uses of all rungs "
            f"together, saw {uses_max}; maxRestarts ends the jobset before the last of them; raise it or allow fewer"
        )


def _unfenced(jobset: JobSet) -> Iterator[str]:
    """Yield the Jobs whose Pods Kubernetes does not replace before they have ended."""
    for index, job in enumerate(jobset.replicated_jobs):
        if not job.has_opted_out and (job.template().get("spec") or {}).get("podFailurePolicy"):
            yield (
                f"spec.replicatedJobs[{index}].template.spec.podFailurePolicy: expected none beside "
                f"{wire.FENCE_AFTER}, saw one: Kubernetes then replaces a pod only when it has ended, so a dead node "
                "is given up after 300 s; remove one of them"
            )
