"""
Plain credentials: a Pod's own account, or one kubeconfig with a token or a client certificate.

The agent's reader (common/kube) reads them. It is small, and knows no exec plugins, auth providers or proxies. The
loader that does (kubernetes_asyncio) loads 800 models: 38 MB, a third of the memory for 5,000 Pods.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from inplace.common.kube.clock import Clock
from inplace.common.kube.credentials import Credentials, CredentialsError, in_cluster
from inplace.common.kube.kubeconfig import read_kubeconfig
from inplace.common.record import replace

Read = Callable[[], Credentials]


class PlainCredentials:
    """What `read` returns, read again when it may be old; see `controller.api.credentials.Identity`."""

    proxy: str | None = None  # of a kubeconfig; the environment's proxies are the transport's business

    def __init__(self, read: Read, *, clock: Clock, refresh_s: float) -> None:
        self._read = read
        self._clock = clock
        self._refresh_s = refresh_s
        self._now = read()
        self._read_s = clock.monotonic_s()

    @property
    def host(self) -> str:
        """Return the base URL of the API server."""
        return f"{'https' if self._now.tls else 'http'}://{self._now.authority}{self._now.path_prefix}"

    @property
    def server_name(self) -> str | None:
        """Return the name that the server's certificate must carry, when it is not the host's."""
        return self._now.server_name or None

    @property
    def tls_version(self) -> object:
        """Return what changes when `tls_context` would: another CA, client certificate or key."""
        return replace(self._now, token=""), self._now.tls_files()

    def authorization(self) -> str | None:
        """Return the Authorization header; a token file is read each time, because kubelet rewrites it.

        Raises:
            TransportError: the token file cannot be read now.
        """
        token = self._now.bearer_token()
        return f"Bearer {token}" if token else None

    def tls_context(self) -> ssl.SSLContext | None:
        """Return how the server is trusted; None for plain HTTP.

        Raises:
            CredentialsError: a certificate or key cannot be used.
        """
        return self._now.ssl_context()

    async def refresh(self, *, rejected: bool = False) -> None:
        """Read the credentials again when they may be old, or at once when the server `rejected` them.

        Raises:
            CredentialsError: they cannot be read any more; the old ones stay.
        """
        now_s = self._clock.monotonic_s()
        if rejected or now_s - self._read_s >= self._refresh_s:
            self._read_s = now_s
            self._now = self._read()


def plain_credentials(
    kubeconfig: str | None, env: Mapping[str, str], *, clock: Clock, refresh_s: float
) -> PlainCredentials | None:
    """Return the credentials of this kubeconfig, or of the Pod we run in when it is None.

    None when another loader must try: a list of files, a field that the agent's reader cannot follow, or a mistake,
    about which the other one has more to say.
    """
    if kubeconfig is not None and os.pathsep in kubeconfig:
        return None
    path = kubeconfig

    def read() -> Credentials:
        return in_cluster(env) if path is None else read_kubeconfig(str(Path(path).expanduser()))

    with suppress(CredentialsError):
        return PlainCredentials(read, clock=clock, refresh_s=refresh_s)
    return None
