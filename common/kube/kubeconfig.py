"""
Read kubeconfig files: JSON first, YAML (PyYAML, imported then) only when a file is not JSON.

Everything that kubectl would follow is followed here, or refused by name; nothing is dropped in silence. The agent
refuses a user whose credentials a program has to fetch (exec, auth-provider); `controller.api.credentials` asks it.
Source: k8s.io/client-go/tools/clientcmd (api/v1 types.go, client_config.go, loader.go, validation.go).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from inplace.common.kube.bounded_read import read_bounded
from inplace.common.kube.http.credentials import Credentials, environment_proxy
from inplace.common.kube.http.proxy import proxy_of_url
from inplace.common.kube.http.request import CredentialsError

KUBECONFIG_BYTES_MAX: Final = 16 * 2**20  # thousands of clusters with their certificates
FETCHED: Final = ("exec", "auth-provider")  # credentials that a program has to fetch
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_HEADER_NAME: Final = "!#$&'*+-.^_`|~"  # beside letters and digits; of a header's name, RFC 9110, but without %


def read_kubeconfig(path: str) -> Credentials:
    """Return the credentials of the current context.

    Raises:
        CredentialsError: the file is at fault, or a program would have to fetch them; the message says where.
    """
    return Kubeconfig(path).access().credentials()


def is_there(path: str) -> bool:
    """Say whether a kubeconfig, or one of several as in $KUBECONFIG, exists."""
    return any(Path(part).expanduser().exists() for part in path.split(os.pathsep) if part)


class Kubeconfig:
    """One file, or several as $KUBECONFIG has them: the first one that has a name wins; missing ones are left out.

    Args:
        path: of the file, or of several with `:` between them.
        env: where proxies are looked up.

    Raises:
        CredentialsError: there is none, one cannot be read, or is no mapping.
    """

    def __init__(self, path: str, env: Mapping[str, str] = os.environ) -> None:
        self._path, self._env = path, env
        files = [Path(part).expanduser() for part in path.split(os.pathsep) if part]
        found = [file for file in files if file.exists()] if len(files) > 1 else files
        if not found:
            raise CredentialsError(f"KUBECONFIG: expected a readable file, saw {path!r}")
        self._roots = [(file, _root(file)) for file in found]

    @property
    def contexts(self) -> list[str]:
        """Return the names of the contexts."""
        return [str(entry.get("name")) for _, entry in self._entries("contexts")]

    @property
    def current(self) -> str:
        """Return the name of the current context, "" for none."""
        return next((str(root["current-context"]) for _, root in self._roots if root.get("current-context")), "")

    def namespace(self, context: str | None = None) -> str:
        """Return the namespace that a context prefers, "" when it names none.

        Raises:
            CredentialsError: there is no such context.
        """
        return str(self._context(context).values.get("namespace") or "")

    def access(self, context: str | None = None) -> Access:
        """Return a context's cluster and user; None is the current one.

        Raises:
            CredentialsError: one of them is not there.
        """
        chosen = self._context(context)
        cluster = self._named("clusters", "cluster", chosen.text("cluster"))
        user = Section(chosen.file, "users", {})
        if chosen.values.get("user"):
            user = self._named("users", "user", chosen.text("user"))
        return Access(cluster, user, self._env)

    def _context(self, name: str | None) -> Section:
        name = name or self.current
        if not name:
            raise _error(self._path, "current-context", "the name of a context", "none")
        return self._named("contexts", "context", name)

    def _named(self, listing: str, kind: str, name: str) -> Section:
        for file, entry in self._entries(listing):
            if entry.get("name") == name and isinstance(entry.get(kind), dict):
                return Section(file, f"{listing}[{name}].{kind}", entry[kind])
        names = [entry.get("name") for _, entry in self._entries(listing)]
        raise _error(self._path, listing, f"an entry named {name!r} with a {kind}", str(names))

    def _entries(self, listing: str) -> Iterator[tuple[Path, dict[str, Any]]]:
        for file, root in self._roots:
            entries = root.get(listing)
            if not isinstance(entries, list | None):
                raise _error(file, listing, "a list", type(entries).__name__)
            yield from ((file, entry) for entry in entries or () if isinstance(entry, dict))


class Section:
    """A cluster, a user or a context, and the file that it came from.

    Args:
        where: its place in the file, for messages.
        values: what it says.
    """

    def __init__(self, file: Path, where: str, values: dict[str, Any]) -> None:
        self.file, self.where, self.values = file, where, values

    def text(self, name: str) -> str:
        """Return a field's text.

        Raises:
            CredentialsError: it is none, or empty.
        """
        value = self.values.get(name)
        if not isinstance(value, str) or not value:
            raise self.error(name, "a text", repr(value))
        return value

    def texts(self, name: str) -> list[str]:
        """Return a field's list of texts, empty for none.

        Raises:
            CredentialsError: it is something else.
        """
        value = self.values.get(name) or []
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self.error(name, "a list of texts", repr(value))
        return value

    def path(self, name: str) -> str:
        """Return the path of a file, "" for none; a relative one starts at the kubeconfig's folder.

        Raises:
            CredentialsError: there is no such file.
        """
        value = self.values.get(name)
        if not value:
            return ""
        file = self.file.parent / str(value)
        if not file.is_file():
            raise self.error(name, "a readable file", str(file))
        return str(file)

    def inline(self, name: str) -> str:
        """Return the PEM that a field holds in base64, "" for none.

        Raises:
            CredentialsError: it is no base64.
        """
        value = self.values.get(name)
        if not value:
            return ""
        try:
            return base64.b64decode(value, validate=True).decode("ascii")
        except (binascii.Error, ValueError, TypeError) as error:
            raise self.error(name, "base64 of PEM", f"{str(value)[:20]!r}...: {error}") from error

    def error(self, field: str, expected: str, seen: str) -> CredentialsError:
        """Return an error about a field of this section."""
        return _error(self.file, f"{self.where}.{field}", expected, seen)


class Access:
    """A cluster and a user of it.

    Args:
        env: where proxies are looked up.
    """

    def __init__(self, cluster: Section, user: Section, env: Mapping[str, str]) -> None:
        self.cluster, self.user, self._env = cluster, user, env

    @property
    def fetched_by(self) -> str:
        """Return which field of the user names a program that fetches its credentials, "" for none."""
        return next((name for name in FETCHED if self.user.values.get(name)), "")

    def credentials(self) -> Credentials:
        """Put cluster and user together.

        Raises:
            CredentialsError: a field is at fault, or a program would have to fetch them.
        """
        if self.fetched_by:
            raise self.user.error(self.fetched_by, "a token or a client certificate, directly", "a program to ask")
        user = self.user
        return self.credentials_with(
            certificate_file=user.path("client-certificate"),
            key_file=user.path("client-key"),
            certificate_pem=user.inline("client-certificate-data"),
            key_pem=user.inline("client-key-data"),
            token=str(user.values.get("token") or ""),
            token_file=user.path("tokenFile"),
            basic=self._basic(),
        )

    def credentials_with(self, **secrets: str) -> Credentials:
        """Put the cluster together with secrets of the user, whatever its own are.

        Raises:
            CredentialsError: a field is at fault.
        """
        cluster = self.cluster
        insecure = cluster.values.get("insecure-skip-tls-verify") is True
        if insecure and (
            cluster.values.get("certificate-authority") or cluster.values.get("certificate-authority-data")
        ):
            raise cluster.error("insecure-skip-tls-verify", "it or a certificate-authority, as kubectl does", "both")
        scheme, host, port, prefix = _server(cluster)
        url = cluster.values.get("proxy-url")
        return Credentials(
            host=host,
            port=port,
            path_prefix=prefix,
            tls=scheme == "https",
            ca_file=cluster.path("certificate-authority"),
            ca_pem=cluster.inline("certificate-authority-data"),
            impersonate=_impersonation(self.user),
            server_name=str(cluster.values.get("tls-server-name") or ""),
            insecure=insecure,
            proxy=proxy_of_url(cluster.text("proxy-url"), f"{cluster.file}: {cluster.where}.proxy-url")
            if url
            else environment_proxy(scheme, host, port, self._env),
            **secrets,
        )

    def _basic(self) -> str:
        values = self.user.values
        if not (values.get("username") or values.get("password")):
            return ""
        if values.get("token") or values.get("tokenFile"):
            raise self.user.error("username", "a password or a token, as kubectl does", "both")
        return f"{self.user.text('username')}:{values.get('password') or ''}"


def _impersonation(user: Section) -> tuple[tuple[str, str], ...]:
    """Return the headers that ask for somebody else's rights; source: client-go's transport/round_trippers.go."""
    uid, groups, extra = user.values.get("as-uid"), user.texts("as-groups"), user.values.get("as-user-extra") or {}
    if not user.values.get("as"):
        if uid or groups or extra:
            raise user.error("as", "a user to impersonate, as kubectl does", "as-uid, as-groups or as-user-extra alone")
        return ()
    headers = [("impersonate-user", user.text("as"))]
    if uid:
        headers.append(("impersonate-uid", user.text("as-uid")))
    headers += [("impersonate-group", group) for group in groups]
    if not isinstance(extra, dict):
        raise user.error("as-user-extra", "a mapping of names to lists of texts", repr(extra))
    for name in extra:
        values = Section(user.file, f"{user.where}.as-user-extra", extra).texts(name)
        headers += [(f"impersonate-extra-{quote(str(name), safe=_HEADER_NAME)}", value) for value in values]
    for name, value in headers:
        if not value.isascii() or not value.isprintable():
            raise user.error("as", "printable ASCII", f"{name} {value!r}")
    return tuple(headers)


def _server(cluster: Section) -> tuple[str, str, int, str]:
    """Return scheme, host, port and path of the server's URL."""
    url = cluster.text("server")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise cluster.error("server", "a URL", f"{url!r}: {error}") from error
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.query or parts.username:
        raise cluster.error("server", "http:// or https://, a host and maybe a port and a path", repr(url))
    return parts.scheme, parts.hostname, port or _DEFAULT_PORTS[parts.scheme], parts.path.rstrip("/")


def _root(file: Path) -> dict[str, Any]:
    """Read one file."""
    try:
        text = read_bounded(str(file), KUBECONFIG_BYTES_MAX).decode()
    except (OSError, ValueError) as error:
        raise CredentialsError(f"KUBECONFIG: expected a readable file, saw {str(file)!r}: {error}") from error
    try:
        root = json.loads(text)
        json.dumps(root, ensure_ascii=False).encode()  # an escape may stand for half a character
    except RecursionError as error:
        raise _error(file, "the file", "JSON or YAML", "values nested too deep") from error
    except UnicodeEncodeError as error:
        raise _error(file, "the file", "whole characters", "half of one") from error
    except ValueError:
        root = _yaml(file, text)
    if not isinstance(root, dict):
        raise _error(file, "the file", "a mapping with clusters, contexts and users", repr(root)[:40])
    return root


def _yaml(file: Path, text: str) -> Any:
    import yaml  # not on the start path: no file in a Pod is YAML

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _error(file, "the file", "JSON or YAML", " ".join(str(error).split())) from error


def _error(file: Path | str, field: str, expected: str, seen: str) -> CredentialsError:
    return CredentialsError(f"{file}: {field}: expected {expected}, saw {seen}")
