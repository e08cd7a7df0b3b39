"""
Who we are to the API server: the account of this Pod, or a kubeconfig; read again when it may be old.

`common.kube.kubeconfig` reads what says so directly. A program that a kubeconfig names is asked here: an exec plugin by
`exec_plugin.py`, the auth-provider oidc by kubernetes_asyncio, which is imported only then: it has 800 generated models
(0.2 s and 38 MB).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inplace.common.kube.clock import Clock
from inplace.common.kube.http.credentials import IN_CLUSTER_VARIABLE, Credentials, in_cluster
from inplace.common.kube.http.http1 import Renew
from inplace.common.kube.http.request import CredentialsError
from inplace.common.kube.kubeconfig import Access, Kubeconfig, is_there
from inplace.controller.api.exec_plugin import ExecPlugin

REFRESH_S: Final = 60.0  # projected tokens live an hour, exec plugins' often 15 minutes; once a minute is enough


class Identity:
    """Credentials, read again when they may be old.

    Args:
        now: the credentials.
        read: reads them again; is told whether the server rejected the last ones.

    Attributes:
        now: the credentials as they were read last.
    """

    def __init__(self, now: Credentials, read: Renew, *, clock: Clock) -> None:
        self.now = now
        self._read = read
        self._clock = clock
        self._read_s = clock.monotonic_s()

    @property
    def host(self) -> str:
        """Return the base URL of the API server."""
        return f"{'https' if self.now.tls else 'http'}://{self.now.authority}{self.now.path_prefix}"

    async def renew(self, rejected: bool) -> Credentials:
        """Return the credentials; read them again when they may be old, or at once when the server `rejected` them.

        Raises:
            CredentialsError: they cannot be read any more; the old ones stay.
        """
        now_s = self._clock.monotonic_s()
        if rejected or now_s - self._read_s >= REFRESH_S:
            self._read_s = now_s
            self.now = await self._read(rejected)
        return self.now


async def load_credentials(
    kubeconfig: str | None, *, clock: Clock, environment: Mapping[str, str] = os.environ, context: str | None = None
) -> Identity:
    """Find the credentials: the named kubeconfig's, the Pod's account's, or those of $KUBECONFIG or ~/.kube/config.

    Args:
        kubeconfig: a file, or several as $KUBECONFIG has them.
        clock: says when to read the credentials again.
        environment: where the account, the kubeconfig's path and proxies are looked up.
        context: of the kubeconfig, instead of its current one; the Pod's account is not looked at then.

    Raises:
        CredentialsError: there are none, or they cannot be used.
    """
    if kubeconfig is None and context is None and IN_CLUSTER_VARIABLE in environment:

        async def account(_rejected: bool) -> Credentials:
            return in_cluster(environment)

        read: Renew = account
    else:
        path = kubeconfig or environment.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
        if not is_there(path):
            raise CredentialsError(
                f"expected a kubeconfig at {path}, found no file, and {IN_CLUSTER_VARIABLE} is not set: "
                "name one with --kubeconfig, or run in a cluster with a service account"
            )
        read = _reader(path, context, environment)
    return Identity(await read(False), read, clock=clock)


def _reader(path: str, context: str | None, environment: Mapping[str, str]) -> Renew:
    """Return what reads a context of a kubeconfig; a plugin's answer is kept while its settings stay."""
    plugins: list[tuple[Any, ExecPlugin]] = []

    async def read(rejected: bool) -> Credentials:
        access = Kubeconfig(path, environment).access(context)
        if access.fetched_by == "exec":
            settings = (access.cluster.values, access.user.values)
            if not plugins or plugins[-1][0] != settings:
                plugins[:] = [(settings, ExecPlugin(access))]
            return access.credentials_with(**await plugins[-1][1].secrets(rejected=rejected))
        if access.fetched_by == "auth-provider":
            return access.credentials_with(token=await _oidc_token(access))
        return access.credentials()

    return read


async def _oidc_token(access: Access) -> str:
    """Return the token of an OpenID provider, renewed when it is about to expire."""
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

    provider = access.user.values["auth-provider"]
    name = provider.get("name") if isinstance(provider, dict) else provider
    if name != "oidc":  # kubectl has taken no other since 1.26
        raise access.user.error("auth-provider", "oidc, or an exec plugin instead", repr(name))
    configuration = Configuration()
    entry = {"name": "this", "context": {"cluster": "this", "user": "this"}}
    loader = KubeConfigLoader(
        {
            "current-context": "this",
            "contexts": [entry],
            "clusters": [{"name": "this", "cluster": {"server": "https://this"}}],
            "users": [{"name": "this", "user": access.user.values}],
        }
    )
    try:
        await loader.load_and_set(configuration)
    except Exception as error:  # the loader raises whatever it meets
        raise access.user.error("auth-provider", "an OpenID provider that renews its token", repr(error)) from error
    return str(configuration.api_key["BearerToken"]).removeprefix("Bearer ")
