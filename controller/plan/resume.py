"""
Change a Job at a resume: the parts of the pod template that a queue sets before it admits the JobSet.

Labels, annotations, nodeSelector, tolerations and schedulingGates become those of the JobSet's template, removals
included: a queue that now admits to other nodes has removed its old node selector. (Upstream only adds.) So do the
requests and limits of containers and init containers, matched by name; the rest of a container stays. The labels that
the API server gave the Job stay. A running Job is never changed. Source: jobset
pkg/controllers/jobset_controller.go, resumeJob; KEP-1150; KEP-2926 (mutable scheduling directives), KEP-5440.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

# What the API server adds to a Job's pod template. Source: k8s.io/kubernetes/pkg/registry/batch/job/strategy.go.
GENERATED_LABELS: Final = frozenset(
    {"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}
)
_METADATA: Final = ("labels", "annotations")
_LISTS: Final = ("tolerations", "schedulingGates")
_CONTAINERS: Final = ("containers", "initContainers")
_RESOURCES: Final = ("requests", "limits")


def template_patch(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> KubeObject:
    """Return the merge patch that makes a stored pod template what it should be; empty when it is."""
    metadata, spec = stored.get("metadata") or {}, stored.get("spec") or {}
    wanted_metadata, wanted_spec = wanted.get("metadata") or {}, wanted.get("spec") or {}
    patch: KubeObject = {}
    for part in _METADATA:
        kept = GENERATED_LABELS if part == "labels" else frozenset()
        if changes := _map_changes(metadata.get(part), wanted_metadata.get(part), kept):
            patch.setdefault("metadata", {})[part] = changes
    if changes := _map_changes(spec.get("nodeSelector"), wanted_spec.get("nodeSelector"), frozenset()):
        patch.setdefault("spec", {})["nodeSelector"] = changes
    for part in _LISTS:
        if (spec.get(part) or []) != (wanted_spec.get(part) or []):
            patch.setdefault("spec", {})[part] = wanted_spec.get(part) or None
    for part in _CONTAINERS:
        old = spec.get(part) or []
        if (new := _with_resources(old, wanted_spec.get(part) or [])) != old:
            patch.setdefault("spec", {})[part] = new  # a merge patch replaces a list whole
    return patch


def changes_resources(patch: Mapping[str, Any]) -> bool:
    """Say whether a patch of a pod template gives its containers other resources."""
    return any(part in (patch.get("spec") or {}) for part in _CONTAINERS)


def execution_annotation(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotation of a Job that says in which execution it begins to run."""
    annotations = job["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name == wire.EXECUTION_ATTEMPT}


def _with_resources(stored: list[KubeObject], wanted: list[KubeObject]) -> list[KubeObject]:
    """Return the stored containers with the requests and limits of the wanted ones of their names."""
    by_name = {container.get("name"): container.get("resources") or {} for container in wanted}
    return [
        container | _resources(container, by_name[container["name"]]) if container["name"] in by_name else container
        for container in stored
    ]


def _resources(stored: KubeObject, wanted: Mapping[str, Any]) -> KubeObject:
    """Return the resources of a container, requests and limits as wanted; nothing where they are so already."""
    old: KubeObject = stored.get("resources") or {}
    new = {name: wanted[name] for name in _RESOURCES if wanted.get(name)}
    if {name: old[name] for name in _RESOURCES if old.get(name)} == new:
        return {}
    return {"resources": {name: value for name, value in old.items() if name not in _RESOURCES} | new}


def _map_changes(
    stored: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None, kept: frozenset[str]
) -> dict[str, Any]:
    """Return the keys to set, and those to remove as None."""
    old, new = stored or {}, wanted or {}
    changes: dict[str, Any] = {key: value for key, value in new.items() if old.get(key) != value}
    return changes | dict.fromkeys((key for key in old if key not in new and key not in kept), None)
