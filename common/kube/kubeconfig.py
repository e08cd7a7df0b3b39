"""
Read one kubeconfig file: JSON first, YAML (PyYAML, imported then) only when it is not JSON.

Source: k8s.io/client-go/tools/clientcmd/api/v1 types.go. Merging several files is not done; one path is
expected.
"""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from inplace.common.kube.credentials import Credentials, CredentialsError

_CANNOT_USER: Final = (
    "exec",
    "auth-provider",
    "username",
    "password",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
)
_CANNOT_CLUSTER: Final = ("proxy-url",)
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


def read_kubeconfig(path: str) -> Credentials:
    """Return the credentials of the file's current context.

    Raises:
        CredentialsError: the file is at fault; the message says where.
    """
    return Kubeconfig(path).credentials()


class Kubeconfig:
    """One file, and the words for what is wrong with it.

    Raises:
        CredentialsError: it cannot be read, or is no mapping.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise CredentialsError(f"KUBECONFIG: expected one readable file, saw {path!r}: {error}") from error
        self._root = self._parse(text)

    @property
    def contexts(self) -> list[str]:
        """Return the names of the contexts."""
        entries = self._root.get("contexts")
        found = entries if isinstance(entries, list) else []
        return [str(entry.get("name")) for entry in found if isinstance(entry, dict)]

    @property
    def current(self) -> str:
        """Return the name of the current context, "" for none."""
        return str(self._root.get("current-context") or "")

    def namespace(self, context: str | None = None) -> str:
        """Return the namespace that a context prefers, "" when it names none.

        Raises:
            CredentialsError: there is no such context.
        """
        return str(self._context(context).get("namespace") or "")

    def credentials(self, context: str | None = None) -> Credentials:
        """Put a context's cluster and user together; None is the current one.

        Raises:
            CredentialsError: the file is at fault, or says what we cannot do.
        """
        chosen, where = self._context(context), f"context {context}" if context else "the current context"
        cluster = self._named("clusters", "cluster", self._text(chosen, "cluster", where))
        user = self._named("users", "user", self._text(chosen, "user", where)) if chosen.get("user") else {}
        for section, cannot in ((cluster, _CANNOT_CLUSTER), (user, _CANNOT_USER)):
            for name in cannot:
                if section.get(name):
                    raise self._error(name, "a token or a client certificate, directly", "a field we cannot follow")
        insecure = cluster.get("insecure-skip-tls-verify") is True
        if insecure and (cluster.get("certificate-authority") or cluster.get("certificate-authority-data")):
            raise self._error("insecure-skip-tls-verify", "it or a certificate-authority, as kubectl does", "both")
        scheme, host, port, prefix = self._server(self._text(cluster, "server", "the cluster"))
        return Credentials(
            host=host,
            port=port,
            path_prefix=prefix,
            tls=scheme == "https",
            ca_file=self._file(cluster, "certificate-authority"),
            ca_pem=self._inline(cluster, "certificate-authority-data"),
            certificate_file=self._file(user, "client-certificate"),
            key_file=self._file(user, "client-key"),
            certificate_pem=self._inline(user, "client-certificate-data"),
            key_pem=self._inline(user, "client-key-data"),
            token=str(user.get("token") or ""),
            token_file=self._file(user, "tokenFile"),
            server_name=str(cluster.get("tls-server-name") or ""),
            insecure=insecure,
        )

    def _context(self, name: str | None) -> dict[str, Any]:
        name = name or self._text(self._root, "current-context", "the root")
        return self._named("contexts", "context", name)

    def _parse(self, text: str) -> dict[str, Any]:
        try:
            root = json.loads(text)
        except ValueError:
            try:
                import yaml
            except ImportError as error:  # the one-file agent
                raise self._error(
                    "the file", "JSON (there is no PyYAML here to read anything else)", "no JSON"
                ) from error
            try:
                root = yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise self._error("the file", "JSON or YAML", str(error)) from error
        if not isinstance(root, dict):
            raise self._error("the file", "a mapping", type(root).__name__)
        return root

    def _named(self, listing: str, kind: str, name: str) -> dict[str, Any]:
        entries = self._root.get(listing)
        if not isinstance(entries, list):
            raise self._error(listing, "a list", type(entries).__name__)
        for entry in entries:
            if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(kind), dict):
                found: dict[str, Any] = entry[kind]
                return found
        names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
        raise self._error(listing, f"an entry named {name!r} with a {kind}", str(names))

    def _text(self, section: dict[str, Any], name: str, where: str) -> str:
        value = section.get(name)
        if not isinstance(value, str) or not value:
            raise self._error(f"{name} of {where}", "a text", repr(value))
        return value

    def _server(self, url: str) -> tuple[str, str, int, str]:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise self._error("server", "a URL", f"{url!r}: {error}") from error
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.query or parts.username:
            raise self._error("server", "http:// or https://, a host and maybe a port and a path", repr(url))
        return parts.scheme, parts.hostname, port or _DEFAULT_PORTS[parts.scheme], parts.path.rstrip("/")

    def _file(self, section: dict[str, Any], name: str) -> str:
        """Return a path; a relative one starts at the kubeconfig's folder."""
        value = section.get(name)
        if not value:
            return ""
        file = Path(self._path).parent / str(value)
        if not file.is_file():
            raise self._error(name, "a readable file", str(file))
        return str(file)

    def _inline(self, section: dict[str, Any], name: str) -> str:
        value = section.get(name)
        if not value:
            return ""
        try:
            return base64.b64decode(value, validate=True).decode("ascii")
        except (binascii.Error, ValueError, TypeError) as error:
            raise self._error(name, "base64 of PEM", f"{str(value)[:20]!r}...: {error}") from error

    def _error(self, field: str, expected: str, seen: str) -> CredentialsError:
        return CredentialsError(f"{self._path}: {field}: expected {expected}, saw {seen}")
