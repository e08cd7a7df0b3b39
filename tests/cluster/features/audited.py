"""Read a user's requests from the API server's audit log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

Right = tuple[str, str, str]
"""(API group, resource or resource/subresource, verb)."""

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def audit_flags(directory: Path) -> tuple[str, ...]:
    """Write the policy and return the API server's flags for a log that `requests_of` reads."""
    policy = directory / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump(_POLICY))
    return (f"--audit-policy-file={policy}", f"--audit-log-path={directory / 'audit.log'}", "--audit-log-mode=blocking")


def requests_of(directory: Path, user: str) -> Iterator[dict[str, Any]]:
    """Yield the audit events of one user."""
    for line in (directory / "audit.log").read_text().splitlines():
        if user in line:
            event: dict[str, Any] = json.loads(line)
            if event["user"]["username"] == user and "objectRef" in event:
                yield event


def right_of(event: dict[str, Any]) -> Right:
    """Return the permission that a request needed."""
    ref = event["objectRef"]
    resource = "/".join(part for part in (ref["resource"], ref.get("subresource")) if part)
    return ref.get("apiGroup", ""), resource, event["verb"]


def granted(documents: Iterable[dict[str, Any]]) -> set[Right]:
    """Return the permissions that Roles and ClusterRoles grant."""
    return {
        (group, resource, verb)
        for document in documents
        if document["kind"] in ("ClusterRole", "Role")
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
