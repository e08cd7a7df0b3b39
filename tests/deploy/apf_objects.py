"""The objects of deploy/apf, and which of them a request belongs to: a simple implementation of FlowSchema's rules."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import KubeObject, Resource
from inplace.simulator.cluster.manifests import read_manifests

PATH = Path(__file__).parents[2] / "deploy" / "apf" / "flowcontrol.yaml"
GROUP = "flowcontrol.apiserver.k8s.io"
FLOW_SCHEMAS = Resource(GROUP, "v1", "flowschemas", "FlowSchema", namespaced=False)
PRIORITY_LEVELS = Resource(GROUP, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", namespaced=False)
RESOURCES = {resource.kind: resource for resource in (FLOW_SCHEMAS, PRIORITY_LEVELS)}


def apf_objects() -> list[KubeObject]:
    """Return the objects, in the file's order."""
    return read_manifests(PATH)


def apf_object(kind: str, name: str) -> KubeObject:
    """Return the object of a kind and name."""
    return next(found for found in apf_objects() if (found["kind"], found["metadata"]["name"]) == (kind, name))


def schema_of(namespace: str, account: str, request: Request) -> str | None:
    """Return the FlowSchema of ours that takes a namespaced request of a ServiceAccount, None when none does."""
    path = urlsplit(request.path)
    parts = path.path.strip("/").split("/")
    api_group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    scope = rest[1] if rest[0] == "namespaces" else ""
    rest = rest[2:] if scope else rest
    reads = "watch" if "watch" in parse_qs(path.query) else "get" if rest[1:] else "list"
    verb = {"GET": reads, "PATCH": "patch", "PUT": "update", "POST": "create"}[request.method]
    resource = "/".join((rest[0], *rest[2:3]))
    schemas = [found for found in apf_objects() if found["kind"] == "FlowSchema"]
    for schema in sorted(schemas, key=lambda schema: int(schema["spec"]["matchingPrecedence"])):
        for rule in schema["spec"]["rules"]:
            if any(_is_subject(subject, namespace, account) for subject in rule["subjects"]) and any(
                _covers(found, verb, api_group, resource, scope) for found in rule["resourceRules"]
            ):
                return str(schema["metadata"]["name"])
    return None


def hand_of(namespace: str, account: str) -> frozenset[int]:
    """Return the queues of our level that a ServiceAccount's requests may wait in.

    Source: k8s.io/apiserver/pkg/util/flowcontrol, hashFlowID, and pkg/util/shufflesharding, Dealer.Deal.
    """
    queuing = apf_object("PriorityLevelConfiguration", "inplace-agents")["spec"]["limited"]["limitResponse"]["queuing"]
    flow = b"inplace-agents\0" + f"system:serviceaccount:{namespace}:{account}".encode()
    left, remainders = int.from_bytes(hashlib.sha256(flow).digest()[:8], "little"), list[int]()
    for dealt in range(queuing["handSize"]):
        left, remainder = divmod(left, queuing["queues"] - dealt)
        remainders.append(remainder)
    hand = set[int]()
    for place, card in enumerate(remainders):
        for before in reversed(remainders[:place]):
            card += card >= before
        hand.add(card)
    return frozenset(hand)


def _is_subject(subject: dict[str, Any], namespace: str, account: str) -> bool:
    if subject["kind"] == "Group":
        return subject["group"]["name"] in ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    named = subject["serviceAccount"]
    return named["namespace"] == namespace and named["name"] in ("*", account)


def _covers(rule: dict[str, Any], verb: str, group: str, resource: str, scope: str) -> bool:
    """Read one resourceRule; `scope` is the namespace, "" for a request to all of them."""
    wanted = {"verbs": verb, "apiGroups": group, "resources": resource} | ({"namespaces": scope} if scope else {})
    return bool(scope or rule["clusterScope"]) and all({"*", value} & set(rule[key]) for key, value in wanted.items())
