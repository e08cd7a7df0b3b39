"""
Define the arguments and options that several commands have, and complete their names in a shell.

A completion never disturbs the line that somebody types: it takes CLUSTER_S_MAX at most, asks no question, and is
silent where there is no cluster, no right or no answer.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

if TYPE_CHECKING:
    from inplace.cli.connection import Connection, Target
    from inplace.common.kube.resources import Resource


CLUSTER_S_MAX: Final = 2.0  # a person waits with a finger on the key
EXIT_S_MAX: Final = 3.0  # when something that cannot be cancelled, such as a name server, holds the process
NAMES_MAX: Final = 500  # of one answer: 0.2 MB of metadata
METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def complete_jobset(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the JobSets of the namespace that begin with a text."""
    from inplace.common.kube.resources import JOBSETS

    return _names(ctx, incomplete, JOBSETS)


def complete_namespace(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the namespaces that begin with a text."""
    from inplace.common.kube.resources import NAMESPACES

    return _names(ctx, incomplete, NAMESPACES)


def complete_context(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the contexts of the kubeconfig that begin with a text."""
    from inplace.cli.connection import Target
    from inplace.common.kube.http.request import CredentialsError
    from inplace.common.kube.kubeconfig import Kubeconfig, is_there

    path = Target(None, ctx.params.get("kubeconfig")).path
    try:
        found = Kubeconfig(path).contexts if is_there(path) else []
    except CredentialsError:
        return []
    return [name for name in found if name.startswith(incomplete)]


def _names(ctx: typer.Context, incomplete: str, resource: Resource) -> list[str]:
    """Ask the cluster of the line that is typed for metadata alone; return nothing where it cannot be asked."""
    import asyncio

    from inplace.cli.connection import Target, connected
    from inplace.cli.refusal import RefusalError

    async def ask() -> list[str]:
        async with asyncio.timeout(CLUSTER_S_MAX), connected(target) as connection:
            return await names_of(connection, resource)

    target = Target(*(ctx.params.get(name) for name in ("context", "kubeconfig", "namespace")))
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, EXIT_S_MAX)
    with open(os.devnull) as nothing, redirect_stderr(io.StringIO()):  # noqa: PTH123 - os.devnull is a name, not a path
        sys.stdin = nothing  # a program that fetches credentials would ask its question in the middle of the line
        try:
            found = asyncio.run(ask())
        except (RefusalError, TimeoutError, OSError):
            return []
    return [name for name in found if name.startswith(incomplete)]


async def names_of(connection: Connection, resource: Resource) -> list[str]:
    """Return the names of a kind's objects, as far as one answer has them.

    Raises:
        ApiError, TransportError: the cluster refused, or did not answer.
    """
    from inplace.cli.answers import names_in
    from inplace.common.kube.http.request import Request

    path = resource.path(connection.namespace, query={"limit": str(NAMES_MAX)})
    request = Request("GET", path, connection.client.headers | {"accept": METADATA})
    return names_in((await connection.client.send(request, timeout_s=CLUSTER_S_MAX)).body)


JobSetName = Annotated[
    str, typer.Argument(metavar="JOBSET", help="Name of the JobSet.", autocompletion=complete_jobset)
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context", help="Context of the kubeconfig [default: its current one].", autocompletion=complete_context
    ),
]
KubeconfigOption = Annotated[
    str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig [default: $KUBECONFIG, then ~/.kube/config].")
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="Namespace [default: the context's, then default].", autocompletion=complete_namespace
    ),
]
OutputOption = Annotated[Literal["table", "json", "yaml"], typer.Option("--output", "-o", help="Output format.")]
JsonOption = Annotated[bool, typer.Option("--json", help="The same as -o json.")]


def format_of(output: Literal["table", "json", "yaml"], as_json: bool) -> Literal["table", "json", "yaml"]:
    """Return the format that both options ask for."""
    return "json" if as_json else output


def target_of(context: str | None, kubeconfig: str | None, namespace: str | None) -> Target:
    """Return the cluster and the namespace."""
    from inplace.cli.connection import Target

    return Target(context, kubeconfig, namespace)
