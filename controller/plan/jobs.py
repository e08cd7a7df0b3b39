"""
Build the Jobs and the claims of a JobSet.

The user's template stays as it is; only the fields named here are set. Source of names, labels and annotations: jobset
api/jobset/v1alpha2/jobset_types.go and pkg/controllers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from inplace.common.injection.agent_pieces import JOB_FIELDS
from inplace.common.injection.index_backoff import back_off_per_index
from inplace.common.jobset.bad_nodes import avoid_in_template
from inplace.common.jobset.fields import Claim, Coordinator, ReplicatedJob
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.pod_groups import PodGroup
from inplace.common.jobset.scopes import WHOLE
from inplace.common.jobset.settings import carried
from inplace.common.jobset.topology import exclusive_annotations, place_exclusively
from inplace.common.kube.resources import JOBS, PERSISTENT_VOLUME_CLAIMS, KubeObject
from inplace.common.wire import names as wire

LABEL_CHARACTERS_MAX = 63  # of a label's value; the API refuses a Job with a longer one


def build_job(
    jobset: JobSet, job: ReplicatedJob, index: int, execution: int | None = None, group: PodGroup | None = None
) -> KubeObject:
    """Return the Job of one place, in this execution of the JobSet (None before the first), and this group of Pods."""
    keys = job_keys(jobset, job, index)
    template = job.template()
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    _fill_defaults(spec)
    if jobset.is_in_place and not job.has_opted_out:
        _make_in_place(spec)
    spec["suspend"] = jobset.suspended
    pod_template = spec["template"] = spec.get("template") or {}
    pod_metadata = pod_template.get("metadata") or {}
    annotations = exclusive_annotations(jobset, job)
    if execution is not None:
        annotations |= {wire.EXECUTION_ATTEMPT: str(execution)}
    pod_template["metadata"] = pod_metadata | _labelled(pod_metadata, keys, annotations)
    pod_template["metadata"]["annotations"] |= _herd_annotations(jobset, job, index)
    if not job.has_opted_out:
        own = pod_template["metadata"]["annotations"]
        own |= carried(jobset.annotations) | carried(own) | own
        own.pop(wire.MEMBERS, None)  # of a manifest it means nothing here, and an agent would read it
    if (scope := jobset.scope_name(job)) != WHOLE and not job.has_opted_out:
        pod_template["metadata"]["annotations"][wire.RESTART_SCOPE] = scope
        if jobset.scopes[scope].has_spares:
            pod_template["metadata"]["annotations"][wire.MEMBERS] = hosts_of(jobset, job, index)
    pod_spec = pod_template["spec"] = pod_template.get("spec") or {}
    if jobset.network.dns_hostnames:
        pod_spec["subdomain"] = jobset.subdomain
    pod_spec["restartPolicy"] = (
        pod_spec.get("restartPolicy") or "OnFailure"
    )  # absent or "", as upstream's webhook has it
    _add_volumes(jobset, pod_spec)
    if (after_s := jobset.fence_after_s) is not None and not job.has_opted_out:
        fence(spec, after_s)
    place_exclusively(jobset, job, jobset.job_name(job.name, index), keys[wire.JOB_KEY], pod_spec)
    if jobset.bad_nodes is not None and not job.has_opted_out:
        avoid_in_template(pod_spec)
    if group is not None:
        pod_spec["schedulingGroup"] = {"podGroupName": group.name}
        annotations = annotations | {wire.GROUP_TEMPLATE: group.template}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": jobset.job_name(job.name, index),
            "namespace": jobset.namespace,
            **_labelled(metadata, keys, annotations),
            "ownerReferences": [owner_reference(jobset)],
        },
        "spec": spec,
    }


def build_claim(jobset: JobSet, claim: Claim) -> KubeObject:
    """Return a PersistentVolumeClaim; one that is retained has no owner, so nothing deletes it with the JobSet."""
    template = claim.template()
    metadata = template.get("metadata") or {}
    built: KubeObject = {
        "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
        "kind": PERSISTENT_VOLUME_CLAIMS.kind,
        "metadata": {
            "name": jobset.claim_name(claim),
            "namespace": jobset.namespace,
            "labels": (metadata.get("labels") or {}) | {wire.JOBSET_NAME: jobset.name},
            "annotations": dict(metadata.get("annotations") or {}),
        },
        "spec": template.get("spec") or {},
    }
    if not claim.retained:
        built["metadata"]["ownerReferences"] = [owner_reference(jobset)]
    return built


def job_keys(jobset: JobSet, job: ReplicatedJob, index: int) -> dict[str, str]:
    """Return what is written as label AND annotation, on the Job and on its Pods."""
    name = jobset.job_name(job.name, index)
    keys = {
        wire.JOBSET_NAME: jobset.name,
        wire.JOBSET_UID: jobset.uid,
        wire.REPLICATED_JOB_NAME: job.name,
        wire.REPLICATED_JOB_REPLICAS: str(job.replicas),
        wire.GLOBAL_REPLICAS: str(len(jobset.places)),
        wire.JOB_INDEX: str(index),
        wire.JOB_GLOBAL_INDEX: str(jobset.places.position(name)),
        # Upstream's comments say SHA-256; its code, and so every label in the field, is SHA-1.
        wire.JOB_KEY: hashlib.sha1(f"{jobset.namespace}/{name}".encode(), usedforsecurity=False).hexdigest(),
        wire.RESTART_ATTEMPT: str(jobset.restarts),
        wire.JOB_RESTART_ATTEMPT: str(jobset.job_restarts_of(job.name, index)),
        wire.GROUP_NAME: job.group_name,
        wire.GROUP_REPLICAS: str(jobset.numbers.jobs[job.group_name]),
        wire.JOB_GROUP_INDEX: str(jobset.numbers.first_job[job.name] + index),
    }
    if (
        jobset.coordinator is not None
        and len(host := coordinator_host(jobset, jobset.coordinator)) <= LABEL_CHARACTERS_MAX
    ):
        keys[wire.COORDINATOR] = host
    return keys


def hosts_of(jobset: JobSet, job: ReplicatedJob, index: int) -> str:
    """Return the host names of a replicatedJob's Pods as one text, with "*" for a Pod's number; "*" if they have none.

    Pods of a group with spares carry it as the annotation MEMBERS: their agents find in it where rank 0 is. Where whole
    Jobs play ranks, "*" stands for a Job's index, the names are those of first Pods, and this Job's index is before it.
    """
    names, subdomain = jobset.network.dns_hostnames, jobset.subdomain
    if job.replicas == 1:
        return f"{jobset.job_name(job.name, 0)}-*.{subdomain}" if names else "*"
    return f"{index}/{jobset.name}-{job.name}-*-0.{subdomain}" if names else f"{index}/*"


def coordinator_host(jobset: JobSet, coordinator: Coordinator) -> str:
    """Return the coordinator's host name in the JobSet's subdomain."""
    job_name = jobset.job_name(coordinator.replicated_job, coordinator.job_index)
    return f"{job_name}-{coordinator.pod_index}.{jobset.subdomain}"


def owner_reference(jobset: JobSet) -> KubeObject:
    """Return the reference that makes the JobSet an object's controller."""
    return {
        "apiVersion": wire.API_VERSION,
        "kind": wire.KIND,
        "name": jobset.name,
        "uid": jobset.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def mounted_volumes(pod_spec: Mapping[str, Any]) -> set[str]:
    """Return the names of the volumes that some container mounts."""
    containers = [*(pod_spec.get("initContainers") or ()), *(pod_spec.get("containers") or ())]
    return {str(mount.get("name")) for container in containers for mount in container.get("volumeMounts") or ()}


def _add_volumes(jobset: JobSet, pod_spec: KubeObject) -> None:
    """Give a Pod the claims that it mounts; a volume of that name in the template stays what it is."""
    volumes = list(pod_spec.get("volumes") or ())
    wanted = mounted_volumes(pod_spec) - {volume.get("name") for volume in volumes}
    claims = [claim for claim in jobset.claims if claim.name in wanted]
    for claim in claims:
        source = {"claimName": jobset.claim_name(claim)}
        volumes.append({"name": claim.name, "persistentVolumeClaim": source})
    if claims:
        pod_spec["volumes"] = volumes


def _herd_annotations(jobset: JobSet, job: ReplicatedJob, index: int) -> dict[str, str]:
    """Return what tells each agent its place in the herd (agent/settings/herd.py); an elastic resize keeps it."""
    scope = jobset.scope_name(job)  # those who restart together
    return {
        wire.GROUP_SIZE: str(jobset.numbers.slots[scope]),
        wire.GROUP_OFFSET: str(jobset.numbers.first_slot[job.name] + index * job.parallelism),
    }


def _labelled(
    metadata: Mapping[str, Any], keys: dict[str, str], annotations: dict[str, str]
) -> dict[str, dict[str, str]]:
    """Return the user's labels and annotations with ours on top: ours win on a clash."""
    return {
        "labels": (metadata.get("labels") or {}) | keys,
        "annotations": (metadata.get("annotations") or {}) | annotations | keys,
    }


def _fill_defaults(spec: dict[str, Any]) -> None:
    """Fill in what upstream's webhook fills in.

    An Indexed Job needs completions. Upstream leaves them out when only parallelism is set, and the API
    refuses the Job for ever; a Pod for each of `parallelism` is what was meant.
    """
    spec["completionMode"] = spec.get("completionMode") or "Indexed"
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None and "parallelism" in spec:
        spec["completions"] = spec["parallelism"]


def _make_in_place(spec: dict[str, Any]) -> None:
    """Set what a restart in place needs of a Job: all its Pods run at once, and are replaced one by one.

    Upstream's webhook asks the user for each of them (V10 to V12), and the CRD refuses other values beside
    InPlaceRestart. A program whose JobSet has the annotation wrote them for another strategy (docs/adr/0090).
    """
    spec |= JOB_FIELDS
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    if spec.get("completions") is None:
        spec["completions"] = spec["parallelism"]
    back_off_per_index(spec)


# Let Kubernetes replace the Pods of a dead node at once, where their agents keep leases (docs/adr/0072).
#
# Three things stand in the Job: the length of the lease, which the agents read from their Pod; a toleration that ends
# the moment Kubernetes taints the node as unreachable, instead of 300 s later; and a replacement beside the Pod that
# cannot end there. The barrier still waits for that Pod, until its lease is over. No right on nodes or Pods is needed.
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TOLERATION: Final = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
REPLACED_EARLY: Final = "TerminatingOrFailed"


def fence(job_spec: dict[str, Any], after_s: int) -> None:
    """Change a Job's spec; one with a podFailurePolicy stays as it is: Kubernetes refuses the two together.

    Of several tolerations that match a taint, Kubernetes takes the shortest, so the user's own may stay.
    """
    if job_spec.get("podFailurePolicy"):
        return
    job_spec["podReplacementPolicy"] = REPLACED_EARLY
    template: KubeObject = job_spec["template"]
    template["metadata"]["annotations"][wire.FENCE_AFTER] = str(after_s)
    tolerations = template["spec"].get("tolerations") or []
    template["spec"]["tolerations"] = [*tolerations, dict(TOLERATION)]
