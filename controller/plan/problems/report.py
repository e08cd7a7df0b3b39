"""
Report problems of a spec that admission accepted: one condition, SpecProblem, and an Event when it changes.

Admission rules can neither compile a regular expression nor look at a second object, and a JobSet may be older than the
rules. A problem stops nothing: each feature does what it can. Each problem says the path, the expected and the found
value, the effect meanwhile, and the cure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from inplace.common.jobset import conditions
from inplace.common.jobset.fields import heavy_templates
from inplace.common.jobset.form import PORTS_MAX
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.scopes import BY_JOBSET, BY_REPLICATED_JOB, DIVIDING
from inplace.common.jobset.service import Service, container_ports
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.jobs import LABEL_CHARACTERS_MAX, coordinator_host
from inplace.controller.plan.order import broken_dependencies
from inplace.controller.plan.problems.policies import bad_failure_policy, bad_success_policy
from inplace.controller.plan.problems.requests import bad_members, bad_requests
from inplace.controller.plan.problems.spec import (
    bad_annotation,
    bad_claims,
    bad_manifests,
    bad_names,
    bad_scheduling,
    other_claims,
)


def report_problems(draft: Draft) -> bool:
    """Set SpecProblem to what is wrong now."""
    claims = other_claims(draft.jobset, draft.observed.claims)
    service = other_service(draft.jobset, draft.observed.service)
    problems = [*known_problems(draft.jobset), *claims, *service]
    draft.set(conditions.spec_problem("; ".join(problems)) if problems else conditions.NO_SPEC_PROBLEM)
    return False


def refuse_oversize(draft: Draft) -> bool:
    """End the pass for a JobSet that is too large, and say why; nothing but its deletion stops what runs of it."""
    problems = draft.jobset.oversize
    if problems:
        draft.set(conditions.spec_problem("; ".join(problems)))
    return bool(problems)


def known_problems(jobset: JobSet) -> Sequence[str]:
    """Return the problems of the spec alone, found once for each version: some read the templates."""
    if not jobset.known_problems:
        found = (one for check in PROBLEMS for one in check(jobset))
        problems = tuple(dict.fromkeys((*jobset.oversize, *found)))  # one annotation may be wrong for several jobs
        jobset.known_problems.append(problems)
    return jobset.known_problems[0]


def bad_order(jobset: JobSet) -> Iterator[str]:
    """V9, and what is neither of two words."""
    for name, dependency in broken_dependencies(jobset):
        yield (
            f"dependsOn of replicatedJob {name}: expected the name of a replicatedJob before it, saw {dependency!r}; "
            f"{name} never starts; recreate the jobset with the replicatedJobs in the order of their start"
        )
    for job in jobset.replicated_jobs:
        for entry in job.depends_on:
            if entry.get("status") not in ("Ready", "Complete"):
                yield (
                    f"dependsOn of replicatedJob {job.name}: expected status Ready or Complete, saw "
                    f"{entry.get('status')!r}; it waits for Ready; recreate the jobset with one of the two"
                )
    order = ((jobset.raw.get("spec") or {}).get("startupPolicy") or {}).get("startupPolicyOrder")
    if order not in (None, "AnyOrder", "InOrder"):
        yield (
            f"spec.startupPolicy.startupPolicyOrder: expected AnyOrder or InOrder, saw {order!r}; all replicatedJobs "
            "start at once; recreate the jobset with one of the two"
        )


def bad_coordinator(jobset: JobSet) -> Iterator[str]:
    """V22 and V23; upstream does not look again when the coordinator is changed."""
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
    if job.form.completion_mode == "NonIndexed":
        yield f"{where}: expected replicatedJob {job.name} to be Indexed: pods of another kind have no host names"
    elif not 0 <= coordinator.pod_index < job.completions:
        yield f"{where}: expected a podIndex from 0 to {job.completions - 1}, saw {coordinator.pod_index}"


def bad_scope(jobset: JobSet) -> Iterator[str]:
    """Yield an unknown word, one without meaning here, and one that came too late; before the first pass none has."""
    wanted, where = jobset.wanted_scope, f"metadata.annotations[{wire.RESTART_SCOPE}]"
    if wanted not in (BY_JOBSET, *DIVIDING):
        expected = ", ".join((BY_JOBSET, *DIVIDING))
        text = (
            f"{where}: expected one of {expected}, saw {wanted[:63]!r}; the jobset restarts as {jobset.restart_scope}"
        )
        apart = f"; for jobs that each restart alone, give each a replicatedJob of its own and use {BY_REPLICATED_JOB}"
        yield text + (apart if wanted == "Job" else "")
    elif wanted != BY_JOBSET and not jobset.is_in_place:
        yield (
            f"{where}: expected restartStrategy {wire.IN_PLACE_RESTART}, saw another: it has no effect; set that "
            "strategy, or remove the annotation"
        )
    elif wanted != jobset.restart_scope and "restarts" in jobset.status and not _began_with_spares(jobset):
        yield (
            f"{where}: expected {jobset.restart_scope}, with which the jobset began, saw {wanted}: it has no effect; "
            "recreate the jobset"
        )


def _began_with_spares(jobset: JobSet) -> bool:
    """Say whether it is divided because of the annotation for members, which `bad_members` judges."""
    return wire.RESTART_SCOPE not in jobset.annotations and any(one.has_spares for one in jobset.scopes.values())


def bad_ports(jobset: JobSet) -> Iterator[str]:
    """Yield that the headless Service has no room for all ports, in whichever replicatedJobs they are."""
    if len(container_ports(jobset)) > PORTS_MAX:
        yield (
            f"spec.replicatedJobs: expected at most {PORTS_MAX} container ports of different number or protocol, saw "
            "more: the headless Service has the first of them; names resolve without ports; remove some in a new jobset"
        )


def other_service(jobset: JobSet, present: Service | None) -> Iterator[str]:
    """Yield that a Service of another owner has the subdomain's name, and does not give the Pods their names."""
    if present is None or not jobset.network.dns_hostnames or present.owner_uid == jobset.uid:
        return
    if not present.names_pods_of(jobset):
        name = present.metadata.name
        yield (
            f"spec.network.subdomain: expected the name of a headless Service that selects {wire.JOBSET_NAME}: "
            f"{jobset.name}, saw Service {name} of another owner: the pods' host names do not resolve, and workers "
            f"that look for each other wait; delete it (kubectl delete service {name} -n {jobset.namespace}), or take "
            "another subdomain in a new jobset"
        )


def bad_sizes(jobset: JobSet) -> Iterator[str]:
    """Yield the templates that leave no room for what the controller adds."""
    return heavy_templates(jobset.replicated_jobs)


PROBLEMS: Final[tuple[Callable[[JobSet], Iterator[str]], ...]] = (
    bad_names,
    bad_manifests,
    bad_annotation,
    bad_order,
    bad_success_policy,
    bad_failure_policy,
    bad_scope,
    bad_members,
    bad_requests,
    bad_claims,
    bad_coordinator,
    bad_scheduling,
    bad_ports,
    bad_sizes,
)
"""One list; numbers such as V22 count the rules of upstream's webhook, jobset pkg/webhooks/jobset_webhook.go."""
