"""
Find volumeClaimPolicies that cannot work as written: V24 to V27 of upstream's webhook.

A claim that exists is used as it is (controller/plan/claims.py). So this module reports a claim that differs from its
template, or that nothing will delete although the policy says so. A claim differs if a field of the template has
another value. Fields that the server or a provisioner filled in are no difference, nor is more storage than was asked
for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from inplace.common.jobset.claim import PersistentVolumeClaim
from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.stored import as_value
from inplace.common.kube.quantity import parse_quantity
from inplace.controller.plan.jobs import mounted_volumes

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
