"""`inplace lint --cluster`: on the simulator, and on answers that a test cluster cannot give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from inplace.cli.lint.cluster import DEPLOYMENTS, check_cluster, lint_cluster
from inplace.cli.lint.facts import FEATURE, PAGE, PAGES_MAX, ClusterFacts, Node, ask_about_cluster, check_nodes
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import group_of
from inplace.common.injection.restart_rules import version_of
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import CredentialsError, Request, Response
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, NAMESPACES, NODES, KubeObject
from inplace.common.wire.names import AGENT
from inplace.controller.api.credentials import load_credentials
from tests.cli.injecting import example, injected
from tests.cli.scenes import Spy
from tests.controller.manifests import changed
from tests.controller.rig import Rig
from tests.deploy.admission import policies
from tests.deploy.crd_cases import crd

BINDING_PATH = "/validatingadmissionpolicybindings"


@pytest.fixture
def documents() -> list[KubeObject]:
    """Return examples/plain.yaml with the agent in it."""
    return list(parse(injected(example("plain.yaml"))))


async def asked(client: KubeClient, documents: list[KubeObject]) -> list[Finding]:
    """Return lint's findings for the manifest's JobSet."""
    jobsets = [document for document in documents if document["kind"] == "JobSet"]
    (found,) = await lint_cluster(client, documents, jobsets, namespace="default")
    return found


@pytest.mark.asyncio
async def test_a_cluster_in_order_has_nothing_to_say(documents: list[KubeObject]) -> None:
    """A complete cluster gives no finding, and the dry run stores nothing."""
    rig = Rig()
    await rig.admin.create(NODES, None, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    status = {"nodeInfo": {"kubeletVersion": "v1.38.0"}, "declaredFeatures": [FEATURE]}
    await rig.admin.patch(NODES, None, "n", {"status": status}, subresource="status")
    rig.server.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "inplace-system"}}])
    lease = {"metadata": {"name": "inplace-controller"}, "spec": {"holderIdentity": "controller-0"}}
    await rig.admin.create(LEASES, "inplace-system", {"apiVersion": LEASES.api_version, "kind": "Lease"} | lease)
    rig.server.load([*policies("jobsets.yaml", "immutable.yaml", "agents.yaml")])
    before = rig.server.store.revision
    assert [(finding.rule, finding.found) for finding in await asked(rig.admin, documents)] == []
    assert rig.server.store.revision == before


@pytest.mark.asyncio
async def test_an_empty_cluster(documents: list[KubeObject]) -> None:
    """An empty cluster gives one finding for each missing part."""
    rules = [finding.rule for finding in await asked(Rig().admin, documents)]
    assert sorted(rules) == ["admission-policy", "admission-policy", "admission-policy", "controller", "no-nodes"]


@pytest.mark.asyncio
@pytest.mark.parametrize(("serves", "found"), [(True, []), (False, ["gang-scheduling"])])
async def test_a_gang_on_a_server_that_has_none(documents: list[KubeObject], serves: bool, found: list[str]) -> None:
    """A JobSet with spec.scheduling is told of a server that serves no Workloads and PodGroups; others are not."""
    plain, (jobset,) = documents[:-1], documents[-1:]
    asking = jobset | {"spec": jobset["spec"] | {"scheduling": {}}}
    client = Rig(serves_gangs=serves).admin
    rules = [[one.rule for one in await asked(client, [*plain, each])] for each in (jobset, asking)]
    assert [sorted(set(after) - set(before)) for before, after in [rules]] == [found]
    assert "gang-scheduling" not in rules[0]


FACTS = ClusterFacts(
    version="v1.36.3",
    crd=crd(),
    policies=frozenset(("jobsets.jobset.x-k8s.io", "immutable.jobset.x-k8s.io", "agents.inplace.dev")),
    flow_schemas=frozenset(("inplace-agents",)),
    nodes=(Node("n", "v1.38.0", frozenset((FEATURE,)), {}, True),),
    has_controller=True,
    webhooks=(),
    unknown=(),
)


def judged(facts: ClusterFacts, documents: Iterable[KubeObject], pods: int = 8) -> list[str]:
    """Return the rules that the facts break for the manifest's JobSet of `pods` Pods."""
    (jobset,) = (document for document in documents if document["kind"] == "JobSet")
    for member in (group := group_of(jobset)):
        member.job_spec.update(parallelism=pods, completions=pods)
    return [finding.rule for finding in (*check_cluster(facts, group), *check_nodes(facts, group))]


