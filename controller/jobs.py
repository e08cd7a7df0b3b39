"""
Builds the Jobs and the headless Service of a JobSet.

The user's template goes through untouched, whatever it holds; only the fields named here are set.
Source of names, labels and annotations: jobset api/jobset/v1alpha2/jobset_types.go and pkg/controllers.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Any

from common import wire
from common.kube.client import KubeObject
from common.kube.resources import JOBS, SERVICES
from controller.jobset import JobSet, ReplicatedJob


def build_job(jobset: JobSet, job: ReplicatedJob, index: int) -> KubeObject:
    """Return the Job of one place."""
    keys = job_keys(jobset, job, index)
    metadata = job.template.get("metadata") or {}
    spec = copy.deepcopy(dict(job.job_spec))
    _fill_defaults(spec)
    spec["suspend"] = jobset.suspended
    pod_template = spec.setdefault("template", {})
    pod_metadata = pod_template.get("metadata") or {}
    pod_template["metadata"] = pod_metadata | _labelled(pod_metadata, keys)
    pod_spec = pod_template.setdefault("spec", {})
    if jobset.network.dns_hostnames:
        pod_spec["subdomain"] = jobset.subdomain
    pod_spec.setdefault("restartPolicy", "OnFailure")
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": jobset.job_name(job.name, index),
            "namespace": jobset.namespace,
            **_labelled(metadata, keys),
            "ownerReferences": [owner_reference(jobset)],
        },
        "spec": spec,
    }


def build_service(jobset: JobSet) -> KubeObject:
    """Return the headless Service that gives Pods their DNS names."""
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
        },
    }


def job_keys(jobset: JobSet, job: ReplicatedJob, index: int) -> dict[str, str]:
    """Return what is written as label AND annotation, on the Job and on its Pods."""
    name = jobset.job_name(job.name, index)
    keys = {
        wire.JOBSET_NAME: jobset.name,
        wire.JOBSET_UID: jobset.uid,
        wire.REPLICATED_JOB_NAME: job.name,
        wire.REPLICATED_JOB_REPLICAS: str(job.replicas),
        wire.GLOBAL_REPLICAS: str(sum(other.replicas for other in jobset.replicated_jobs)),
        wire.JOB_INDEX: str(index),
        wire.JOB_GLOBAL_INDEX: str(_index_among(jobset, job, index, group=None)),
        # Upstream's comments say SHA-256; its code, and so every label in the field, is SHA-1.
        wire.JOB_KEY: hashlib.sha1(f"{jobset.namespace}/{name}".encode(), usedforsecurity=False).hexdigest(),
        wire.RESTART_ATTEMPT: str(jobset.restarts),
        wire.JOB_RESTART_ATTEMPT: str(jobset.job_restarts_of(job.name, index)),
        wire.GROUP_NAME: job.group_name,
        wire.GROUP_REPLICAS: str(
            sum(other.replicas for other in jobset.replicated_jobs if other.group_name == job.group_name)
        ),
        wire.JOB_GROUP_INDEX: str(_index_among(jobset, job, index, group=job.group_name)),
    }
    if (coordinator := _coordinator(jobset)) is not None:
        keys[wire.COORDINATOR] = coordinator
    return keys


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


def _labelled(metadata: Mapping[str, Any], keys: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return the user's labels and annotations with ours on top: ours win on a clash."""
    return {part: (metadata.get(part) or {}) | keys for part in ("labels", "annotations")}


def _fill_defaults(spec: dict[str, Any]) -> None:
    """Fill in what upstream's webhook fills in.

    An Indexed Job needs completions. Upstream leaves them out when only parallelism is set, and the API
    refuses the Job for ever; a Pod for each of `parallelism` is what was meant.
    """
    spec.setdefault("completionMode", "Indexed")
    if spec["completionMode"] == "Indexed" and "parallelism" in spec:
        spec.setdefault("completions", spec["parallelism"])


def _index_among(jobset: JobSet, job: ReplicatedJob, index: int, *, group: str | None) -> int:
    """Return the running index of a Job over the replicatedJobs, in spec order, of one group or of all."""
    before = 0
    for other in jobset.replicated_jobs:
        if other.name == job.name:
            break
        if group is None or other.group_name == group:
            before += other.replicas
    return before + index


def _coordinator(jobset: JobSet) -> str | None:
    coordinator = (jobset.raw.get("spec") or {}).get("coordinator")
    if not coordinator:
        return None
    job_index, pod_index = coordinator.get("jobIndex") or 0, coordinator.get("podIndex") or 0
    return f"{jobset.name}-{coordinator['replicatedJob']}-{job_index}-{pod_index}.{jobset.subdomain}"
