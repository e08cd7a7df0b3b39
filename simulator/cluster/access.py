"""The users of the embedded API server, its addresses, and the API path of a document."""

from __future__ import annotations

import json

import msgspec

from inplace.common.kube.client import KubeClient
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.http_front import url_as

CONTROLLER_NAMESPACE = "inplace-system"
_COMPONENT_USERS = {
    "kubelet": "system:node",
    "scheduler": "system:kube-scheduler",
    "job-controller": "system:serviceaccount:kube-system:job-controller",
    "node-lifecycle": "system:serviceaccount:kube-system:node-controller",
    "inplace-controller": f"system:serviceaccount:{CONTROLLER_NAMESPACE}:inplace-controller",
}


def user_name(component: str) -> str:
    """Return a component's user name; any other name is the user's own."""
    return _COMPONENT_USERS.get(component, component)


def pod_user(pod: KubeObject) -> str:
    """Return the user of a Pod's ServiceAccount."""
    account = pod["spec"].get("serviceAccountName") or "default"
    return f"system:serviceaccount:{pod['metadata']['namespace']}:{account}"


def kubeconfig_text(url: str, user: str) -> str:
    """Return a kubeconfig with one context, as JSON: agents read it without loading a YAML parser."""
    named = {"name": "inplace"}
    context = {"cluster": "inplace", "user": "inplace", "namespace": "default"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "inplace",
            "clusters": [named | {"cluster": {"server": url_as(url, user)}}],
            "users": [named | {"user": {}}],
            "contexts": [named | {"context": context}],
        },
        indent=1,
    )


async def collection_path(client: KubeClient, document: KubeObject) -> str:
    """Return the URL path of the collection that a document belongs to, found by discovery.

    Raises:
        LookupError: the API server does not serve the kind.
    """
    api_version, kind = document["apiVersion"], document["kind"]
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    served = msgspec.json.decode((await client.raw("GET", root)).body)
    for resource in served["resources"]:
        if resource["kind"] == kind and "/" not in resource["name"]:
            namespace = document["metadata"].get("namespace") or "default"
            middle = f"/namespaces/{namespace}" if resource["namespaced"] else ""
            return f"{root}{middle}/{resource['name']}"
    raise LookupError(f"expected a kind that the API server serves, saw {api_version} {kind}")
