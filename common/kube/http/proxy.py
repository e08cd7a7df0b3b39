"""
Find the proxy in front of an API server: the kubeconfig's, or the environment's, as client-go takes them.

Source: golang.org/x/net/http/httpproxy (HTTPS_PROXY, HTTP_PROXY and NO_PROXY, the lower-case names first) and
k8s.io/client-go/tools/clientcmd (proxy-url). A proxy that is itself spoken to by TLS (https://) is refused by name.
"""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from urllib.parse import quote, unquote, urlsplit

from inplace.common.bare.record import record
from inplace.common.bare.typed import TYPE_CHECKING, Final
from inplace.common.kube.http.request import CredentialsError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PORTS: Final = {"http": 80, "socks5": 1080}


@record
class Proxy:
    """A proxy.

    Args:
        scheme: http, or socks5.
        host: name or IP literal, without brackets.
        username, password: "" for none.
        source: where it was set: a variable's name, or proxy-url.
    """

    scheme: str
    host: str
    port: int
    username: str
    password: str
    source: str

    def __str__(self) -> str:
        """Name the proxy without its password."""
        return f"{self.scheme}://{self._authority} ({self.source})"

    __repr__ = __str__

    @property
    def _authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Return the proxy's URL with its password."""
        secret = f"{quote(self.username, safe='')}:{quote(self.password, safe='')}@" if self.username else ""
        return f"{self.scheme}://{secret}{self._authority}"

    @property
    def authorization(self) -> str:
        """Return the Proxy-Authorization header, "" for none."""
        if not self.username:
            return ""
        return "Basic " + b64encode(f"{self.username}:{self.password}".encode()).decode("ascii")


def proxy_of_url(url: str, source: str) -> Proxy:
    """Read a proxy's URL; without a scheme it means http.

    Raises:
        CredentialsError: it is no URL of a proxy that we can speak to.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise CredentialsError(f"{source}: expected the URL of a proxy, saw one with {error}") from error
    scheme = "socks5" if parts.scheme == "socks5h" else parts.scheme  # in Go too, both let the proxy look the name up
    if scheme not in _PORTS or not parts.hostname:
        cure = "; let TLS go through the proxy, not to it" if scheme == "https" else ""
        where = f"{parts.scheme}://{parts.hostname or ''}"  # not the rest: it may hold a password
        raise CredentialsError(f"{source}: expected http://HOST:PORT or socks5://HOST:PORT, saw {where}{cure}")
    names = unquote(parts.username or ""), unquote(parts.password or "")
    return Proxy(scheme, parts.hostname, port or _PORTS[scheme], *names, source)


def proxy_of_environment(scheme: str, host: str, port: int, env: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that the environment wants for a server, None for a direct connection.

    Raises:
        CredentialsError: the variable holds no URL of a proxy that we can speak to.
    """
    for name in (f"{scheme}_proxy", f"{scheme}_PROXY".upper()):
        if url := env.get(name):
            no_proxy = env.get("no_proxy") or env.get("NO_PROXY") or ""
            return None if _is_direct(host.lower(), port, no_proxy) else proxy_of_url(url, name)
    return None


def _is_direct(host: str, port: int, no_proxy: str) -> bool:
    """Say whether NO_PROXY, or being on this machine, keeps a host from the proxy."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_names(entry.strip().lower(), host, address, port) for entry in no_proxy.split(","))


def _names(entry: str, host: str, address: _Address | None, port: int) -> bool:
    """Say whether an entry of NO_PROXY names a host: *, an address, a CIDR block, or a domain; maybe with a port."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, wanted_port = _split_port(entry)
    if not name or wanted_port not in ("", str(port)):
        return False
    if address is not None or _address(name) is not None:
        return address is not None and address == _address(name)
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _split_port(entry: str) -> tuple[str, str]:
    """Return an entry's host, without brackets, and its port, "" for none."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest.removeprefix(":")
    if entry.count(":") == 1:
        host, _, port = entry.partition(":")
        return host, port
    return entry, ""


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
