"""Find the rights of an agent's account in the Roles and bindings of the same file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inplace.common.injection.rights import ROLE, binds
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire


@dataclass(frozen=True, slots=True)
class Right:
    """One thing an agent does."""

    group: str
    resource: str
    verb: str
    name: str = ""  # of the one object; "" for any

    def __str__(self) -> str:
        """Return it as kubectl auth can-i has it."""
        return f"{self.verb} {self.resource}"


PATCH: Final = Right("", "pods", "patch")
ANNOUNCE: Final = Right("inplace.dev", "epochs", "announce")  # by which admission knows an agent
_SHIPPED: Final = [  # of deploy/rbac/agents.yaml
    {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]} for right in (PATCH, ANNOUNCE)
]


def rights_of(jobset: str) -> list[Right]:
    """Return what an agent of this JobSet does."""
    return [*(Right(wire.API_GROUP, "jobsets", verb, jobset) for verb in ("list", "watch")), PATCH]


def shown_rights(
    stream: Sequence[KubeObject], namespace: str, account: str, asked: Sequence[Right]
) -> list[Right] | None:
    """Return which of these the file gives this account; None when only the cluster can tell."""
    rules: list[Mapping[str, Any]] = []
    bound = False
    for binding in stream:
        place = _metadata(binding).get("namespace") or namespace
        if not binds(binding, namespace, account) or (binding["kind"] == "RoleBinding" and place != namespace):
            continue
        wanted = binding.get("roleRef") or {}
        role = next((one for one in stream if is_object(one, wanted.get("kind"), wanted.get("name"))), None)
        if role is None and (wanted.get("kind"), wanted.get("name")) == ("ClusterRole", ROLE):
            role = {"rules": _SHIPPED}
        if role is None:
            return None  # a Role that is in the cluster already may say anything
        bound = True
        rules += [rule for rule in role.get("rules") or () if isinstance(rule, dict)]
    return [right for right in asked if any(_allows(rule, right) for rule in rules)] if bound else None


def _allows(rule: Mapping[str, Any], right: Right) -> bool:
    pairs = (("apiGroups", right.group), ("resources", right.resource), ("verbs", right.verb))
    names = rule.get("resourceNames") or (right.name,)  # the names of later Pods are not known
    return right.name in names and all({wanted, "*"} & set(rule.get(field) or ()) for field, wanted in pairs)


def is_object(obj: KubeObject, kind: object, name: object, namespace: str | None = None) -> bool:
    """Say whether this is an object of a kind and a name; one without a namespace is in any."""
    is_there = namespace is None or (_metadata(obj).get("namespace") or namespace) == namespace
    return is_there and (obj.get("kind"), _metadata(obj).get("name")) == (kind, name)


def _metadata(obj: KubeObject) -> Mapping[str, Any]:
    return obj.get("metadata") or {}
