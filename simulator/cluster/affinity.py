"""
What a Pod requires of its node by affinity: labels of the node, and which other Pods are in its domain. Pure.

Preferences are the scheduler's own business. A Pod may ask for company that is nowhere if it is such company itself:
it is the first of its kind.

Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/interpodaffinity and nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.selectors import holds, selects

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
Labels = Mapping[str, str]
Placement = tuple[KubeObject, Labels]  # a Pod, and the labels of its node


def has_room_for_kind(pod: KubeObject, node: KubeObject, placed: Iterable[Placement]) -> bool:
    """Say whether a node is where a Pod's affinity, and that of the Pods in its domains, lets it be.

    Args:
        pod: without a node.
        node: to judge.
        placed: every Pod that has a node, with the node's labels.
    """
    labels, placed = _labels(node), list(placed)
    return (
        _on_such_a_node(pod, node)
        and all(_has_company(term, pod, labels, placed) for term in _terms(pod, "podAffinity"))
        and not any(_is_near(term, pod, labels, placed) for term in _terms(pod, "podAntiAffinity"))
        and not any(
            _shares(term, labels, theirs) and _selects(term, other, pod)
            for other, theirs in placed
            for term in _terms(other, "podAntiAffinity")
        )
    )


def asks_for_company(pod: KubeObject) -> bool:
    """Say whether a Pod requires something of its node or of other Pods there."""
    return any(REQUIRED in part for part in (pod["spec"].get("affinity") or {}).values() if part)


def _on_such_a_node(pod: KubeObject, node: KubeObject) -> bool:
    """Say whether one of the Pod's node selector terms holds; a term without a requirement holds nowhere."""
    wanted = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    if not wanted:
        return True
    labels, fields = _labels(node), {"metadata.name": node["metadata"]["name"]}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(holds(one, labels) for one in term.get("matchExpressions") or ())
        and all(holds(one, fields) for one in term.get("matchFields") or ())
        for term in wanted.get("nodeSelectorTerms") or ()
    )


def _has_company(term: KubeObject, pod: KubeObject, labels: Labels, placed: list[Placement]) -> bool:
    if term["topologyKey"] not in labels:
        return False
    return _is_near(term, pod, labels, placed) or (
        _selects(term, pod, pod) and not any(_selects(term, pod, other) for other, _ in placed)
    )


def _is_near(term: KubeObject, pod: KubeObject, labels: Labels, placed: list[Placement]) -> bool:
    """Say whether a Pod that the term selects is in the same domain."""
    return any(_shares(term, labels, theirs) and _selects(term, pod, other) for other, theirs in placed)


def _shares(term: KubeObject, labels: Labels, others: Labels) -> bool:
    key = term["topologyKey"]
    return key in labels and labels[key] == others.get(key)


def _selects(term: KubeObject, owner: KubeObject, pod: KubeObject) -> bool:
    """Say whether a term of `owner` is about a Pod; without a namespace it is about those of its own."""
    if "namespaceSelector" not in term or term["namespaceSelector"] is None:
        namespaces = term.get("namespaces") or [owner["metadata"]["namespace"]]
        if pod["metadata"]["namespace"] not in namespaces:
            return False
    selector = term.get("labelSelector")
    if selector is None:
        return False
    return selects(selector, _labels(pod))


def _terms(pod: KubeObject, kind: str) -> Iterator[KubeObject]:
    yield from ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(REQUIRED) or ()


def _labels(obj: KubeObject) -> dict[str, Any]:
    return obj["metadata"].get("labels") or {}
