"""
Who reaches which port under NetworkPolicies, by the API's own words; nothing here knows what our policies should say.

Source: k8s.io/api/networking/v1/types.go. A Pod that no policy selects takes everything. One that is selected takes
what some rule of some policy allows: a rule without `from` allows everybody, one without `ports` every port; a peer's
Pod selector alone means the policy's own namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Labels = Mapping[str, str]
Policy = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A Pod, and the labels of its namespace."""

    namespace: str
    labels: Labels = field(default_factory=dict)
    namespace_labels: Labels = field(default_factory=dict)


def may_reach(policies: Sequence[Policy], source: Place, target: Place, port: int, protocol: str = "TCP") -> bool:
    """Say whether a Pod may open a connection to another one's port."""
    of_target = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == target.namespace
        and "Ingress" in policy["spec"]["policyTypes"]
        and _selects(policy["spec"]["podSelector"], target.labels)
    ]
    rules = [rule for policy in of_target for rule in policy["spec"].get("ingress") or ()]
    return not of_target or any(_allows(rule, source, target, port, protocol) for rule in rules)


def _allows(rule: Mapping[str, Any], source: Place, target: Place, port: int, protocol: str) -> bool:
    peers, ports = rule.get("from") or (), rule.get("ports") or ()
    comes = not peers or any(_is_from(peer, source, target.namespace) for peer in peers)
    return comes and (not ports or any(_holds(entry, port, protocol) for entry in ports))


def _is_from(peer: Mapping[str, Any], source: Place, namespace: str) -> bool:
    assert set(peer) <= {"podSelector", "namespaceSelector"}, "expected Pods and namespaces, saw an address"
    if "namespaceSelector" in peer:
        if not _selects(peer["namespaceSelector"], source.namespace_labels):
            return False
    elif source.namespace != namespace:
        return False
    return _selects(peer.get("podSelector") or {}, source.labels)


def _holds(entry: Mapping[str, Any], port: int, protocol: str) -> bool:
    if entry.get("protocol", "TCP") != protocol:
        return False
    return "port" not in entry or entry["port"] <= port <= entry.get("endPort", entry["port"])


def _selects(selector: Mapping[str, Any], labels: Labels) -> bool:
    if not (selector.get("matchLabels") or {}).items() <= labels.items():
        return False
    for term in selector.get("matchExpressions") or ():
        values, value = term.get("values") or (), labels.get(term["key"])
        match term["operator"]:
            case "Exists":
                fits = value is not None
            case "DoesNotExist":
                fits = value is None
            case "In":
                fits = value in values
            case "NotIn":
                fits = value not in values
            case other:
                raise AssertionError(f"expected an operator of selectors, saw {other}")
        if not fits:
            return False
    return True
