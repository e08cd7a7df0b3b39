"""The path that a manifest has on the API server."""

import pytest

from testbed.api_client import collection


@pytest.mark.parametrize(
    ("version", "kind", "namespace", "path"),
    [
        ("v1", "Pod", "team", "/api/v1/namespaces/team/pods"),
        ("v1", "Namespace", None, "/api/v1/namespaces"),
        ("scheduling.k8s.io/v1", "PriorityClass", None, "/apis/scheduling.k8s.io/v1/priorityclasses"),
        ("networking.k8s.io/v1", "NetworkPolicy", "team", "/apis/networking.k8s.io/v1/namespaces/team/networkpolicies"),
    ],
)
def test_the_collection_of_a_manifest(version: str, kind: str, namespace: str | None, path: str) -> None:
    """The plural follows from the kind, as for all kinds that tests create."""
    metadata = {"name": "train"} | ({"namespace": namespace} if namespace else {})
    assert collection({"apiVersion": version, "kind": kind, "metadata": metadata}) == path
