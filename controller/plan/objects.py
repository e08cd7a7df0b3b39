"""Keep what a JobSet has beside its Jobs: its Service, its claims, and the Workload of its gang."""

from __future__ import annotations

from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.pod_groups import PodGroup, is_replaced, pod_groups, read_scheduling, resized, wanted_objects
from inplace.common.jobset.service import service_ports
from inplace.common.kube.resources import SERVICES, KubeObject, Resource
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import (
    CreateClaim,
    CreateSchedulingObject,
    CreateService,
    DeleteSchedulingObject,
    ResizeSchedulingObject,
    UpdateService,
)
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.jobs import build_claim, owner_reference
from inplace.controller.plan.problems.spec import bad_scheduling

# Create the headless Service that gives Pods their DNS names, and keep its ports as the containers have them.


def ensure_service(draft: Draft) -> bool:
    """Create the Service, or give ours the ports that it lacks; another owner's is left alone."""
    jobset, present = draft.jobset, draft.observed.service
    if not jobset.network.dns_hostnames:
        return False
    if present is None:
        draft.add(CreateService(build_service(jobset)))
    elif present.owner_uid == jobset.uid and present.metadata.deletion_timestamp is None:
        ports = service_ports(jobset)
        if not present.has_ports(ports):
            draft.add(UpdateService(present, tuple(ports)))
    return False


def build_service(jobset: JobSet) -> KubeObject:
    """Return the headless Service."""
    ports = service_ports(jobset)
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {
            "name": jobset.subdomain,
            "namespace": jobset.namespace,
            "ownerReferences": [owner_reference(jobset)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {wire.JOBSET_NAME: jobset.name},
            "publishNotReadyAddresses": jobset.network.publish_not_ready,
        }
        | ({"ports": ports} if ports else {}),
    }


# Create the PersistentVolumeClaims of spec.volumeClaimPolicies before any Job, also while suspended.
#
# A claim that exists is used as it is, whatever its spec: so data outlives a JobSet (whenDeleted Retain), and users can
# create claims by hand. Such a claim is neither changed nor adopted. The controller waits only for a claim that is
# being deleted, or that will be deleted with another JobSet: Pods that mounted it would lose their data or never start.
# Source: jobset pkg/controllers/volume_claim_policy.go.
LOOK_AGAIN_S = 30.0  # removing an owner from a claim wakes no JobSet


def ensure_claims(draft: Draft) -> bool:
    """Create the claims that are missing; no Job starts before all are there, but the rest of the pass goes on."""
    jobset = draft.jobset
    for claim in jobset.claims:
        name = jobset.claim_name(claim)
        present = draft.observed.claims.get(name)
        if present is None:
            draft.add(CreateClaim(build_claim(jobset, claim)))
            draft.may_start_jobs = False
            continue
        owner = present.owner_uid
        if present.metadata.deletion_timestamp is not None or owner not in (None, jobset.uid):
            draft.may_start_jobs = False
            draft.look_again(LOOK_AGAIN_S)
            state = "is being deleted" if owner in (None, jobset.uid) else f"goes with another jobset (UID {owner})"
            draft.warn(
                "PVCCreationFailed",
                f"persistentvolumeclaim {name} {state}: expected a free name, or a claim that stays; no job is created "
                "until it is gone; delete what still uses it, or rename the jobset",
            )
    return False


# Keep the Workload and the PodGroups that spec.scheduling asks for, so that the scheduler places the Pods together.
#
# They come before the Jobs, and go while the JobSet is suspended and when it is finished, so that nothing holds room.
# Restarts keep them, in place and by recreation. A gang's size follows an elastic Job. What else differs cannot be
# changed, so all are deleted and made anew. A Job says in an annotation which template its Pods belong to.
#
# A JobSet without the field gets nothing, and the API server is asked nothing: upstream fills a gang in when its
# feature gate is on, and the gate is off by default. Here the field itself is the gate. Where the server does not serve
# the API, one Event says so and the Pods are scheduled one by one. A group whose Jobs run without a gang stays so until
# all are made anew: a gang of which some Pods are no members is never complete. Source: jobset
# pkg/controllers/scheduling.go.


def keep_gang(draft: Draft) -> bool:
    """Create, resize or delete the objects; no Job is created or resumed before all are there."""
    jobset, seen = draft.jobset, draft.observed.scheduling_objects
    groups: tuple[PodGroup, ...] = ()
    if read_scheduling(jobset) is not None:
        if not seen.is_known:
            draft.may_start_jobs = False  # the answer wakes the JobSet
            return False
        if seen.why_none:
            _tell(draft, seen.why_none)
        elif not any(bad_scheduling(jobset)):
            groups = pod_groups(jobset)
            if _runs_otherwise(draft, groups):
                return False
            draft.groups = groups
    ends = jobset.suspended or jobset.is_finished
    _agree(draft, {} if ends or not groups else wanted_objects(jobset, groups))
    return False


def _agree(draft: Draft, wanted: dict[tuple[Resource, str], KubeObject]) -> None:
    """Make the stored objects the wanted ones."""
    stored = draft.observed.scheduling_objects.stored
    is_stale = any(is_replaced(one.spec, wanted[key]) for key, one in stored.items() if key in wanted)
    for (resource, name), one in stored.items():
        if (is_stale or (resource, name) not in wanted) and one.metadata.deletion_timestamp is None:
            draft.add(DeleteSchedulingObject(resource, name, one.metadata.uid))
    for (resource, name), spec in wanted.items():
        present = stored.get((resource, name))
        if present is None:
            draft.add(CreateSchedulingObject(resource, _object(draft.jobset, resource, name, spec)))
        elif not is_stale and (change := resized(present.spec, spec)):
            draft.add(ResizeSchedulingObject(resource, name, present.metadata.uid, change))
        if present is None or is_stale or present.metadata.deletion_timestamp is not None:
            draft.may_start_jobs = False  # its Pods would name a group that goes, and hold it


def _object(jobset: JobSet, resource: Resource, name: str, spec: KubeObject) -> KubeObject:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": jobset.namespace,
            "labels": {wire.JOBSET_NAME: jobset.name},
            "ownerReferences": [owner_reference(jobset)],
        },
        "spec": spec,
    }


def _runs_otherwise(draft: Draft, groups: tuple[PodGroup, ...]) -> bool:
    """Say whether some Job runs whose Pods are in none of the groups."""
    templates = {group.template for group in groups}
    return any(not job.spec.suspend and job.group_template not in templates for job in draft.buckets.active)


def _tell(draft: Draft, why: str) -> None:
    """Say ONCE, with the first Jobs, that there is no gang."""
    if not draft.observed.jobs and not draft.jobset.restarts and not draft.jobset.is_finished:
        draft.warn(
            "GangUnavailable",
            f"spec.scheduling: expected an API server that serves {wire.SCHEDULING_API} (Kubernetes 1.37 with the "
            f"feature gate GenericWorkload), saw {why}: the pods are scheduled one by one",
        )
