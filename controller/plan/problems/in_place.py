"""Find settings against a restart in place."""

from __future__ import annotations

from collections.abc import Iterator

from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import JobSet
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.in_place import restarts_allowed, restarts_in_place


def bad_manifests(jobset: JobSet) -> Iterator[str]:
    """Yield what each replicatedJob of the group has wrong (KEP-467; upstream's V12)."""
    if not jobset.is_in_place:
        return
    for job in jobset.replicated_jobs:
        if not job.has_opted_out:
            yield from _bad_manifest(job)


def bad_annotation(jobset: JobSet) -> Iterator[str]:
    """Yield a number of restarts that cannot be read, and a failure policy that says otherwise and wins."""
    annotation = jobset.annotations.get(wire.RESTART_IN_PLACE)
    if annotation is None:
        return
    where = f"metadata.annotations[{wire.RESTART_IN_PLACE}]"
    try:
        restarts = restarts_allowed(annotation)
    except RemoteProtocolError as error:
        yield f"{error}; no restart is allowed; correct it"
        return
    policy = (jobset.raw.get("spec") or {}).get("failurePolicy") or {}
    strategy, restarts_max = policy.get("restartStrategy"), policy.get("maxRestarts") or 0
    if not restarts_in_place(strategy, annotation):
        yield (
            f"{where}: expected restartStrategy {wire.IN_PLACE_RESTART} or none beside it, saw {strategy!r:.80}, which "
            f"is applied; set restartStrategy {wire.IN_PLACE_RESTART}, or remove the annotation"
        )
    elif strategy == wire.IN_PLACE_RESTART and restarts != restarts_max:
        yield (
            f"{where}: expected {restarts_max}, the maxRestarts of the failurePolicy, saw {restarts}; {restarts_max} "
            "is applied; remove the annotation: the failurePolicy says both"
        )


def _bad_manifest(job: ReplicatedJob) -> Iterator[str]:
    completions, parallelism = job.form.completions, job.form.parallelism
    if completions is not None and completions != parallelism:
        yield (
            f'spec.replicatedJobs[name="{job.name}"].template.spec: found completions {_shown(completions)} and '
            f"parallelism {_shown(parallelism)}, must be set and equal to each other when in-place restart is enabled; "
            "the barrier waits for parallelism pods of each job; set both to the number of pods in a new jobset, or "
            f"take the replicatedJob out of the group with the annotation {wire.DISABLE} in its template.metadata"
        )


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)
