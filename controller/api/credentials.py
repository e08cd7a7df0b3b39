"""
Find the API server's address and credentials: a kubeconfig, or the account of this Pod.

`controller/api/plain_credentials.py` reads plain credentials. kubernetes_asyncio handles everything else (exec plugins,
auth providers, proxies, lists of files); it is imported only here, and only then. Its package imports 800 generated
models for any sub-module: 0.2 s and 38 MB more than aiohttp alone (measured), once per controller process. The
alternatives are to fake its package or to copy its kubeconfig loader, and both are worse.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any, Protocol

import yaml

from inplace.common.kube.clock import Clock
from inplace.common.kube.credentials import Credentials, CredentialsError
from inplace.controller.api.plain_credentials import plain_credentials

__all__ = ["REFRESH_S", "CredentialsError", "Identity", "load_credentials"]

REFRESH_S = 60.0  # projected tokens live an hour, exec plugins' often 15 minutes; once a minute is enough
IN_CLUSTER_VARIABLE = "KUBERNETES_SERVICE_HOST"


class Identity(Protocol):
    """What a transport asks: the server's address and authority, and who we are."""

    @property
    def host(self) -> str:
        """Return the base URL of the API server."""

    @property
    def proxy(self) -> str | None:
        """Return the proxy of the kubeconfig, if any."""

    @property
    def server_name(self) -> str | None:
        """Return the name that the server's certificate must carry, when it is not the host's."""

    @property
    def tls_version(self) -> object:
        """Return what changes when `tls_context` would: another CA, client certificate or key."""

    def authorization(self) -> str | None:
        """Return the Authorization header."""

    def tls_context(self) -> ssl.SSLContext | None:
        """Return how the server is trusted; None for plain HTTP."""

    async def refresh(self, *, rejected: bool = False) -> None:
        """Read everything again when it may be old, or at once when the server `rejected` it."""


class Loader(Protocol):
    """What both of kubernetes_asyncio's loaders do."""

    def load_and_set(self, client_configuration: Any) -> Any:
        """Read everything again into a Configuration; may return an awaitable."""


class LoadedCredentials:
    """The API server's address and certificate authority, and our identity; read again when they may be old.

    Args:
        configuration: a kubernetes_asyncio Configuration.
        loader: fills it.
    """

    def __init__(self, configuration: Any, loader: Loader, *, clock: Clock) -> None:
        self._configuration = configuration
        self._loader = loader
        self._clock = clock
        self._read_s = clock.monotonic_s()

    @property
    def host(self) -> str:
        """Return the base URL of the API server."""
        return str(self._configuration.host).rstrip("/")

    @property
    def proxy(self) -> str | None:
        """Return the proxy of the kubeconfig, if any."""
        proxy: str | None = self._configuration.proxy
        return proxy

    @property
    def server_name(self) -> str | None:
        """Return the name that the server's certificate must carry, when it is not the host's."""
        name: str | None = self._configuration.tls_server_name
        return name

    @property
    def tls_version(self) -> object:
        """Return what changes when `tls_context` would: another CA, client certificate or key."""
        return self._tls, self._tls.tls_files()

    def authorization(self) -> str | None:
        """Return the Authorization header; none without TLS, as kubectl has it."""
        token: str | None = self._configuration.api_key.get("BearerToken")
        return token.strip() if token and self._tls.tls else None

    def tls_context(self) -> ssl.SSLContext | None:
        """Return how the server is trusted; None for plain HTTP.

        Raises:
            CredentialsError: a certificate or key file cannot be used.
        """
        return self._tls.ssl_context()

    @property
    def _tls(self) -> Credentials:
        """Return the TLS settings in the agent's form, so that both trust the same chains."""
        configuration = self._configuration
        return Credentials(
            host="",
            port=0,
            tls=self.host.startswith("https"),
            ca_file=configuration.ssl_ca_cert or "",
            certificate_file=configuration.cert_file or "",
            key_file=configuration.key_file or "",
            insecure=not configuration.verify_ssl,
        )

    async def refresh(self, *, rejected: bool = False) -> None:
        """Read the credentials again when a minute has passed, or at once when the server `rejected` them.

        Raises:
            CredentialsError: they cannot be read any more; the old ones stay.
        """
        now_s = self._clock.monotonic_s()
        if not rejected and now_s - self._read_s < REFRESH_S:
            return
        self._read_s = now_s
        if rejected and hasattr(self._loader, "exec_plugin_expiry"):
            del self._loader.exec_plugin_expiry  # or the plugin's old token would be kept until it says it expired
        await _load(self._loader, self._configuration)


