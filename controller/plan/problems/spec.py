"""Find what is wrong in the spec itself: names, restarts in place, claims and gangs that cannot work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import PersistentVolumeClaim
from inplace.common.jobset.pod_groups import pod_groups
from inplace.common.jobset.stored import as_value
from inplace.common.jobset.topology import finds_domain
from inplace.common.kube.quantity import parse_quantity
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.in_place import restarts_allowed, restarts_in_place
from inplace.controller.plan.jobs import mounted_volumes

# Find names that make the API refuse our objects: V3, V6, V7 and V8 of upstream's webhook.
NAME_CHARACTERS_MAX: Final = 63  # of a host name, and of a label's value; Jobs and Pods have their names as both
POD_SUFFIX: Final = "-xxxxx"  # what the Job controller appends to a Pod's name
_HOST: Final = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")  # RFC 1035, as Services and upstream's webhook have it


def bad_names(jobset: JobSet) -> Iterator[str]:
    """Yield which names are too long or no host names."""
    if not _HOST.fullmatch(jobset.name):
        yield (
            "metadata.name: expected lower-case letters, digits and '-', beginning with a letter, as in a host name, "
            f"saw {jobset.name!r}; the API refuses what is created for it; recreate the jobset under another name"
        )
    subdomain = jobset.network.subdomain
    if subdomain and not (_HOST.fullmatch(subdomain) and len(subdomain) <= NAME_CHARACTERS_MAX):
        yield (
            f"spec.network.subdomain: expected a host name of at most {NAME_CHARACTERS_MAX} characters, saw "
            f"{subdomain!r}; the API refuses the service and the jobs; recreate the jobset with another subdomain"
        )
    for job in jobset.replicated_jobs:
        yield from _bad_names_of(jobset, job)


def _bad_names_of(jobset: JobSet, job: ReplicatedJob) -> Iterator[str]:
    where = f'spec.replicatedJobs[name="{job.name}"]'
    if not (_HOST.fullmatch(job.group_name) and len(job.group_name) <= NAME_CHARACTERS_MAX):
        yield (
            f"{where}.groupName: expected a host name of at most {NAME_CHARACTERS_MAX} characters, for a label, "
            f"saw {job.group_name!r}; the API refuses the jobs; recreate the jobset with another groupName"
        )
    if job.replicas == 0:
        return
    name = jobset.job_name(job.name, job.replicas - 1)
    indexed = job.form.completion_mode != "NonIndexed"
    pod_name = f"{name}-{job.completions - 1}{POD_SUFFIX}" if indexed and job.completions > 0 else name
    for kind, longest in (("job", name), ("pod", pod_name)):
        if len(longest) > NAME_CHARACTERS_MAX:
            yield (
                f"{where}: JobSet name is too long, {kind} names generated for this JobSet will exceed "
                f"{NAME_CHARACTERS_MAX} characters: found {longest} ({len(longest)}); the API refuses the {kind}s; "
                "recreate the jobset with a shorter name of its own or of the replicatedJob"
            )
            return


# Find settings against a restart in place.


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


# Find volumeClaimPolicies that cannot work as written: V24 to V27 of upstream's webhook.
#
# A claim that exists is used as it is (controller/plan/objects.py). So this module reports a claim that differs from
# its template, or that nothing will delete although the policy says so. A claim differs if a field of the template has
# another value. Fields that the server or a provisioner filled in are no difference, nor is more storage than was asked
# for.
_VOLUME: Final = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123 label; the name of a Pod's volume


def bad_claims(jobset: JobSet) -> Iterator[str]:
    """Yield what is wrong with the templates themselves."""
    if not jobset.claims:
        return
    policies = as_value((jobset.raw.get("spec") or {}).get("volumeClaimPolicies")) or ()
    names = Counter(template["metadata"]["name"] for policy in policies for template in policy.get("templates") or ())
    volumes = [(job.name, *_volumes_of(job)) for job in jobset.replicated_jobs]
    for name, count in names.items():
        where = f"volumeClaimPolicies template {name}"
        if count > 1:
            yield (
                f"{where}: names must be unique for VolumeClaimPolicies template, saw {count} of this name; the first "
                "is used; rename the others in a new jobset"
            )
        if not _VOLUME.fullmatch(name):
            yield (
                f"{where}: expected at most 63 lower-case letters, digits and '-', as in a volume's name; the API "
                "refuses the jobs that mount it; rename it in a new jobset"
            )
        if not any(name in mounted for _, mounted, _ in volumes):
            yield f"{where}: expected a volumeMount of that name in some container, saw none; the claim is made in vain"
        for job, _, own in volumes:
            if name in own:
                yield (
                    f"{where}: volume name conflicts with a volume of replicatedJob {job}, which wins; "
                    "rename one of them in a new jobset"
                )


def _volumes_of(job: ReplicatedJob) -> tuple[set[str], set[str]]:
    """Return the names of the volumes that some container of a replicatedJob mounts, and of those in its template."""
    pod = ((job.template().get("spec") or {}).get("template") or {}).get("spec") or {}
    return mounted_volumes(pod), {str(volume.get("name")) for volume in pod.get("volumes") or ()}


def other_claims(jobset: JobSet, claims: Mapping[str, PersistentVolumeClaim]) -> Iterator[str]:
    """Yield how claims that exist, and were not made for this JobSet, differ from its templates (V27)."""
    for claim in jobset.claims:
        name = jobset.claim_name(claim)
        present = claims.get(name)
        if present is None or present.owner_uid is not None:
            continue
        where = f"volumeClaimPolicies template {claim.name}: persistentvolumeclaim {name}"
        if not claim.retained:
            yield (
                f"{where} exists and is not of this jobset: retentionPolicy must be retain when PVC exists, saw "
                "Delete; it is used and will not be deleted; recreate the jobset with whenDeleted Retain, or delete "
                "the claim first"
            )
        for path, wanted, seen in _differences(claim.template().get("spec") or {}, present.spec, "spec"):
            yield (
                f"{where}: spec does not match existing PVC: expected {path} {wanted!r}, saw {seen!r}; it is used as "
                "it is; correct the template in a new jobset, or delete the claim"
            )


def _differences(template: Mapping[str, Any], stored: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, wanted, seen) for each field of a template that is not so in what is stored."""
    for name, wanted in template.items():
        seen, where = stored.get(name), f"{path}.{name}"
        if isinstance(wanted, Mapping):
            yield from _differences(wanted, seen if isinstance(seen, Mapping) else {}, where)
        elif wanted is not None and not _fits(wanted, seen, where):
            yield where, wanted, seen


