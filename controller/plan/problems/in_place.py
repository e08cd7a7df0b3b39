"""Find settings that a manifest lacks for in-place restart (KEP-467; upstream's V10 to V12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from inplace.common.protocol.int32 import INT32_MAX
from inplace.common.wire import names as wire
from inplace.controller.spec.fields import ReplicatedJob
from inplace.controller.spec.form import TemplateForm
from inplace.controller.spec.jobset import JobSet

# Field, how it is read, the value needed, and what happens without it.
NEEDED: Final[tuple[tuple[str, Callable[[TemplateForm], object], object, str], ...]] = (
    (
        "backoffLimit",
        lambda form: form.backoff_limit,
        INT32_MAX,
        "one failed pod too many fails its whole job, which is then recreated instead of restarted in place",
    ),
    (
        "podReplacementPolicy",
        lambda form: form.pod_replacement_policy,
        "Failed",
        "a replacement can start beside the pod that it replaces, and the barrier waits until that one is gone",
    ),
)
CURE: Final = (
    f"in a new jobset, or take the replicatedJob out of the group with the annotation {wire.DISABLE} in its "
    "template.metadata"
)


def bad_manifests(jobset: JobSet) -> Iterator[str]:
    """Yield what each replicatedJob of the group lacks."""
    if not jobset.is_in_place:
        return
    for job in jobset.replicated_jobs:
        if not job.has_opted_out:
            yield from _bad_manifest(job)


def _bad_manifest(job: ReplicatedJob) -> Iterator[str]:
    where = f'spec.replicatedJobs[name="{job.name}"].template.spec'
    for name, read, needed, meanwhile in NEEDED:
        if (found := read(job.form)) != needed:
            yield (
                f"{where}.{name}: found {_shown(found)}, must be set to {needed} when in-place restart is enabled; "
                f"{meanwhile}; set {name} to {needed} {CURE}"
            )
    completions, parallelism = job.form.completions, job.form.parallelism
    if completions is None or completions != parallelism:
        yield (
            f"{where}: found completions {_shown(completions)} and parallelism {_shown(parallelism)}, must be set and "
            "equal to each other when in-place restart is enabled; the barrier waits for parallelism pods of each job; "
            f"set both to the number of pods {CURE}"
        )


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)
