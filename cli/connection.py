"""
Open a connection to the cluster that kubectl would use: same files, same contexts, same namespace.

The agent's small reader reads a kubeconfig with plain credentials, and the agent's transport serves it: a command
starts in a third of the time. Exec plugins, auth providers, proxies and lists of files need kubernetes_asyncio, which
is imported only then (see controller/api/credentials.py).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from inplace.cli.refusal import CliExit, RefusalError
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.credentials import Credentials, CredentialsError, in_cluster
from inplace.common.kube.errors import ApiError, Forbidden, NotFound, Unauthorized
from inplace.common.kube.http import Transport, TransportError
from inplace.common.kube.http1 import Http1Transport
from inplace.common.kube.kubeconfig import Kubeconfig

USER_AGENT = "inplace-cli"
WHOLE_MAX: Final = 300  # Pods that are read whole: 4 MB, and every reason in detail
IN_CLUSTER_VARIABLE = "KUBERNETES_SERVICE_HOST"
ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster, and which namespace of it; None is what kubectl would take.

    Args:
        context: of the kubeconfig.
        kubeconfig: the file.
        namespace: its name.
    """

    context: str | None = None
    kubeconfig: str | None = None
    namespace: str | None = None

    @property
    def path(self) -> str:
        """Return the kubeconfig's path, or several as $KUBECONFIG has them."""
        return self.kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")

    @property
    def is_in_cluster(self) -> bool:
        """Say whether the account of the Pod we run in is meant."""
        return self.kubeconfig is None and self.context is None and IN_CLUSTER_VARIABLE in os.environ


@dataclass(frozen=True, slots=True)
class Connection:
    """An open connection.

    Args:
        client: its verbs.
        namespace: what is asked about.
        context: of the kubeconfig; "" where there is none to name.
        whole_max: so many Pods of a group are read whole; of a larger group a status needs less.
    """

    client: KubeClient
    namespace: str
    context: str = ""
    whole_max: int = WHOLE_MAX

    @property
    def place(self) -> str:
        """Return where is looked, in words: people have several clusters, and forget in which they are."""
        return f"namespace {self.namespace}" + (f" of context {self.context}" if self.context else "")


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Connection]:
    """Connect for the block; whatever the cluster refuses in it ends the command in words.

    Raises:
        RefusalError: there is no cluster to talk to, or it refused.
    """
    files = _files(target)
    context = _context(target, files)
    try:
        transport = await _transport(target, files)
    except CredentialsError as error:
        raise RefusalError(f"no cluster to talk to: {error}", CliExit.NO_CLUSTER) from error
    try:
        namespace = target.namespace or _namespace(target, files) or "default"
        yield Connection(KubeClient(transport, user_agent=USER_AGENT, field_manager=USER_AGENT), namespace, context)
    except (ApiError, TransportError) as error:
        raise refusal_of(error, replace(target, context=context or None)) from error
    finally:
        await transport.close()


def refusal_of(error: ApiError | TransportError, target: Target) -> RefusalError:
    """Put into words why the cluster refused a command."""
    where = f"context {target.context}" if target.context else f"the kubeconfig {target.path}"
    if target.is_in_cluster:
        where = "this Pod's account"
    match error:
        case Unauthorized():
            message = f"the cluster of {where} does not accept its credentials: {error.message}; log in again"
            return RefusalError(message, CliExit.NO_CLUSTER)
        case Forbidden():
            cure = "ask for the right; `kubectl auth can-i --list` shows your rights"
            return RefusalError(f"not allowed: {error.message}; {cure}", CliExit.NOT_ALLOWED)
        case NotFound():
            cure = "install it (kubectl apply --server-side -k deploy/), or choose another cluster (--context)"
            return RefusalError(f"the cluster of {where} does not know JobSets ({error.message}); {cure}")
        case TransportError():
            cure = "check that it is up, and that it is the right one (--context, --kubeconfig)"
            return RefusalError(f"no answer from the cluster of {where}: {error}; {cure}", CliExit.NO_CLUSTER)
        case _:
            return RefusalError(f"the cluster refused: {error}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: the closest names, or all of them when they are few."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there is {', '.join(names)}" if 0 < len(names) <= NAMES_SHOWN else f"there are {len(names)} others"


NAMES_SHOWN = 5  # a longer list is `inplace status`


def _files(target: Target) -> list[Kubeconfig]:
    """Return the readable files, each read once; a command that needs an unreadable one reports its problem."""
    found = []
    for part in filter(None, target.path.split(os.pathsep)) if not target.is_in_cluster else ():
        with suppress(CredentialsError):
            found.append(Kubeconfig(str(Path(part).expanduser())))
    return found


def _context(target: Target, files: Sequence[Kubeconfig]) -> str:
    """Return the context that is meant, "" for none."""
    return target.context or next((file.current for file in files if file.current), "")


async def _transport(target: Target, files: Sequence[Kubeconfig]) -> Transport:
    """Return a transport to the cluster.

    Raises:
        CredentialsError: there is none, or it cannot be used.
    """
    credentials = _plain(target, files)
    if credentials is not None:
        return Http1Transport(credentials, clock=LoopClock())
    from inplace.controller.api.credentials import load_credentials
    from inplace.controller.api.transport import AiohttpTransport

    transport = AiohttpTransport(await load_credentials(target.kubeconfig, clock=LoopClock(), context=target.context))
    return await transport.__aenter__()


def _plain(target: Target, files: Sequence[Kubeconfig]) -> Credentials | None:
    """Return what the small reader makes of it; None when the other one has to try.

    Raises:
        RefusalError: there is no such context.
    """
    if target.is_in_cluster:
        return in_cluster(os.environ)
    if os.pathsep in target.path:
        return None
    for file in files:
        if target.context is not None and target.context not in file.contexts:
            message = (
                f"expected context {target.context} in {target.path}: {did_you_mean(target.context, file.contexts)}"
            )
            raise RefusalError(message, CliExit.NO_CLUSTER)
        with suppress(CredentialsError):
            return file.credentials(target.context)
    return None


def _namespace(target: Target, files: Sequence[Kubeconfig]) -> str:
    """Return the namespace that the context or the Pod's account prefers, "" for none."""
    if target.is_in_cluster:
        with suppress(OSError):
            return ACCOUNT_NAMESPACE.read_text(encoding="utf-8").strip()
    for file in files:
        with suppress(CredentialsError):  # as kubectl does: the first file that has the context
            return file.namespace(target.context)
    return ""