def _fits(wanted: object, seen: object, path: str) -> bool:
    """Say whether one value equals the wanted one, or is more storage."""
    if wanted == seen:
        return True
    if isinstance(wanted, list) and isinstance(seen, list):
        return sorted(map(repr, wanted)) == sorted(map(repr, seen))
    if not path.startswith("spec.resources."):
        return False
    asked, given = parse_quantity(wanted), parse_quantity(seen)
    return asked is not None and given is not None and asked <= given


# Find gangs that can never be complete. What else is wrong in spec.scheduling is refused by deploy/admission.
_EFFECT: Final = "the pods are scheduled one by one"


def bad_scheduling(jobset: JobSet) -> Iterator[str]:
    """Yield why no Workload is made."""
    for group in pod_groups(jobset):
        names = ", ".join(job.name for job in group.members)
        if not group.placing.is_gang:
            continue
        if len(group.members) > 1 and jobset.has_order:
            yield (
                f"spec.scheduling: expected replicatedJobs that start together in the gang of {names}, saw dependsOn "
                f"or startupPolicy InOrder: the first would wait for the others' pods; {_EFFECT}; use a group for each"
            )
        placed = next((job.name for job in group.members if finds_domain(jobset, job)), None)
        if placed is not None:
            yield (
                f"spec.scheduling: expected no exclusive placement in the gang of {names}, saw it for {placed}: its "
                f"leader would wait for followers, which wait for the leader's node; {_EFFECT}; use the strategy "
                "node-selector, or schedulingConstraints.topology"
            )