def test_a_sidecar_without_rules_needs_no_newer_server() -> None:
    """The controller makes it so by itself; on nodes that declare nothing, it is scheduled as any Pod."""
    text = injected(example("plain.yaml"), restart_rule=False)
    old = replace(FACTS, version="v1.30.1", nodes=nodes("v1.30.1", features=()))
    assert judged(old, parse(text)) == []
    assert judged(replace(old, version="v1.36.0"), parse(text)) == []


def nodes(*kubelets: str, features: tuple[str, ...] = (FEATURE,)) -> tuple[Node, ...]:
    """Return nodes by the versions of their kubelets."""
    return tuple(Node(f"n{i}", kubelet, frozenset(features), {}, True) for i, kubelet in enumerate(kubelets))


@pytest.mark.parametrize(
    ("changes", "sidecar", "supervisor"),
    [
        ({}, [], []),
        ({"version": "v1.36.0-gke.100"}, [], []),
        ({"version": "v1.34.9"}, ["server-version"], []),
        ({"version": "v1.29.1", "nodes": nodes("v1.29.1")}, ["server-version"], ["server-version"]),
        ({"version": "nonsense"}, [], []),
        ({"crd": None}, ["crd"], ["crd"]),
        ({"crd": {"spec": {"versions": [{"name": "v1alpha1", "served": True}]}}}, ["crd"], ["crd"]),
        ({"crd": {"spec": {"versions": [{"name": "v1alpha2", "served": True}]}}}, ["crd-columns"], ["crd-columns"]),
        ({"has_controller": False}, ["controller"], ["controller"]),
        ({"has_controller": None}, [], []),
        (
            {"policies": frozenset(("agents.inplace.dev", "immutable.jobset.x-k8s.io"))},
            ["admission-policy"],
            ["admission-policy"],
        ),
        ({"policies": None, "flow_schemas": None, "nodes": None}, [], []),
        ({"nodes": ()}, ["no-nodes"], ["no-nodes"]),
        ({"nodes": (replace(FACTS.nodes[0], schedulable=False),)}, ["no-nodes"], ["no-nodes"]),  # type: ignore[index]
        ({"nodes": nodes("v1.36.3")}, [], []),  # a guard holds the worker back
        ({"nodes": nodes("v1.35.1")}, ["kubelet-bug"] * 3, []),
        ({"nodes": nodes("v1.38.0", features=())}, ["node-features"], []),
        ({"nodes": nodes("v1.38.0") + nodes("v1.38.1", features=())}, ["node-features-some"], []),
        ({"version": "v1.35.4", "nodes": nodes("v1.38.0", features=())}, [], []),  # nodes declare nothing yet
    ],
)
def test_facts_and_what_they_break(changes: dict[str, Any], sidecar: list[str], supervisor: list[str]) -> None:
    """Each fact breaks its rule, in both modes."""
    facts = replace(FACTS, **changes)
    for mode, expected in (("sidecar", sidecar), ("supervisor", supervisor)):
        text = injected(example("plain.yaml"), mode=mode)
        assert judged(facts, parse(text)) == expected, mode


def test_a_worker_without_a_guard_needs_a_mended_kubelet() -> None:
    """A kubelet with Kubernetes #141155 starts a worker without a guard before its barrier lifts: a finding."""
    facts = replace(FACTS, nodes=nodes("v1.36.3"))
    assert judged(facts, parse(injected(example("plain.yaml"), barrier="probe"))) == ["kubelet-bug"]


