"""Ask the API server what this program may do: a request that is refused would stand in its audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import Resource

REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)


async def is_allowed(client: KubeClient, attributes: Mapping[str, str]) -> bool:
    """Say whether a request would be allowed.

    Args:
        client: its user is the one whose right is asked for.
        attributes: resourceAttributes of the review; empty ones are left out.

    Raises:
        ApiError, TransportError: the review was refused, or not answered.
    """
    spec = {"resourceAttributes": {name: text for name, text in attributes.items() if text}}
    body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "spec": spec}
    answer = await client.create(REVIEWS, None, body)
    return bool(answer["status"].get("allowed"))
