"""
Build a Job's Pod from its template, and match a failed one against the Job's podFailurePolicy.

Source: pkg/controller/job/job_controller.go (podTemplate handling), indexed_job_utils.go, pod_failure_policy.go.
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


Verdict = tuple[str, str]
"""Action (FailJob, FailIndex, Ignore, Count) and the message for the Job's condition."""

COUNT: Verdict = ("Count", "")


def judge(pod: KubeObject, policy: dict[str, Any] | None) -> Verdict:
    """Return the action of the first matching rule; Count when none matches."""
    for position, rule in enumerate((policy or {}).get("rules") or ()):
        if "onExitCodes" in rule:
            words = _exit_code_match(pod, rule["onExitCodes"])
        else:
            words = _condition_match(pod, rule.get("onPodConditions") or ())
        if words:
            return rule["action"], f"{words} matching {rule['action']} rule at index {position}"
    return COUNT


def _exit_code_match(pod: KubeObject, requirement: dict[str, Any]) -> str:
    status = pod.get("status") or {}
    for container in (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())):
        if requirement.get("containerName") not in (None, container["name"]):
            continue
        code = (container.get("state", {}).get("terminated") or {}).get("exitCode", 0)
        # Zero never matches NotIn: a container that succeeded has not failed the Pod.
        if code != 0 and (code in requirement["values"]) == (requirement["operator"] == "In"):
            meta = pod["metadata"]
            where = f"Container {container['name']} for pod {meta['namespace']}/{meta['name']}"
            return f"{where} failed with exit code {code}"
    return ""


def _condition_match(pod: KubeObject, patterns: Any) -> str:
    statuses = {c["type"]: c["status"] for c in (pod.get("status") or {}).get("conditions") or ()}
    for pattern in patterns:
        if statuses.get(pattern["type"]) == pattern.get("status", "True"):
            meta = pod["metadata"]
            return f"Pod {meta['namespace']}/{meta['name']} has condition {pattern['type']}"
    return ""
