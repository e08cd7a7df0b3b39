"""
Find the API server's address and credentials: a Pod's service account, or a kubeconfig file.

Only the cluster's own CA is trusted. A token file is read again for every request, because kubelet rewrites it.
Source: client-go rest.InClusterConfig; k8s.io/client-go/tools/clientcmd/api/v1 types.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from inplace.common.bare.record import record
from inplace.common.bare.typed import TYPE_CHECKING, Final
from inplace.common.kube.http.request import CredentialsError, TransportError

if TYPE_CHECKING:
    import ssl

    from inplace.common.kube.http.proxy import Proxy

IN_CLUSTER_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"  # set by kubelet
SERVICE_ACCOUNT_DIR: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


@record
class Credentials:
    """The address of one API server, and credentials for it.

    Args:
        host: name or IP literal, without brackets.
        path_prefix: what the server's URL has before /api, "" mostly.
        tls: speak TLS. Without it nothing below is used, and no token is sent, as kubectl has it.
        ca_file, ca_pem: the CA to trust, as a file or as text; neither trusts the system's.
        certificate_file, key_file: the client's certificate, "" for none.
        certificate_pem, key_pem: the same as text.
        token: a fixed bearer token; token_file wins over it.
        basic: user:password, for a server that still takes them.
        impersonate: headers that ask the server to take us for somebody else; sent without TLS too, as kubectl does.
        server_name: the name the server's certificate must carry when it is not `host`.
        insecure: do not check the server's certificate.
        proxy: what stands between us and the server, None for nothing.
    """

    host: str
    port: int
    path_prefix: str = ""
    tls: bool = True
    ca_file: str = ""
    ca_pem: str = ""
    certificate_file: str = ""
    key_file: str = ""
    certificate_pem: str = ""
    key_pem: str = ""
    token: str = ""
    token_file: str = ""
    basic: str = ""
    impersonate: tuple[tuple[str, str], ...] = ()
    server_name: str = ""
    insecure: bool = False
    proxy: Proxy | None = None

    def __repr__(self) -> str:
        """Name the server only: what is secret must not reach a log or a traceback."""
        return f"Credentials({self.authority})"

    @property
    def authority(self) -> str:
        """Return host and port as they stand in a URL and in the Host header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url_prefix(self) -> str:
        """Return what stands before /api in a request's first line: for a proxy the whole URL, without TLS."""
        is_forwarded = self.proxy is not None and self.proxy.scheme == "http" and not self.tls
        return f"http://{self.authority}{self.path_prefix}" if is_forwarded else self.path_prefix

    def identity(self) -> tuple[tuple[str, str], ...]:
        """Return the headers that say who we are now; without TLS no secret, because everybody could read it.

        Raises:
            TransportError: the token file cannot be read now; nothing was sent.
        """
        headers = self.impersonate
        if self.tls and (self.token or self.token_file):
            headers = (("authorization", f"Bearer {self._token()}"), *headers)
        elif self.tls and self.basic:
            from base64 import b64encode

            headers = (("authorization", f"Basic {b64encode(self.basic.encode()).decode('ascii')}"), *headers)
        if self.proxy is not None and not self.tls and self.proxy.authorization:
            headers = (("proxy-authorization", self.proxy.authorization), *headers)
        return headers

    def _token(self) -> str:
        """Return the bearer token as it is now."""
        if not self.token_file:
            return self.token
        try:
            with open(self.token_file, encoding="ascii") as file:  # noqa: PTH123 - start path
                return file.read().strip()
        except (OSError, ValueError) as error:
            raise TransportError(f"cannot read the token from {self.token_file}: {error}", sent=False) from error

    def ssl_context(self) -> ssl.SSLContext | None:
        """Build the TLS settings, None for plain HTTP.

        Raises:
            CredentialsError: a certificate or key cannot be loaded.
        """
        if not self.tls:
            return None
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        try:
            if self.ca_file or self.ca_pem:
                context.load_verify_locations(cafile=None if self.ca_pem else self.ca_file, cadata=self.ca_pem or None)
            elif not self.insecure:
                context.load_default_certs()
        except (OSError, ValueError) as error:
            where = "certificate-authority-data" if self.ca_pem else self.ca_file
            raise CredentialsError(f"{where}: expected CA certificates in PEM, saw {error}") from error
        self._load_client_certificate(context)
        return context

    def tls_files(self) -> tuple[object, ...]:
        """Return what changes when a file that `ssl_context` reads is replaced, as kubelet does with a rotated CA."""
        return tuple(file_version(path) for path in (self.ca_file, self.certificate_file, self.key_file) if path)

    def _load_client_certificate(self, context: ssl.SSLContext) -> None:
        if not (self.certificate_file or self.certificate_pem):
            return
        certificate, key = self.certificate_file, self.key_file
        import tempfile

        try:
            with tempfile.TemporaryDirectory() as folder:  # OpenSSL reads a key from nothing but a file; mode 0700
                if self.certificate_pem:
                    certificate = _written(folder, "tls.crt", self.certificate_pem)
                if self.key_pem:
                    key = _written(folder, "tls.key", self.key_pem)
                context.load_cert_chain(certificate, key or None)
        except (OSError, ValueError) as error:
            where = self.certificate_file or "client-certificate-data"
            raise CredentialsError(f"{where}: expected a certificate and its key in PEM, saw {error}") from error


