"""
Requests that show no object: reviews, and the subresources binding, eviction, finalize and token.

Reviews say that every user may do everything.
Source: k8s.io/kubernetes/pkg/registry/core/pod/storage and .../serviceaccount/storage; authorization.k8s.io/v1,
authentication.k8s.io/v1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inplace.common.kube.clock import Clock
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver import status
from inplace.simulator.apiserver.deletion import DeleteOptions, Deletions
from inplace.simulator.apiserver.kinds import Kind, with_metadata
from inplace.simulator.apiserver.metadata import timestamp
from inplace.simulator.apiserver.route import Route
from inplace.simulator.apiserver.store import Store
from inplace.simulator.apiserver.writes import NAMESPACES_KEY, WriteOptions, Writes

_TOKEN_LIFE_S = 3600
_DISRUPTED = "DisruptionTarget"


def bind(writes: Writes, kind: Kind, pod: KubeObject, binding: KubeObject, options: WriteOptions) -> None:
    """Bind a Pod to the node that a scheduler names."""
    meta, spec = pod["metadata"], pod["spec"]
    node = (binding.get("target") or {}).get("name")
    if not node:
        cause = status.required("target.name")
        raise status.invalid("Binding", "", meta["name"], [cause])
    if meta.get("deletionTimestamp"):
        raise status.conflict(
            "pods/binding", "", meta["name"], f"pod {meta['name']} is being deleted, cannot be assigned to a host"
        )
    if spec.get("nodeName"):
        why = f'pod {meta["name"]} is already assigned to node "{spec["nodeName"]}"'
        raise status.conflict("pods/binding", "", meta["name"], why)
    if spec.get("schedulingGates"):
        raise status.conflict(
            "pods/binding", "", meta["name"], f"pod {meta['name']} has non-empty .spec.schedulingGates"
        )
    conditions = [c for c in (pod.get("status") or {}).get("conditions") or () if c.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": writes.now()}
    bound = pod | {
        "spec": spec | {"nodeName": node},
        "status": (pod.get("status") or {}) | {"conditions": [*conditions, scheduled]},
    }
    extra = (binding.get("metadata") or {}).get("annotations")
    if extra:
        bound = with_metadata(bound, annotations=(meta.get("annotations") or {}) | extra)
    writes.put_trusted(kind, pod, bound, options)


def evict(deletions: Deletions, kind: Kind, pod: KubeObject, eviction: KubeObject, *, writes: Writes) -> None:
    """Mark a Pod as disrupted, and delete it, as a drain does; disruption budgets are ignored.

    Source: k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go, addConditionAndDeletePod.
    """
    options = DeleteOptions.parse(eviction.get("deleteOptions"), {})
    if not options.dry_run:
        conditions = [c for c in (pod.get("status") or {}).get("conditions") or () if c.get("type") != _DISRUPTED]
        evicting = {
            "type": _DISRUPTED,
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": writes.now(),
        }
        marked = pod | {"status": (pod.get("status") or {}) | {"conditions": [*conditions, evicting]}}
        deletions.check(kind, pod, options)
        pod = writes.put_trusted(kind, pod, marked, WriteOptions())
    deletions.delete(kind, pod, replace(options, resource_version=None))


def finalize(store: Store, namespace: KubeObject, body: KubeObject) -> KubeObject:
    """Set a namespace's own finalizers."""
    finalizers = (body.get("spec") or {}).get("finalizers") or []
    changed = namespace | {"spec": namespace["spec"] | {"finalizers": finalizers}}
    meta = namespace["metadata"]
    if meta.get("deletionTimestamp") and not finalizers and not meta.get("finalizers"):
        return store.remove(NAMESPACES_KEY, changed)
    return store.put(NAMESPACES_KEY, changed)


def mint_token(account: KubeObject, request: KubeObject, clock: Clock) -> KubeObject:
    """Answer a TokenRequest with a token that this server recognises as the ServiceAccount's user."""
    meta = account["metadata"]
    life_s = (request.get("spec") or {}).get("expirationSeconds") or _TOKEN_LIFE_S
    token = f"user:system:serviceaccount:{meta['namespace']}:{meta['name']}"
    return request | {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "creationTimestamp": None},
        "status": {"token": token, "expirationTimestamp": timestamp(clock.wall_s() + life_s)},
    }


REVIEWS: dict[tuple[str, str], dict[str, str]] = {
    ("authorization.k8s.io", "v1"): {
        "selfsubjectaccessreviews": "SelfSubjectAccessReview",
        "subjectaccessreviews": "SubjectAccessReview",
        "localsubjectaccessreviews": "LocalSubjectAccessReview",
        "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    },
    ("authentication.k8s.io", "v1"): {"selfsubjectreviews": "SelfSubjectReview", "tokenreviews": "TokenReview"},
}

_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


def is_local(plural: str) -> bool:
    """Say whether a review is asked for in a namespace."""
    return plural.startswith("local")


def answer_review(route: Route, body: KubeObject, user: str) -> KubeObject:
    """Return the review with its status filled in."""
    filled: dict[str, Any]
    match route.plural:
        case "selfsubjectreviews":
            filled = {"userInfo": {"username": user, "groups": ["system:authenticated"]}}
        case "tokenreviews":
            token = str((body.get("spec") or {}).get("token", ""))
            name = token.removeprefix("user:")
            filled = {"authenticated": token.startswith("user:"), "user": {"username": name}}
        case "selfsubjectrulesreviews":
            rules = [_EVERYTHING]
            filled = {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}
        case _:
            filled = {"allowed": True, "reason": "the simulator allows everything"}
    version = (route.group, route.version)
    identity: KubeObject = {"apiVersion": "/".join(version), "kind": REVIEWS[version][route.plural]}
    return identity | body | {"metadata": body.get("metadata") or {"creationTimestamp": None}, "status": filled}
