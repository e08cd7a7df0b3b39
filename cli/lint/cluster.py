"""Check a manifest against the cluster: the server, the JobSet API, the policies, a controller, nodes, admission."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from inplace.agent.settings.herd import GROUP_FREE
from inplace.cli.group.read import OUR_LEASE
from inplace.cli.lint.admission import ask_about_jobset
from inplace.cli.lint.facts import CRD_NAME, UPSTREAM_LEASE, ClusterFacts, ask, ask_about_cluster, check_nodes
from inplace.cli.lint.pod import is_object
from inplace.common.injection.as_made import as_made
from inplace.common.injection.finding import Finding, shown
from inplace.common.injection.pod import InjectOptions
from inplace.common.injection.pod_roles import Member, group_of, is_in_place
from inplace.common.injection.restart_rules import version_of
from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import NAMESPACES, POD_GROUPS, SCHEDULING_WORKLOADS, KubeObject, Resource
from inplace.common.wire import names as wire
from inplace.controller.plan.agent import asks_for_agent

SIDECAR_SINCE: Final = (1, 35)  # behind feature gates that are off; on by default in 1.36 (KEP-5532)
SINCE: Final = (1, 30)  # ValidatingAdmissionPolicy, and the rules of deploy/crd
POLICIES: Final = ("jobsets.jobset.x-k8s.io", "immutable.jobset.x-k8s.io", "agents.inplace.dev")
FLOW_SCHEMA: Final = "inplace-agents"
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
CONTROLLER_SELECTOR: Final = "app.kubernetes.io/name=inplace-controller"  # as deploy/controller and the chart have it
CONTROLLER_CONTAINER: Final = "controller"
_COLUMNS: Final = (
    wire.COLUMN_SYNCED,
    wire.COLUMN_DEPRECATED,
    wire.COLUMN_STRATEGY,
    wire.COLUMN_RESTART_IN_PLACE,
    wire.COLUMN_DISABLED,
    wire.COLUMN_UID,
)
_LEAVES_OUT: Final = ("NotIn", "DoesNotExist")  # operators of a selector
_INSTALL: Final = "kubectl apply --server-side -k deploy/"


async def lint_cluster(
    client: KubeClient, objects: Sequence[KubeObject], jobsets: Sequence[KubeObject], *, namespace: str
) -> list[list[Finding]]:
    """Return what is wrong in the cluster for each JobSet. Every request is a read or a dry run.

    Args:
        client: of the cluster.
        objects: everything of the manifest, which may bring along what the cluster lacks.
        jobsets: those of them to judge.
        namespace: of JobSets that name none.

    Raises:
        ApiError, TransportError: the cluster refused, or did not answer.
    """
    facts = await ask_about_cluster(client)
    found = []
    for jobset in jobsets:
        made = as_made(jobset, InjectOptions().for_version(version_of(facts.version)))
        placed = made.jobset | {"metadata": {"namespace": namespace} | (jobset.get("metadata") or {})}
        group = group_of(placed) if is_in_place(placed) else []
        findings = [*facts.unknown, *check_cluster(facts, group)]
        findings += [finding async for finding in ask_about_jobset(client, placed, group, objects)]
        findings += check_nodes(facts, group)
        if (placed.get("spec") or {}).get("scheduling") is not None:
            findings += await _gangs(client)
        if made.is_added:
            question = _added_agent(client, placed, objects)
            findings += await ask("the controller's Deployment and the Namespace", question, findings) or []
        found.append(findings)
    return found


def check_cluster(facts: ClusterFacts, group: Sequence[Member]) -> Iterator[Finding]:
    """Yield what the cluster lacks for the JobSets whose group this is; an empty group restarts by recreation."""
    yield from _server(facts, group)
    if facts.crd is None and not facts.is_unknown(f"the definition {CRD_NAME}"):
        yield Finding("crd", f"the definition {CRD_NAME}", "nothing", "JobSet v1alpha2", f"install it: {_INSTALL}")
    elif facts.crd is not None:
        yield from _definition(facts.crd, group)
    if facts.has_controller is False:
        places = " or ".join("/".join(place) for place in (OUR_LEASE, UPSTREAM_LEASE))
        fix = f"install one: {_INSTALL}; or see why it does not run"
        yield Finding("controller", f"leases {places}", "no holder", "a running controller", fix)
    if facts.policies is not None and group:
        for name in POLICIES:
            if name not in facts.policies:
                path = f"ValidatingAdmissionPolicy {name}"
                fix = f"apply deploy/admission: {_INSTALL}"
                yield Finding("admission-policy", path, "no binding of it", "the policy and its binding", fix)
    if group:
        yield from _webhooks(facts.webhooks)
    pods = sum(member.pods for member in group)
    if pods > GROUP_FREE and facts.flow_schemas is not None and FLOW_SCHEMA not in facts.flow_schemas:
        found = f"nothing, for {pods} Pods"
        yield Finding("flow-schema", f"FlowSchema {FLOW_SCHEMA}", found, "deploy/apf", f"apply it: {_INSTALL}")


def _server(facts: ClusterFacts, group: Sequence[Member]) -> Iterator[Finding]:
    version = version_of(facts.version)
    if version is None:
        return
    if any(member.place == "sidecar" and member.has_rules for member in group) and version < SIDECAR_SINCE:
        fix = "upgrade it, or let the controller add the agent, or use inplace inject --restart-rule off"
        needed = "1.36, or 1.35 with feature gates ContainerRestartRules and RestartAllContainersOnContainerExits"
        yield Finding("server-version", "the API server", facts.version, needed, fix)
    elif version < SINCE:
        yield Finding("server-version", "the API server", facts.version, "1.30 or newer", "upgrade it")


def _definition(crd: KubeObject, group: Sequence[Member]) -> Iterator[Finding]:
    """Yield missing parts of the stored CRD; upstream's CRD serves JobSets, but not the columns for large groups."""
    path = f"the definition {CRD_NAME}"
    served: KubeObject = next(
        (one for one in crd["spec"]["versions"] if f"{wire.API_GROUP}/{one['name']}" == wire.API_VERSION), {}
    )
    if not served.get("served"):
        names = ", ".join(str(one["name"]) for one in crd["spec"]["versions"])
        yield Finding("crd", path, f"versions {names}", "v1alpha2, served", f"install ours: {_INSTALL}")
        return
    properties = ((served.get("schema") or {}).get("openAPIV3Schema") or {}).get("properties") or {}
    policy = ((properties.get("spec") or {}).get("properties") or {}).get("failurePolicy") or {}
    strategies = ((policy.get("properties") or {}).get("restartStrategy") or {}).get("enum")
    if group and strategies is not None and wire.IN_PLACE_RESTART not in strategies:
        fix = f"install ours, which is a superset: {_INSTALL}"
        yield Finding("crd", path, f"restart strategies {shown(strategies)}", wire.IN_PLACE_RESTART, fix)
    columns = {str(column.get("name")) for column in served.get("additionalPrinterColumns") or ()}
    missing = [name for name in _COLUMNS if name not in columns]
    if group and missing:
        fix = f"install ours, which is a superset: {_INSTALL}"
        yield Finding("crd-columns", path, f"no columns {', '.join(missing)}", "the agents' columns", fix)