async def load_credentials(
    kubeconfig: str | None,
    *,
    clock: Clock,
    environment: dict[str, str] | None = None,
    context: str | None = None,
) -> Identity:
    """Find the configuration: the named kubeconfig, the Pod's account, $KUBECONFIG or ~/.kube/config.

    Args:
        kubeconfig: a file, or several as $KUBECONFIG has them.
        clock: says when to read the credentials again.
        environment: the process's own when None.
        context: of the kubeconfig, instead of its current one; the Pod's account is not looked at then.

    Raises:
        CredentialsError: there is none, or it cannot be used.
    """
    env = dict(os.environ) if environment is None else environment
    is_in_cluster = kubeconfig is None and context is None and IN_CLUSTER_VARIABLE in env
    path = kubeconfig or env.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if context is None:
        plain = plain_credentials(None if is_in_cluster else path, env, clock=clock, refresh_s=REFRESH_S)
        if plain is not None:
            return plain
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import incluster_config, kube_config

    loader: Loader
    if is_in_cluster:
        loader = incluster_config.InClusterConfigLoader(
            incluster_config.SERVICE_TOKEN_FILENAME, incluster_config.SERVICE_CERT_FILENAME, False, env
        )
    else:
        if not _is_there(path):
            raise CredentialsError(
                f"expected a kubeconfig at {path}, found no file, and {IN_CLUSTER_VARIABLE} is not set: "
                "name one with --kubeconfig, or run in a cluster with a service account"
            )
        _check_files(path)
        try:
            merger = kube_config.KubeConfigMerger(path)
            loader = kube_config.KubeConfigLoader(
                config_dict=merger.config, active_context=context, config_base_path=None
            )
        except Exception as error:  # the loader raises whatever its YAML makes it raise
            raise CredentialsError(f"cannot use the kubeconfig {path}: {error}") from error
    configuration = Configuration()
    await _load(loader, configuration)
    return LoadedCredentials(configuration, loader, clock=clock)


def _is_there(path: str) -> bool:
    """Say whether a file of a list of files, as in $KUBECONFIG, exists."""
    return any(Path(part).expanduser().is_file() for part in path.split(os.pathsep) if part)


def _check_files(path: str) -> None:
    """Refuse, in clear words, settings on which the loader would fail with an unclear error.

    Raises:
        CredentialsError: a file is not a mapping in YAML.
    """
    for part in filter(None, path.split(os.pathsep)):
        file = Path(part).expanduser()
        if not file.is_file():
            continue  # as kubectl does with a list of files
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise CredentialsError(f"cannot read the kubeconfig {file}: expected YAML, saw {error}") from error
        if not isinstance(content, dict):
            seen = "an empty file" if content is None else f"{content!r:.40}"
            raise CredentialsError(
                f"cannot use the kubeconfig {file}: expected a mapping with clusters, contexts and users, saw {seen}"
            )


async def _load(loader: Loader, configuration: Any) -> None:
    try:
        waiting = loader.load_and_set(configuration)
        if waiting is not None:
            await waiting
    except Exception as error:  # exec plugins, YAML, missing files: the loader raises whatever it meets
        raise CredentialsError(f"cannot read the credentials: {error}") from error
    if configuration.ssl_ca_cert and not configuration.verify_ssl:
        raise CredentialsError(
            "expected a certificate-authority or insecure-skip-tls-verify, as kubectl does, saw both: remove one"
        )
