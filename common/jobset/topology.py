"""The fields of a pod template for exclusive placement: a selector, or affinity and a gate. Source: as placement.py."""

from __future__ import annotations

import copy
from typing import Any, Final

from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import JobSet
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

_JOB_LEVEL: Final = (wire.EXCLUSIVE_TOPOLOGY, wire.NODE_SELECTOR_STRATEGY)


def exclusive_annotations(jobset: JobSet, job: ReplicatedJob) -> dict[str, str]:
    """Return the annotations that ask for exclusive placement; the template's win over the JobSet's."""
    for given in (job.form.annotations, jobset.annotations):
        if given.get(wire.EXCLUSIVE_TOPOLOGY):
            return {name: given[name] for name in _JOB_LEVEL if name in given}
    return {}


def exclusive_key(jobset: JobSet, job: ReplicatedJob) -> str | None:
    """Return the node label whose values are the domains; None without exclusive placement."""
    return exclusive_annotations(jobset, job).get(wire.EXCLUSIVE_TOPOLOGY)


def uses_node_selector(jobset: JobSet, job: ReplicatedJob) -> bool:
    """Say whether the user prepares the nodes; the annotation counts beside exclusive-topology only."""
    return wire.NODE_SELECTOR_STRATEGY in exclusive_annotations(jobset, job)


def finds_domain(jobset: JobSet, job: ReplicatedJob) -> bool:
    """Say whether the scheduler finds a domain for each Job anew; otherwise the user has prepared its nodes."""
    return exclusive_key(jobset, job) is not None and not uses_node_selector(jobset, job)


def place_exclusively(jobset: JobSet, job: ReplicatedJob, job_name: str, job_key: str, pod_spec: KubeObject) -> None:
    """Add to a pod template what keeps one Job's Pods together and apart from others."""
    key = exclusive_key(jobset, job)
    if key is None:
        return
    if uses_node_selector(jobset, job):
        selector = {wire.NAMESPACED_JOB: f"{jobset.namespace}_{job_name}"}
        pod_spec["nodeSelector"] = (pod_spec.get("nodeSelector") or {}) | selector
        toleration = {"key": wire.NO_SCHEDULE, "operator": "Exists", "effect": "NoSchedule"}
        pod_spec["tolerations"] = [*(pod_spec.get("tolerations") or ()), toleration]
        return
    affinity = copy.deepcopy(dict(pod_spec.get("affinity") or {}))
    own: dict[str, Any] = {"key": wire.JOB_KEY, "operator": "In", "values": [job_key]}
    others: list[dict[str, Any]] = [{"key": wire.JOB_KEY, "operator": "Exists"}, own | {"operator": "NotIn"}]
    _require(affinity, "podAffinity", key, [own])
    _require(affinity, "podAntiAffinity", key, others)
    pod_spec["affinity"] = affinity
    pod_spec["schedulingGates"] = [*(pod_spec.get("schedulingGates") or ()), {"name": wire.PLACEMENT_GATE}]


def _require(affinity: KubeObject, kind: str, key: str, expressions: list[dict[str, Any]]) -> None:
    """Append a required term, in every namespace: a Job of another namespace is another Job."""
    term = {"labelSelector": {"matchExpressions": expressions}, "topologyKey": key, "namespaceSelector": {}}
    part = affinity.setdefault(kind, {})
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    part[field] = [*(part.get(field) or ()), term]
