"""
Run a command with a connection to the cluster that kubectl would use: same files, same contexts, same namespace.

A kubeconfig that names a program (an exec plugin, an auth provider) is for `controller/api/credentials.py`.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec

from inplace.cli.answers import CheckedClient
from inplace.cli.refusal import CliExit, RefusalError
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import ApiError, Forbidden, NotFound, Unauthorized
from inplace.common.kube.http.credentials import IN_CLUSTER_VARIABLE, account_namespace, in_cluster
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.kube.http.request import CredentialsError, GarbledError, TransportError
from inplace.common.kube.kubeconfig import Kubeconfig, is_there
from inplace.controller.api.credentials import load_credentials

USER_AGENT = "inplace-cli"
WHOLE_MAX: Final = 300  # Pods that are read whole: 4 MB, and every reason in detail
Options = ParamSpec("Options")  # what a command takes beside its connection


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


def command(
    work: Callable[Concatenate[Connection, Options], Awaitable[int | None]],
) -> Callable[Concatenate[Target, Options], int]:
    """Make a command of a coroutine function named run_NAME: it connects to a target, and returns the exit code.

    That is 0 where the coroutine returns None.
    """

    async def connect(target: Target, *args: Options.args, **kwargs: Options.kwargs) -> int:
        async with connected(target) as connection:
            return await work(connection, *args, **kwargs) or CliExit.DONE

    @wraps(work)
    def run(target: Target, /, *args: Options.args, **kwargs: Options.kwargs) -> int:
        try:
            return asyncio.run(connect(target, *args, **kwargs))
        except RefusalError as refusal:
            print(f"inplace {work.__name__.removeprefix('run_')}: {refusal}", file=sys.stderr)
            return refusal.code
        except KeyboardInterrupt:
            return CliExit.INTERRUPTED
        except BrokenPipeError:  # `inplace status | head`
            sys.stderr.close()
            return CliExit.DONE

    return run


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Connection]:
    """Connect for the block; whatever the cluster refuses in it ends the command in words.

    Raises:
        RefusalError: there is no cluster to talk to, or it refused.
    """
    try:
        kubeconfig = None if target.is_in_cluster else _kubeconfig(target)
        context = (target.context or kubeconfig.current) if kubeconfig else ""
        preferred = kubeconfig.namespace(target.context) if kubeconfig else account_namespace(os.environ)
        namespace = target.namespace or preferred or "default"
        transport = await _transport(target, kubeconfig)
    except CredentialsError as error:
        raise RefusalError(f"no cluster to talk to: {error}", CliExit.NO_CLUSTER) from error
    try:
        with in_words(replace(target, context=context or None)):
            yield Connection(
                CheckedClient(transport, user_agent=USER_AGENT, field_manager=USER_AGENT), namespace, context
            )
    finally:
        await transport.close()


@contextmanager
def in_words(target: Target) -> Iterator[None]:
    """Put into words why the cluster of a target refuses what the block asks for.

    Raises:
        RefusalError: it refused, or did not answer.
    """
    try:
        yield
    except (ApiError, TransportError) as error:
        raise refusal_of(error, target) from error


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
        case GarbledError():
            cure = "log in to what stands before it, or choose another cluster (--context)"
            return RefusalError(f"not the answer of an API server, from {where}: {error}; {cure}", CliExit.NO_CLUSTER)
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


def _kubeconfig(target: Target) -> Kubeconfig:
    """Read the kubeconfig.

    Raises:
        CredentialsError: there is none, or it cannot be read.
        RefusalError: it has no such context.
    """
    if not is_there(target.path):
        message = f"expected a kubeconfig at {target.path}, found no file: name one with --kubeconfig"
        raise CredentialsError(message)
    kubeconfig = Kubeconfig(target.path)
    if target.context is not None and target.context not in kubeconfig.contexts:
        known = did_you_mean(target.context, kubeconfig.contexts)
        message = f"expected context {target.context} in {target.path}: {known}"
        raise RefusalError(message, CliExit.NO_CLUSTER)
    return kubeconfig


async def _transport(target: Target, kubeconfig: Kubeconfig | None) -> Http1Transport:
    """Return a transport to the cluster.

    Args:
        target: which context of it.
        kubeconfig: None is for the account of the Pod we run in.

    Raises:
        CredentialsError: what says who we are cannot be used.
    """
    if kubeconfig is None:
        return Http1Transport(in_cluster(os.environ))
    access = kubeconfig.access(target.context)
    if not access.fetched_by:
        return Http1Transport(access.credentials())
    identity = await load_credentials(target.path, clock=LoopClock(), context=target.context)
    return Http1Transport(identity.now, renew=identity.renew)