def test_large_groups_want_a_flow_schema(documents: list[KubeObject]) -> None:
    """A group of 301 Pods or more without deploy/apf gives a finding."""
    facts = replace(FACTS, flow_schemas=frozenset())
    assert [judged(facts, documents, pods) for pods in (300, 301)] == [[], ["flow-schema"]]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["pod-webhook"]),
        ({"failurePolicy": None}, ["pod-webhook"]),  # the API server's default is Fail
        ({"failurePolicy": "Ignore"}, []),
        ({"rules.0.operations": ["CREATE"]}, []),
        ({"rules.0.resources": ["pods/status"]}, []),
        ({"rules.0": {"apiGroups": ["*"], "operations": ["*"], "resources": ["*"]}}, ["pod-webhook"]),
        ({"matchConditions": [{"name": "no-agent", "expression": "false"}]}, []),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, []),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, []),
        ({"namespaceSelector.matchExpressions.0.operator": "In"}, []),
    ],
)
def test_a_webhook_before_each_announcement(
    documents: list[KubeObject], changes: dict[str, Any], expected: list[str]
) -> None:
    """A webhook that must answer before an agent's PATCH is found, such as Kueue's; one that leaves Pods out is not."""
    namespaces = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["a"]}]}
    rule = {"apiGroups": [""], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}
    webhook = {"name": "vpod.kb.io", "failurePolicy": "Fail", "rules": [rule], "namespaceSelector": namespaces}
    for path, value in changes.items():
        webhook = changed(webhook, path, value)
    configuration = {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "k"}, "webhooks": [webhook]}
    assert judged(replace(FACTS, webhooks=(configuration,)), documents) == expected


def test_a_strategy_that_the_definition_lacks(documents: list[KubeObject]) -> None:
    """A JobSet whose strategy an old upstream CRD does not know gives a finding."""
    old = crd()
    policy = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][
        "failurePolicy"
    ]
    policy["properties"]["restartStrategy"]["enum"] = ["Recreate", "BlockingRecreate"]
    assert judged(replace(FACTS, crd=old), documents) == ["crd"]


@pytest.mark.parametrize(
    ("text", "version"), [("v1.36.3", (1, 36)), ("1.35", (1, 35)), ("v1.33.5-eks-1", (1, 33)), ("", None), ("x", None)]
)
def test_versions(text: str, version: tuple[int, int] | None) -> None:
    """Versions are read as servers and kubelets spell them."""
    assert version_of(text) == version


@pytest.mark.asyncio
async def test_what_may_not_be_asked_is_said_once(documents: list[KubeObject]) -> None:
    """A forbidden question gives one finding, and no other finding depends on it."""
    paths = ("/nodes", BINDING_PATH, "/flowschemas", "/leases", "/customresourcedefinitions", "/subjectaccessreviews")
    client = Spy(Rig().server, *paths).connection().client
    found = await asked(client, [documents[0], documents[-1]])  # the manifest brings the account, not its rights
    assert {finding.rule for finding in found} == {"cluster-unknown"}
    assert len(found) == len(paths)
    assert "kubectl auth can-i" in found[-1].fix


