"""
Refuse the writes that ValidatingAdmissionPolicies with a binding forbid.

Guarantees: a policy acts on the writes after it and its binding were stored; every expression sees object, oldObject,
request and the policy's variables; an expression that fails refuses, unless failurePolicy is Ignore.
Not there: parameters, selectors, auditing, warnings, `authorizer`, `namespaceObject`, limits of cost.
Source: k8s.io/apiserver/pkg/admission/plugin/policy/validating.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.cel_programs import CelVariables, compiled, variable_named
from inplace.simulator.apiserver.kinds import Kind
from inplace.simulator.apiserver.store import CollectionKey, Store

_POLICIES: Final[CollectionKey] = ("admissionregistration.k8s.io", "validatingadmissionpolicies")
_BINDINGS: Final[CollectionKey] = ("admissionregistration.k8s.io", "validatingadmissionpolicybindings")
_CEL_ERRORS: Final = (RuntimeError, TypeError, ValueError, KeyError)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write that is about to happen; `old` is None for a create."""

    kind: Kind
    new: KubeObject
    old: KubeObject | None
    user: str
    subresource: str = ""

    @property
    def operation(self) -> str:
        """Return the operation's name in a policy."""
        return "CREATE" if self.old is None else "UPDATE"


class _Failed(Exception):
    """The evaluation of an expression failed; the text says why."""


def refusal(store: Store, attempt: Attempt) -> str | None:
    """Return why a write is refused, None when it is not."""
    bindings = store.collection(_BINDINGS).objects
    for binding in bindings.values():
        spec = binding["spec"]
        policy = store.get(_POLICIES, "", spec["policyName"])
        if policy is None or "Deny" not in spec.get("validationActions", ()) or not _matches(policy["spec"], attempt):
            continue
        why = _decided(policy["spec"], attempt)
        if why is not None:
            names = f"'{policy['metadata']['name']}' with binding '{binding['metadata']['name']}'"
            return f"ValidatingAdmissionPolicy {names} denied request: {why}"
    return None


def _matches(policy: Mapping[str, Any], attempt: Attempt) -> bool:
    """Return whether a policy's resource rules select this write."""
    resource = attempt.kind.resource
    path = f"{resource.plural}/{attempt.subresource}" if attempt.subresource else resource.plural
    return any(
        _names(rule["apiGroups"], resource.group)
        and _names(rule["apiVersions"], resource.version)
        and _names(rule["operations"], attempt.operation)
        and _names(rule["resources"], path)
        for rule in policy["matchConstraints"].get("resourceRules") or ()
    )


def _names(names: list[str], name: str) -> bool:
    return "*" in names or name in names


def _decided(policy: Mapping[str, Any], attempt: Attempt) -> str | None:
    """Return the message of the policy's first broken validation, None when there is none."""
    ignores = policy.get("failurePolicy") == "Ignore"
    scope = CelVariables(
        {
            "object": attempt.new,
            "oldObject": attempt.old,
            "request": {"operation": attempt.operation, "userInfo": {"username": attempt.user}},
        }
    )
    try:
        if not all(_value(condition["expression"], scope) for condition in policy.get("matchConditions") or ()):
            return None
        _show_variables(policy, scope)
        for validation in policy.get("validations") or ():
            if _value(validation["expression"], scope) is not True:
                spoken = scope.text_of(validation["messageExpression"]) if "messageExpression" in validation else ""
                return spoken or validation.get("message") or f"failed expression: {validation['expression']}"
    except _Failed as failed:
        return None if ignores else str(failed)
    return None


def _show_variables(policy: Mapping[str, Any], scope: CelVariables) -> None:
    """Show the policy's variables in their order; each sees those before it."""
    for variable in policy.get("variables") or ():
        scope.set(variable_named(variable["name"]), _value(variable["expression"], scope))


def _value(expression: str, scope: CelVariables) -> Any:
    program = compiled(expression)
    if program is None:
        raise _Failed(f"expression '{expression}' does not compile")
    try:
        return scope.execute(program)
    except _CEL_ERRORS as error:
        raise _Failed(f"expression '{expression}' resulted in error: {error}") from error