def _webhooks(configurations: Sequence[KubeObject]) -> Iterator[Finding]:
    """Yield each webhook that stands between an agent and its announcement, which is an update of its Pod.

    Kueue has one (docs/with-kueue.md). It is called for every Pod of the cluster, and the API server refuses an update
    while Kueue is away. A webhook that chooses its objects by label, or by an expression, is not judged.
    """
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


async def _gangs(client: KubeClient) -> list[Finding]:
    """Return that the API server does not serve what spec.scheduling needs; its discovery is for everybody."""
    try:
        found = msgspec.json.decode((await client.raw("GET", f"/apis/{wire.SCHEDULING_API}")).body)
    except NotFound:
        found = {}
    served = {one["name"] for one in found.get("resources") or ()}
    if served >= {SCHEDULING_WORKLOADS.plural, POD_GROUPS.plural}:
        return []
    fix = "start kube-apiserver, kube-controller-manager and kube-scheduler 1.37 with the feature gate GenericWorkload"
    path, needed = "spec.scheduling", f"{wire.SCHEDULING_API}; otherwise the Pods are scheduled one by one"
    return [Finding("gang-scheduling", path, f"no {wire.SCHEDULING_API} on the API server", needed, fix)]


async def _added_agent(client: KubeClient, jobset: KubeObject, objects: Sequence[KubeObject]) -> list[Finding]:
    """Return why the controller, as it was started, adds no agent, by its own rule.

    Args:
        client: of the cluster.
        jobset: one without an agent that restarts in place, with its namespace.
        objects: all of the manifest, which may bring the namespace along.

    Raises:
        Forbidden: the Deployment or the Namespace may not be read.
    """
    args = await _controller_args(client)
    if args is None:
        return []
    if not any(arg.startswith("--agent-image") for arg in args):
        fix = "let the Deployment name it, or write the agent with `inplace inject`"
        where = "the controller's Deployment"
        return [Finding("agent-by-controller", where, "no --agent-image", "--agent-image=IMAGE", fix)]
    metadata = jobset["metadata"]
    namespace, annotations = str(metadata["namespace"]), metadata.get("annotations") or {}
    by_default = "--agent-opt-in" not in args or await _label(client, namespace, objects) == wire.AGENT_ON
    if asks_for_agent(annotations, by_default=by_default):
        return []
    path = f'metadata.annotations["{wire.AGENT}"]'
    fix = f"set it, or label its namespace: kubectl label namespace {namespace} {wire.AGENT}={wire.AGENT_ON}"
    needed = f'"{wire.AGENT_ON}": the controller runs with --agent-opt-in'
    return [Finding("agent-by-controller", path, "nothing, here and on the Namespace", needed, fix)]


async def _controller_args(client: KubeClient) -> tuple[str, ...] | None:
    """Return the arguments of our controller's container; None where no Deployment of it is found."""
    found = await client.list(DEPLOYMENTS, query={"labelSelector": CONTROLLER_SELECTOR, "limit": "1"})
    for deployment in found["items"]:
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            if container["name"] == CONTROLLER_CONTAINER:
                return tuple(str(arg) for arg in container.get("args") or ())
    return None


async def _label(client: KubeClient, namespace: str, objects: Sequence[KubeObject]) -> str | None:
    """Return what a Namespace says, in the manifest or else in the cluster; None for nothing."""
    for brought in objects:
        if is_object(brought, NAMESPACES.kind, namespace):
            return (brought["metadata"].get("labels") or {}).get(wire.AGENT)
    try:
        found = await client.get(NAMESPACES, None, namespace)
    except NotFound:
        return None
    return (found["metadata"].get("labels") or {}).get(wire.AGENT)
