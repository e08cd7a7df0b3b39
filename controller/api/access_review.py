"""Ask the API server what an account may do; of this program's own: a refused request would stand in its audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import Resource

_GROUP: Final = ("authorization.k8s.io", "v1")
REVIEWS: Final = Resource(*_GROUP, "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False)
OF_OTHERS: Final = Resource(*_GROUP, "localsubjectaccessreviews", "LocalSubjectAccessReview")


async def is_allowed(client: KubeClient, attributes: Mapping[str, str]) -> bool:
    """Say whether a request would be allowed.

    Args:
        client: its user is the one whose right is asked for.
        attributes: resourceAttributes of the review; empty ones are left out.

    Raises:
        ApiError, TransportError: the review was refused, or not answered.
    """
    return await _review(client, REVIEWS, None, attributes, {})


async def may(client: KubeClient, namespace: str, account: str, attributes: Mapping[str, str]) -> bool:
    """Say whether a ServiceAccount would be allowed a request in its namespace, by its own rights or its groups'.

    Raises:
        ApiError, TransportError: the review was refused, or not answered.
    """
    who = as_account(namespace, account)
    return await _review(client, OF_OTHERS, namespace, {"namespace": namespace, **attributes}, who)


def as_account(namespace: str, account: str) -> dict[str, Any]:
    """Return the user and the groups of a ServiceAccount, as a review names them."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {"user": f"system:serviceaccount:{namespace}:{account}", "groups": groups}


async def _review(
    client: KubeClient, reviews: Resource, namespace: str | None, attributes: Mapping[str, str], who: Mapping[str, Any]
) -> bool:
    spec = {**who, "resourceAttributes": {name: text for name, text in attributes.items() if text}}
    head = {"apiVersion": reviews.api_version, "kind": reviews.kind}
    body = head | {"metadata": {"namespace": namespace} if namespace else {}, "spec": spec}
    answer = await client.create(reviews, namespace, body)
    return bool(answer["status"].get("allowed"))
