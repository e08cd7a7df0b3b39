"""
Find admission webhooks that stand between an agent and its announcement, which is an update of its Pod. Pure.

Kueue has one (docs/with-kueue.md). It is called for every Pod of the cluster, and the API server refuses an update
while Kueue is away. A webhook that chooses its objects by label, or by an expression, is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from inplace.controller.injection.finding import Finding

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
    objects, namespaces = (webhook.get(f"{kind}Selector") or {} for kind in ("object", "namespace"))
    terms = namespaces.get("matchExpressions") or ()
    names_namespaces = namespaces.get("matchLabels") or any(term.get("operator") not in _LEAVES_OUT for term in terms)
    chosen = webhook.get("matchConditions") or objects.get("matchLabels") or objects.get("matchExpressions")
    if chosen or names_namespaces or webhook.get("failurePolicy", "Fail") != "Fail":
        return False
    about = (("apiGroups", ""), ("operations", "UPDATE"), ("resources", "pods"))
    return any(
        all({wanted, "*"} & set(rule.get(field) or ()) for field, wanted in about)
        for rule in webhook.get("rules") or ()
    )
