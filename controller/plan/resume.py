"""
Change a Job at a resume: the parts of the pod template that a queue sets before it admits the JobSet.

Labels, annotations, nodeSelector, tolerations and schedulingGates become those of the JobSet's template, removals
included: a queue that now admits to other nodes has removed its old node selector. (Upstream only adds.) The labels
that the API server gave the Job stay. A running Job is never changed. Source: jobset
pkg/controllers/jobset_controller.go, resumeJob; KEP-2926 (mutable scheduling directives), KEP-5440.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inplace.common.kube.resources import KubeObject

# What the API server adds to a Job's pod template. Source: k8s.io/kubernetes/pkg/registry/batch/job/strategy.go.
GENERATED_LABELS: Final = frozenset(
    {"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}
)
_METADATA: Final = ("labels", "annotations")
_LISTS: Final = ("tolerations", "schedulingGates")


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
    return patch


def _map_changes(
    stored: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None, kept: frozenset[str]
) -> dict[str, Any]:
    """Return the keys to set, and those to remove as None."""
    old, new = stored or {}, wanted or {}
    changes: dict[str, Any] = {key: value for key, value in new.items() if old.get(key) != value}
    return changes | dict.fromkeys((key for key in old if key not in new and key not in kept), None)
