"""Find the rights of an agent's account in the Roles and bindings of the same file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.injection.agent_pieces import binds


@dataclass(frozen=True, slots=True)
class Right:
    """One thing an agent does."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        """Return it as kubectl auth can-i has it."""
        return f"{self.verb} {self.resource}"


RIGHTS: Final = (
    Right(wire.API_GROUP, "jobsets", "list"),
    Right(wire.API_GROUP, "jobsets", "watch"),
    Right("", "pods", "patch"),
)


def shown_rights(stream: Sequence[KubeObject], namespace: str, account: str) -> list[Right] | None:
    """Return what the file gives this account; None when only the cluster can tell."""
    rules: list[Mapping[str, Any]] = []
    bound = False
    for binding in stream:
        place = _metadata(binding).get("namespace", namespace)
        if not binds(binding, namespace, account) or (binding["kind"] == "RoleBinding" and place != namespace):
            continue
        wanted = binding.get("roleRef") or {}
        role = next((one for one in stream if is_object(one, wanted.get("kind"), wanted.get("name"))), None)
        if role is None:
            return None  # a Role that is in the cluster already may say anything
        bound = True
        rules += [rule for rule in role.get("rules") or () if isinstance(rule, dict)]
    return [right for right in RIGHTS if any(_allows(rule, right) for rule in rules)] if bound else None


def _allows(rule: Mapping[str, Any], right: Right) -> bool:
    pairs = (("apiGroups", right.group), ("resources", right.resource), ("verbs", right.verb))
    return all({wanted, "*"} & set(rule.get(field) or ()) for field, wanted in pairs) and not (
        right.resource == "pods" and rule.get("resourceNames")  # nobody knows the names of Pods to come
    )


def is_object(obj: KubeObject, kind: object, name: object, namespace: str | None = None) -> bool:
    """Say whether this is an object of a kind and a name; one without a namespace is in any."""
    is_there = namespace is None or _metadata(obj).get("namespace", namespace) == namespace
    return is_there and (obj.get("kind"), _metadata(obj).get("name")) == (kind, name)


def _metadata(obj: KubeObject) -> Mapping[str, Any]:
    return obj.get("metadata") or {}
