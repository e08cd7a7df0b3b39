"""Ask a cluster for all facts that `inplace lint` needs. Every request is a read or a dry run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from inplace.cli.lint.admission import ask_about_jobset
from inplace.cli.lint.cluster import check_cluster
from inplace.cli.lint.facts import ask_about_cluster
from inplace.cli.lint.jobset import group_of, is_in_place
from inplace.cli.lint.nodes import check_nodes
from inplace.cli.manifests.finding import ClusterError, Finding
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import ApiError
from inplace.common.kube.http.request import CredentialsError, TransportError
from inplace.common.kube.resources import KubeObject
from inplace.controller.api.credentials import load_credentials
from inplace.controller.api.transport import open_transport

USER_AGENT: Final = "inplace-lint"


async def lint_cluster(
    objects: Sequence[KubeObject],
    jobsets: Sequence[KubeObject],
    *,
    namespace: str,
    kubeconfig: str | None,
    context: str | None,
) -> list[list[Finding]]:
    """Return what is wrong in the cluster for each JobSet.

    Args:
        objects: everything of the manifest, which may bring along what the cluster lacks.
        jobsets: those of them to judge.
        namespace: of JobSets that name none.
        kubeconfig: the file; None for the usual places.
        context: of the kubeconfig; None for its current one.

    Raises:
        ClusterError: there is no cluster, or it does not let us in.
    """
    try:
        async with _connected(kubeconfig, context) as client:
            return await lint_with(client, objects, jobsets, namespace=namespace)
    except (CredentialsError, TransportError) as error:
        raise ClusterError(f"expected a cluster to ask, saw: {error}") from error
    except ApiError as error:
        raise ClusterError(f"expected an answer from the cluster, saw: {error}") from error


async def lint_with(
    client: KubeClient, objects: Sequence[KubeObject], jobsets: Sequence[KubeObject], *, namespace: str
) -> list[list[Finding]]:
    """Do the same over a connection that is open."""
    facts = await ask_about_cluster(client)
    found = []
    for jobset in jobsets:
        placed = jobset | {"metadata": {"namespace": namespace} | (jobset.get("metadata") or {})}
        group = group_of(placed) if is_in_place(placed) else []
        findings = [*facts.unknown, *check_cluster(facts, group)]
        findings += [finding async for finding in ask_about_jobset(client, placed, group, objects)]
        findings += check_nodes(facts, group)
        found.append(findings)
    return found


@asynccontextmanager
async def _connected(kubeconfig: str | None, context: str | None) -> AsyncIterator[KubeClient]:
    credentials = await load_credentials(kubeconfig, clock=LoopClock(), context=context)
    async with open_transport(credentials) as transport:
        yield KubeClient(transport, user_agent=USER_AGENT, field_manager=USER_AGENT)
