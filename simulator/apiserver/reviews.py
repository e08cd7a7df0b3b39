"""
Answer access reviews and "who am I". Every user may do everything here.

Source: authorization.k8s.io/v1, authentication.k8s.io/v1.
"""

from __future__ import annotations

from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.route import Route

REVIEWS: dict[tuple[str, str], dict[str, str]] = {
    ("authorization.k8s.io", "v1"): {
        "selfsubjectaccessreviews": "SelfSubjectAccessReview",
        "subjectaccessreviews": "SubjectAccessReview",
        "localsubjectaccessreviews": "LocalSubjectAccessReview",
        "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    },
    ("authentication.k8s.io", "v1"): {
        "selfsubjectreviews": "SelfSubjectReview",
        "tokenreviews": "TokenReview",
    },
}

_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


def is_local(plural: str) -> bool:
    """Say whether a review is asked for in a namespace."""
    return plural.startswith("local")


def answer_review(route: Route, body: KubeObject, user: str) -> KubeObject:
    """Return the review with its status filled in."""
    status: dict[str, Any]
    match route.plural:
        case "selfsubjectreviews":
            status = {"userInfo": {"username": user, "groups": ["system:authenticated"]}}
        case "tokenreviews":
            token = str((body.get("spec") or {}).get("token", ""))
            name = token.removeprefix("user:")
            status = {"authenticated": token.startswith("user:"), "user": {"username": name}}
        case "selfsubjectrulesreviews":
            rules = [_EVERYTHING]
            status = {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}
        case _:
            status = {"allowed": True, "reason": "the simulator allows everything"}
    version = (route.group, route.version)
    identity: KubeObject = {"apiVersion": "/".join(version), "kind": REVIEWS[version][route.plural]}
    return identity | body | {"metadata": body.get("metadata") or {"creationTimestamp": None}, "status": status}