def file_version(path: str) -> tuple[int, int, int] | None:
    """Return a value that changes when a file is replaced or rewritten; None without a file."""
    try:
        seen = os.stat(path)  # noqa: PTH116 - start path
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


def is_address(host: str) -> bool:
    """Say whether `host` is an IP address, which needs no name look-up."""
    import socket

    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except (OSError, ValueError):  # ValueError: of characters that are none, or a NUL
        return False
    return True


def service_account_dir(env: Mapping[str, str]) -> str:
    """Return the folder into which kubelet mounts the Pod's token, CA and namespace."""
    return env.get("INPLACE_SERVICE_ACCOUNT_DIR") or SERVICE_ACCOUNT_DIR


def account_namespace(env: Mapping[str, str]) -> str:
    """Return the namespace of the Pod that we run in, "" where its service account is not mounted."""
    try:
        with open(f"{service_account_dir(env)}/namespace", encoding="ascii") as file:  # noqa: PTH123 - start path
            return file.read().strip()
    except OSError:
        return ""


def in_cluster(env: Mapping[str, str]) -> Credentials:
    """Return the credentials that kubelet gives every Pod.

    Raises:
        CredentialsError: this is no Pod, or its service account is not mounted.
    """
    host, port = env.get(IN_CLUSTER_VARIABLE, ""), env.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise CredentialsError(
            "expected KUBECONFIG, or KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT (set by kubelet), "
            f"saw host {host!r}, port {port!r}"
        )
    folder = service_account_dir(env)
    for name in ("token", "ca.crt"):
        if not os.access(f"{folder}/{name}", os.R_OK):
            raise CredentialsError(
                f"{folder}/{name}: expected the mounted service account, saw no readable file "
                "(is automountServiceAccountToken off?)"
            )
    host = host.strip("[]")
    proxy = environment_proxy("https", host, int(port), env)
    return Credentials(host, int(port), ca_file=f"{folder}/ca.crt", token_file=f"{folder}/token", proxy=proxy)


def environment_proxy(scheme: str, host: str, port: int, env: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that the environment wants for a server; see `proxy_of_environment`, imported only then.

    Raises:
        CredentialsError: the variable holds no URL of a proxy that we can speak to.
    """
    if not (env.get(f"{scheme}_proxy") or env.get(f"{scheme}_PROXY".upper())):
        return None
    from inplace.common.kube.http.proxy import proxy_of_environment

    return proxy_of_environment(scheme, host, port, env)


def _written(folder: str, name: str, text: str) -> str:
    path = f"{folder}/{name}"
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - start path
        file.write(text)
    return path
