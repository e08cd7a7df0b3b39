"""
Find admission webhooks that stand between an agent and its announcement, which is an update of its Pod. Pure.

Kueue has one (docs/with-kueue.md). It is called for every Pod of the cluster, and the API server refuses an update
while Kueue is away. A webhook that chooses its objects by label, or by an expression, is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inplace.cli.manifests.finding import Finding
from inplace.common.kube.resources import KubeObject

_LEAVES_OUT: Final = ("NotIn", "DoesNotExist")


def check_webhooks(configurations: Sequence[KubeObject]) -> Iterator[Finding]:
    """Yield each webhook that must answer before a Pod can be changed, in most namespaces."""
    for configuration in configurations:
        for webhook in configuration.get("webhooks") or ():
            if _is_in_the_way(webhook):
                yield Finding(
                    "pod-webhook",
                    f"{configuration['kind']} {configuration['metadata']['name']}, webhook {webhook.get('name')}",
                    "failurePolicy Fail for each update of a Pod",
                    "no webhook before an agent's announcement",
                    "leave the agents' accounts out by matchConditions, as docs/with-kueue.md does",
                )


def _is_in_the_way(webhook: Mapping[str, Any]) -> bool:
    chosen = webhook.get("matchConditions") or _selects_labels(webhook.get("objectSelector"))
    names_namespaces = (webhook.get("namespaceSelector") or {}).get("matchLabels") or any(
        term.get("operator") not in _LEAVES_OUT
        for term in (webhook.get("namespaceSelector") or {}).get("matchExpressions") or ()
    )
    if chosen or names_namespaces or webhook.get("failurePolicy", "Fail") != "Fail":
        return False
    return any(_is_about_pods(rule) for rule in webhook.get("rules") or ())


def _selects_labels(selector: Mapping[str, Any] | None) -> bool:
    return bool((selector or {}).get("matchLabels") or (selector or {}).get("matchExpressions"))


def _is_about_pods(rule: Mapping[str, Any]) -> bool:
    return all(
        {wanted, "*"} & set(rule.get(field) or ())
        for field, wanted in (("apiGroups", ""), ("operations", "UPDATE"), ("resources", "pods"))
    )
