"""
What is wrong with a spec although admission let it pass: one condition, SpecProblem, and an Event when it changes.

Admission rules cannot compile a regular expression, and an object may be older than the rules. Nothing here stops
anything: each feature says in its own module what it does with a spec that it cannot follow.
"""

from __future__ import annotations

from collections.abc import Iterator

from common import wire
from controller import conditions
from controller.draft import Draft
from controller.jobs import LABEL_CHARACTERS_MAX, coordinator_host, mounted_volumes
from controller.jobset import JobSet
from controller.order import broken_dependencies
from controller.rules import pattern_problem, rule_name
from controller.scopes import BY_JOBSET, DIVIDING


def report_problems(draft: Draft) -> bool:
    """Set SpecProblem to what is wrong now."""
    problems = list(problems_of(draft.jobset))
    draft.set(conditions.spec_problem("; ".join(problems)) if problems else conditions.NO_SPEC_PROBLEM)
    return False


def problems_of(jobset: JobSet) -> Iterator[str]:
    """Yield each problem: where it is, what is expected, what happens until it is cured."""
    yield from _bad_patterns(jobset)
    yield from _bad_scope(jobset)
    for name, dependency in broken_dependencies(jobset):
        yield (
            f"dependsOn of replicatedJob {name}: expected the name of a replicatedJob before it, saw {dependency!r}; "
            f"{name} never starts; create the jobset anew with the replicatedJobs in the order of their start"
        )
    yield from _claims_nobody_can_mount(jobset)
    yield from _bad_coordinator(jobset)


def _bad_scope(jobset: JobSet) -> Iterator[str]:
    """Say why the annotation has no effect; before the first pass it still may have."""
    wanted, where = jobset.wanted_scope, f"metadata.annotations[{wire.RESTART_SCOPE}]"
    if wanted not in (BY_JOBSET, *DIVIDING):
        expected = ", ".join((BY_JOBSET, *DIVIDING))
        yield f"{where}: expected one of {expected}, saw {wanted[:63]!r}; the jobset restarts as {jobset.restart_scope}"
    elif wanted != BY_JOBSET and not jobset.is_in_place:
        yield f"{where}: expected restartStrategy {wire.IN_PLACE_RESTART}, saw another: it has no effect; remove it"
    elif wanted != jobset.restart_scope and "restarts" in jobset.status:
        yield (
            f"{where}: expected {jobset.restart_scope}, with which the jobset began, saw {wanted}: it has no effect; "
            "create the jobset anew"
        )


def _claims_nobody_can_mount(jobset: JobSet) -> Iterator[str]:
    """V25 and V26 of upstream's webhook: each template is mounted somewhere, and no volume has its name."""
    pods = [(job.name, (job.job_spec.get("template") or {}).get("spec") or {}) for job in jobset.replicated_jobs]
    for claim in jobset.claims:
        where = f"volumeClaimPolicies template {claim.name}"
        if not any(claim.name in mounted_volumes(pod) for _, pod in pods):
            yield f"{where}: expected a volumeMount of that name in some container, saw none; the claim is made in vain"
        for name, pod in pods:
            if any(volume.get("name") == claim.name for volume in pod.get("volumes") or ()):
                yield (
                    f"{where}: volume name conflicts with a volume of replicatedJob {name}, which wins; "
                    "rename one of them in a new jobset"
                )


def _bad_coordinator(jobset: JobSet) -> Iterator[str]:
    """V22 of upstream's webhook; upstream does not look again when the coordinator is changed."""
    coordinator = jobset.coordinator
    if coordinator is None:
        return
    where = "spec.coordinator"
    job = next((job for job in jobset.replicated_jobs if job.name == coordinator.replicated_job), None)
    if job is None:
        yield f"{where}: coordinator replicatedJob {coordinator.replicated_job} does not exist; name one that does"
        return
    if (length := len(coordinator_host(jobset, coordinator))) > LABEL_CHARACTERS_MAX:
        yield (
            f"{where}: expected an address of at most {LABEL_CHARACTERS_MAX} characters, saw {length}; "
            "it is a label's value; pods get no coordinator label or annotation; shorten a name in a new jobset"
        )
    if not 0 <= coordinator.job_index < job.replicas:
        yield f"{where}: expected a jobIndex from 0 to {job.replicas - 1}, saw {coordinator.job_index}"
    if job.job_spec.get("completionMode") == "NonIndexed":
        yield f"{where}: expected replicatedJob {job.name} to be Indexed: pods of another kind have no host names"
    elif not 0 <= coordinator.pod_index < job.completions:
        yield f"{where}: expected a podIndex from 0 to {job.completions - 1}, saw {coordinator.pod_index}"


def _bad_patterns(jobset: JobSet) -> Iterator[str]:
    for index, rule in enumerate(jobset.failure_policy.rules if jobset.failure_policy is not None else ()):
        for position, pattern in enumerate(rule.get("onJobFailureMessagePatterns") or ()):
            if (why := pattern_problem(pattern)) is not None:
                yield (
                    f"spec.failurePolicy.rules[{index}].onJobFailureMessagePatterns[{position}] of rule "
                    f"{rule_name(rule, index)}: expected an RE2 regular expression, saw {pattern!r} ({why}); "
                    "it matches no failure; create the jobset anew with a pattern that compiles"
                )
