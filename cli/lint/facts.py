"""The facts about a cluster that do not depend on the manifest, and the questions that the cluster refused."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from inplace.cli.group.controller_pulse import OUR_LEASE
from inplace.common.injection.finding import Finding
from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import Forbidden, NotFound
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, NODES, KubeObject, Resource

PAGE: Final = 500  # nodes in one answer: some 5 MB
PAGES_MAX: Final = 40  # 20,000 nodes; the rest of a larger cluster is judged by them
CRD_NAME: Final = "jobsets.jobset.x-k8s.io"
UPSTREAM_LEASE: Final = ("jobset-system", "6d4f6a47.jobset.x-k8s.io")
_ADMISSION: Final = "admissionregistration.k8s.io"
BINDINGS: Final = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)
WEBHOOKS: Final = tuple(
    Resource(_ADMISSION, "v1", f"{kind.lower()}s", kind, namespaced=False)
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
)
FLOW_SCHEMAS: Final = Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its kubelet, what it can do, and who may run there."""

    name: str
    kubelet: str
    features: frozenset[str]
    labels: Mapping[str, str]
    schedulable: bool


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the cluster answered; None where it was not there, or did not say.

    Args:
        policies: names of admission policies that are bound.
        has_controller: a controller holds our Lease, or upstream's.
        webhooks: configurations of admission webhooks.
        unknown: what we were not allowed to ask.
    """

    version: str
    crd: KubeObject | None
    policies: frozenset[str] | None
    flow_schemas: frozenset[str] | None
    nodes: tuple[Node, ...] | None
    has_controller: bool | None
    webhooks: tuple[KubeObject, ...]
    unknown: tuple[Finding, ...]

    def is_unknown(self, what: str) -> bool:
        """Say whether we were not allowed to ask."""
        return any(finding.path == what for finding in self.unknown)


async def ask_about_cluster(client: KubeClient) -> ClusterFacts:
    """Ask.

    Raises:
        ApiError: something else than "no" or "not there".
        TransportError: no answer.
    """
    unknown: list[Finding] = []
    version = await client.server_version()
    crd = await ask(f"the definition {CRD_NAME}", client.get(CUSTOM_RESOURCE_DEFINITIONS, None, CRD_NAME), unknown)
    bindings = await ask("admission policies", client.list(BINDINGS), unknown)
    schemas = await ask("flow schemas", client.list(FLOW_SCHEMAS), unknown)
    leases = [await ask("leases", client.get(LEASES, *place), unknown) for place in (OUR_LEASE, UPSTREAM_LEASE)]
    nodes = await ask("nodes", _nodes(client), unknown)
    webhooks = [await ask("admission webhooks", client.list(kind), unknown) for kind in WEBHOOKS]
    return ClusterFacts(
        version=version,
        crd=crd,
        policies=None
        if bindings is None
        else frozenset(str(one["spec"].get("policyName")) for one in bindings["items"]),
        flow_schemas=None if schemas is None else frozenset(str(one["metadata"]["name"]) for one in schemas["items"]),
        nodes=None if nodes is None else tuple(nodes),
        has_controller=None if "leases" in {one.path for one in unknown} else any(map(_is_held, leases)),
        webhooks=tuple(
            {"kind": kind.kind} | item
            for kind, listed in zip(WEBHOOKS, webhooks, strict=True)
            for item in (listed or {}).get("items") or ()
        ),
        unknown=tuple({finding.path: finding for finding in unknown}.values()),
    )


async def ask(what: str, asking: Awaitable[T], unknown: list[Finding]) -> T | None:
    """Return an answer; None where there is no such thing, or we were not allowed to ask, which is noted."""
    try:
        return await asking
    except NotFound:
        return None
    except Forbidden as error:
        fix = "use an account that has the right, or check it yourself"
        unknown.append(Finding("cluster-unknown", what, str(error), "the right to read it", fix))
        return None


async def _nodes(client: KubeClient) -> list[Node]:
    query, nodes = {"limit": str(PAGE)}, list[Node]()
    for _ in range(PAGES_MAX):
        page = await client.list(NODES, query=query)
        nodes += map(_node, page["items"])
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            break
        query["continue"] = token
    return nodes


def _node(raw: KubeObject) -> Node:
    status, spec, metadata = raw.get("status") or {}, raw.get("spec") or {}, raw["metadata"]
    return Node(
        name=str(metadata["name"]),
        kubelet=str((status.get("nodeInfo") or {}).get("kubeletVersion", "")),
        features=frozenset(str(feature) for feature in status.get("declaredFeatures") or ()),
        labels=metadata.get("labels") or {},
        schedulable=not spec.get("unschedulable"),
    )


def _is_held(lease: Mapping[str, Any] | None) -> bool:
    return bool(lease and (lease.get("spec") or {}).get("holderIdentity"))
