"""Find reasons why the annotations that ask for a restart, a deadline or a watchdog have no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.members import where_of
from inplace.common.jobset.requests import read_request
from inplace.common.jobset.settings import ESCALATION, MEMBERS, OF_GROUPS, RESTART
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire


def unreadable(jobset: JobSet) -> Iterator[str]:
    """Yield each value that cannot be read."""
    readers: list[Callable[[Mapping[str, Any]], object]] = [read_request]
    readers += [setting.read for setting in OF_GROUPS if setting is not MEMBERS]
    for read in readers:
        try:
            read(jobset.annotations)
        except RemoteProtocolError as error:
            yield str(error)
    for job in jobset.replicated_jobs:
        pod = (job.template().get("spec") or {}).get("template") or {}
        try:
            RESTART.read((pod.get("metadata") or {}).get("annotations") or {})
        except RemoteProtocolError as error:
            yield f'spec.replicatedJobs[name="{job.name}"].template.spec.template.{error}'


def bad_requests(jobset: JobSet) -> Iterator[str]:
    """Yield each value that cannot be read, and those that mean nothing without restarts in place."""
    yield from unreadable(jobset)
    if jobset.fence_after_s is not None:
        yield from _unfenced(jobset)
    if jobset.is_in_place:
        yield from _wider_than_the_budget(jobset)
        return
    for name in (wire.RESTART_REQUESTED, *(setting.key for setting in OF_GROUPS)):
        if name in jobset.annotations:
            yield (
                f"metadata.annotations[{name}]: expected restartStrategy {wire.IN_PLACE_RESTART}, saw another: it has "
                "no effect; set that strategy, or remove the annotation"
            )


def _wider_than_the_budget(jobset: JobSet) -> Iterator[str]:
    """Yield that the last places of the escalation can never be used: maxRestarts is reached before."""
    restarts_max = jobset.failure_policy.restarts_max if jobset.failure_policy is not None else 0
    uses_max = sum(step.uses_max for step in jobset.escalation)
    if uses_max > restarts_max:
        yield (
            f"{ESCALATION.where}: expected at most maxRestarts ({restarts_max}) uses of all escalation steps "
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


def bad_members(jobset: JobSet) -> Iterator[str]:
    """Yield each annotation for members that has no effect, and why."""
    for job in jobset.replicated_jobs if jobset.is_in_place else ():
        pod = (job.template().get("spec") or {}).get("template") or {}
        if wire.MEMBERS in ((pod.get("metadata") or {}).get("annotations") or {}):
            yield (
                f'spec.replicatedJobs[name="{job.name}"].template.spec.template.{MEMBERS.where}: expected it in the '
                "metadata of the jobset or of the Job template, saw it on the pods: it has no effect; move it"
            )
        try:
            policy = jobset.member_requests.policy(job)
        except RemoteProtocolError as error:
            yield str(error)
            continue
        has_spares = not job.has_opted_out and jobset.scope_of(job.name).has_spares
        if policy is not None and not has_spares and "restarts" in jobset.status:
            yield f"{where_of(job)}: expected none, as when the jobset began, saw one: no effect; recreate the jobset"
        elif policy is None and has_spares:
            yield f"{where_of(job)}: expected one, as when the jobset began, saw none: {MEMBERS.effect}; write it again"
