"""
The facts about a cluster, the questions that it refused, and what its nodes do to a manifest.

Versions of kubelets' bugs are those known in November 2026; a fix whose release is not known counts as not released.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from inplace.cli.group.read import OUR_LEASE
from inplace.cli.terminal.moments import names_text
from inplace.common.agent_command import GUARD
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import Member
from inplace.common.injection.restart_rules import Version, version_of
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


@dataclass(frozen=True, slots=True)
class KubeletBug:
    """One bug.

    Args:
        issue: of kubernetes/kubernetes.
        what: happens.
        first: minor version that has it.
        last: minor version that has it, in some patch release at least.
        touches: says whether it can happen to this manifest.
        fix: what to do.
    """

    issue: str
    what: str
    first: Version
    last: Version
    touches: Callable[[Member], bool]
    fix: str

    def is_in(self, version: Version) -> bool:
        """Say whether kubelets of this version have it."""
        return self.first <= version <= self.last


def _has_rules(member: Member) -> bool:
    return member.place == "sidecar" and member.has_rules


def _relies_on_the_probe_alone(member: Member) -> bool:
    return member.place == "sidecar" and not all(worker.calls(GUARD) for worker in member.workers)


BUGS: Final = (
    KubeletBug(
        issue="kubernetes #141155",  # fix #141342; cherry-picks #142041, #142042, #142043 were open in September 2026
        what="a replaced sidecar may be taken for started before its probe ran, which lifts its barrier too early",
        first=(1, 35),
        last=(1, 37),
        touches=_relies_on_the_probe_alone,
        fix="start the worker below inplace-agent guard, which inplace inject adds",
    ),
    KubeletBug(
        issue="kubernetes #136966",
        what="after RestartAllContainers a Pod may wait up to 60 s for its next start",
        first=(1, 35),
        last=(1, 35),
        touches=_has_rules,
        fix="upgrade the nodes to 1.36, or use `inplace inject --restart-rule off`",
    ),
    KubeletBug(
        issue="kubernetes #136910",  # fix #137146, cherry-pick #137885
        what="after a restart of kubelet, containers beside a sidecar with a startup probe never start again",
        first=(1, 35),
        last=(1, 35),
        touches=_has_rules,
        fix="upgrade the nodes to 1.36, or to a 1.35 with #137885",
    ),
    KubeletBug(
        issue="kubernetes #136963",
        what="RestartAllContainers deletes the logs of the containers that it restarts",
        first=(1, 35),
        last=(1, 35),
        touches=_has_rules,
        fix="upgrade the nodes to 1.36, or collect logs as they are written",
    ),
)

FEATURE: Final = "RestartAllContainersOnContainerExits"  # KEP-5328 declared features; on in 1.36
DECLARED_SINCE: Final = (1, 36)
NAMES_MAX: Final = 3  # in one message


def check_nodes(facts: ClusterFacts, group: Sequence[Member]) -> Iterator[Finding]:
    """Yield problems of the nodes that may take a Pod of the group."""
    if facts.nodes is None:
        return
    for member in group:
        selector = member.pod_spec.get("nodeSelector") or {}
        nodes = [node for node in facts.nodes if node.schedulable and selector.items() <= node.labels.items()]
        if not nodes:
            path = f"{member.pod_path}.nodeSelector"
            found = f"none of {len(facts.nodes)} nodes" + (f" with {selector}" if selector else "")
            yield Finding(
                "no-nodes", path, found, "a node that can be scheduled on", "add nodes, or correct the selector"
            )
            continue
        yield from _features(facts, member, nodes)
        yield from _bugs(member, nodes)


def _features(facts: ClusterFacts, member: Member, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Yield nodes that the scheduler leaves out: a Pod with such rules needs the feature declared, from 1.36 on."""
    version = version_of(facts.version)
    if not _has_rules(member) or version is None or version < DECLARED_SINCE:
        return
    without = [node for node in nodes if FEATURE not in node.features]
    if without:
        rule = "node-features" if len(without) == len(nodes) else "node-features-some"
        fix = f"kubelet 1.36 with feature gate {FEATURE}, or `inplace inject --restart-rule off`"
        found = f"{len(without)} of {len(nodes)} without it: {_names(without)}"
        yield Finding(rule, "nodes: status.declaredFeatures", found, FEATURE, fix)


def _bugs(member: Member, nodes: Sequence[Node]) -> Iterator[Finding]:
    for bug in BUGS:
        having = [node for node in nodes if (version := version_of(node.kubelet)) is not None and bug.is_in(version)]
        if having and bug.touches(member):
            path = f"nodes: {_names(having)}"
            yield Finding("kubelet-bug", path, f"{bug.issue}: {bug.what}", "kubelets without it", bug.fix)


def _names(nodes: Sequence[Node]) -> str:
    return names_text([f"{node.name} ({node.kubelet})" for node in nodes], NAMES_MAX)