class EndlessNodes(Spy):
    """A server whose list of nodes always goes on."""

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Answer with one node and a token."""
        answer = await super().request(request, timeout_s=timeout_s)
        more = b'{"kind":"NodeList","metadata":{"continue":"more"},"items":[{"metadata":{"name":"n"}}]}'
        return Response(200, {}, more) if "/nodes" in request.path else answer


@pytest.mark.asyncio
async def test_many_nodes_are_read_page_by_page() -> None:
    """The list of nodes is read page by page, up to a bound."""
    server = EndlessNodes(Rig().server)
    facts = await ask_about_cluster(server.connection().client)
    asked = [request.path for request in server.asked if "/nodes" in request.path]
    assert facts.nodes is not None
    assert len(facts.nodes) == len(asked) == PAGES_MAX
    assert f"limit={PAGE}" in asked[0]
    assert "continue=more" in asked[1]


@pytest.mark.asyncio
async def test_without_the_definition_the_rest_is_still_judged(documents: list[KubeObject]) -> None:
    """A missing CRD gives one finding, and the impossible dry run gives none."""
    rig = Rig()
    await rig.admin.delete(CUSTOM_RESOURCE_DEFINITIONS, None, "jobsets.jobset.x-k8s.io")
    rules = [finding.rule for finding in await asked(rig.admin, documents)]
    assert ("crd" in rules, "admission" in rules) == (True, False)


@pytest.mark.parametrize(
    ("args", "said", "label", "found"),
    [
        (["--agent-image=agent:1"], None, None, None),
        (["--agent-image=agent:1", "--agent-opt-in"], None, None, "nothing, here and on the Namespace"),
        (["--agent-image=agent:1", "--agent-opt-in"], None, "off", "nothing, here and on the Namespace"),
        (["--agent-image=agent:1", "--agent-opt-in"], None, "on", None),
        (["--agent-image=agent:1", "--agent-opt-in"], "on", None, None),
        (["--start-window=0"], "on", "on", "no --agent-image"),
        (None, None, None, None),
    ],
)
@pytest.mark.parametrize("is_brought", [False, True])
@pytest.mark.asyncio
async def test_an_agent_that_the_controller_does_not_add(
    args: list[str] | None, said: str | None, label: str | None, found: str | None, is_brought: bool
) -> None:
    """The controller's arguments, the JobSet and its Namespace say together whether a plain JobSet gets the agent."""
    rig = Rig()
    if args is not None:
        rig.server.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "inplace-system"}}])
        labels = {"app.kubernetes.io/name": "inplace-controller"}
        container = {"name": "controller", "image": "c", "args": args}
        body = {
            "metadata": {"name": "x", "labels": labels},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }
        await rig.admin.create(DEPLOYMENTS, "inplace-system", {"apiVersion": "apps/v1", "kind": "Deployment"} | body)
    labelled = {"metadata": {"name": "default", "labels": {AGENT: label}}}
    if not is_brought:
        await rig.admin.patch(NAMESPACES, None, "default", labelled)
    (jobset,) = parse(example("minimal.yaml"))
    jobset["metadata"]["annotations"] = {} if said is None else {AGENT: said}
    brought = [{"apiVersion": "v1", "kind": "Namespace"} | labelled] if is_brought else []
    findings = await asked(rig.admin, [jobset, *brought])
    assert [one.found for one in findings if one.rule == "agent-by-controller"] == ([] if found is None else [found])


@pytest.mark.asyncio
async def test_a_deployment_that_may_not_be_read_is_unknown() -> None:
    """Lint then says that it cannot know; of a manifest with an agent it does not even ask."""
    spy = Spy(Rig().server, "/deployments")
    (jobset,) = parse(example("minimal.yaml"))
    findings = await asked(spy.connection().client, [jobset])
    assert "the controller's Deployment and the Namespace" in [one.path for one in findings]
    await asked(spy.connection().client, list(parse(injected(example("plain.yaml")))))
    assert len([request for request in spy.asked if "/deployments" in request.path]) == 1


@pytest.mark.asyncio
async def test_a_context_chooses_the_cluster(tmp_path: Path) -> None:
    """The kubeconfig's current context is used, or another by name; inside a Pod it wins over the Pod's account."""
    named = [{"name": name, "cluster": {"server": f"http://{name}:1"}} for name in ("earth", "moon")]
    contexts = [{"name": name, "context": {"cluster": name, "user": "u"}} for name in ("earth", "moon")]
    users = [{"name": "u", "user": {"token": "t"}}]
    file = tmp_path / "kubeconfig"
    file.write_text(
        yaml.safe_dump({"clusters": named, "contexts": contexts, "users": users, "current-context": "earth"})
    )
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBECONFIG": str(file)}
    current = await load_credentials(str(file), clock=LoopClock())
    other = await load_credentials(None, clock=LoopClock(), environment=pod, context="moon")
    assert (current.host, other.host) == ("http://earth:1", "http://moon:1")
    with pytest.raises(CredentialsError, match="mars"):
        await load_credentials(str(file), clock=LoopClock(), context="mars")
