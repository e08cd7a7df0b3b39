"""Check whether the cluster's controller adds the agent to a JobSet without one, by the controller's own rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inplace.cli.lint.rights import is_object
from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import NAMESPACES, KubeObject, Resource
from inplace.common.wire import names as wire
from inplace.controller.injection.finding import Finding
from inplace.controller.plan.agent import asks_for_agent

DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
SELECTOR: Final = "app.kubernetes.io/name=inplace-controller"  # as deploy/controller and the chart have it
CONTAINER: Final = "controller"


async def check_added_agent(client: KubeClient, jobset: KubeObject, objects: Sequence[KubeObject]) -> list[Finding]:
    """Return why the controller, as it was started, adds no agent.

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
    found = await client.list(DEPLOYMENTS, query={"labelSelector": SELECTOR, "limit": "1"})
    for deployment in found["items"]:
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            if container["name"] == CONTAINER:
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
