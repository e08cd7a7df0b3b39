"""
Build a Job's Pod from its template.

Source: pkg/controller/job/job_controller.go (podTemplate handling), indexed_job_utils.go.
"""

from __future__ import annotations

from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.common.wire.names import JOB_COMPLETION_INDEX
from inplace.simulator.cluster.job_indexes import IndexFailures

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_GENERATE_NAME_MAX = 58  # leaves room for five random characters in a DNS label


def pod_of(job: KubeObject, index: int | None, failures: IndexFailures) -> KubeObject:
    """Return the Pod to create for one completion index (None for a Job without indexes) after so many failures."""
    template = job["spec"]["template"]
    template_meta = template.get("metadata") or {}
    name = job["metadata"]["name"]
    meta: dict[str, Any] = {
        "generateName": f"{name[:_GENERATE_NAME_MAX]}-",
        "namespace": job["metadata"]["namespace"],
        "labels": dict(template_meta.get("labels") or {}),
        "annotations": dict(template_meta.get("annotations") or {}),
        "finalizers": list(template_meta.get("finalizers") or ()),
        "ownerReferences": [owner_reference(job)],
    }
    spec = dict(template["spec"])
    if index is not None:
        meta["generateName"] = f"{name[: _GENERATE_NAME_MAX - len(str(index)) - 1]}-{index}-"
        meta["labels"][JOB_COMPLETION_INDEX] = str(index)
        meta["annotations"][JOB_COMPLETION_INDEX] = str(index)
        if job["spec"].get("backoffLimitPerIndex") is not None:
            meta["annotations"] |= failures.annotations()
        spec.setdefault("hostname", f"{name}-{index}")
        for kind in ("initContainers", "containers"):
            if spec.get(kind):
                spec[kind] = [_with_index(container) for container in spec[kind]]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def owner_reference(job: KubeObject) -> dict[str, Any]:
    """Return the controller reference to a Job."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_uid(pod: KubeObject) -> str | None:
    """Return the uid of the Job that controls a Pod."""
    for reference in pod["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == "Job":
            return str(reference["uid"])
    return None


def _with_index(container: dict[str, Any]) -> dict[str, Any]:
    env = container.get("env") or []
    if any(entry["name"] == INDEX_VARIABLE for entry in env):
        return container
    field = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{JOB_COMPLETION_INDEX}']"}
    return container | {"env": [*env, {"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": field}}]}
