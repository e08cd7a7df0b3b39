"""
Reach an API server through a proxy: HTTP's CONNECT, or SOCKS5.

Afterwards the socket carries bytes to the server and back, and TLS begins on it as on any other.
Source: RFC 9110, section 9.3.6 (CONNECT); RFC 1928 and RFC 1929 (SOCKS5, with a password).
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from inplace.common.kube.http.credentials import is_address
from inplace.common.kube.http.proxy import Proxy
from inplace.common.kube.http.request import TransportError

HEAD_BYTES_MAX: Final = 16 * 1024  # a proxy's answer to CONNECT is some 100 bytes; a page of HTML may come after it
_NAME_BYTES_MAX: Final = 255  # SOCKS5 has one byte for a length
_SOCKS_REFUSALS: Final = {
    1: "it gave no reason",
    2: "its rules do not allow it",
    3: "the network is unreachable",
    4: "the host is unreachable",
    5: "the connection was refused",
    6: "the time to live is over",
    7: "it does not know CONNECT",
    8: "it does not know this kind of address",
}


async def open_tunnel(sock: socket.socket, proxy: Proxy, authority: str, host: str, port: int) -> None:
    """Let a proxy connect a socket to a server.

    Raises:
        TransportError: the proxy refused, or speaks something else; nothing was sent to the server.
        OSError: the connection to the proxy broke.
    """
    if proxy.scheme == "http":
        await _connect(sock, proxy, authority)
    else:
        await _socks5(sock, proxy, host, port)


async def _connect(sock: socket.socket, proxy: Proxy, authority: str) -> None:
    lines = [f"CONNECT {authority} HTTP/1.1", f"host: {authority}"]
    if proxy.authorization:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, "\r\n".join((*lines, "\r\n")).encode("ascii"))
    head = b""
    while b"\r\n\r\n" not in head:  # nothing follows the head before we speak: TLS' client begins
        received = await loop.sock_recv(sock, HEAD_BYTES_MAX)
        head += received
        if not received or len(head) > HEAD_BYTES_MAX:
            raise _error(proxy, authority, f"expected an HTTP answer to CONNECT, saw {head[:60]!r}")
    status = head.partition(b"\r\n")[0].decode("latin-1").split(" ", 2)
    if len(status) < 2 or not status[0].startswith("HTTP/1."):
        raise _error(proxy, authority, f"expected an HTTP answer to CONNECT, saw {head[:60]!r}")
    if status[1] != "200":
        cure = "; put user and password into its URL" if status[1] == "407" else ""
        raise _error(proxy, authority, f"it answered {' '.join(status[1:])[:60]!r}{cure}")


async def _socks5(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    loop, name = asyncio.get_running_loop(), host.encode("idna" if not host.isascii() else "ascii")
    where = f"{host}:{port}"
    if len(name) > _NAME_BYTES_MAX:
        raise _error(proxy, where, f"expected a name of at most {_NAME_BYTES_MAX} bytes")
    password = 2 if proxy.username else 0
    await loop.sock_sendall(sock, bytes((5, 1, password)))
    if (answer := await _exactly(sock, 2, proxy, where)) != bytes((5, password)):
        cure = "put user and password into its URL" if answer == b"\x05\xff" else f"saw {answer!r}"
        raise _error(proxy, where, f"expected SOCKS5, without a password unless its URL has one; {cure}")
    if password:
        words = [word.encode()[:_NAME_BYTES_MAX] for word in (proxy.username, proxy.password)]
        await loop.sock_sendall(sock, b"\x01" + b"".join(bytes((len(word),)) + word for word in words))
        if (await _exactly(sock, 2, proxy, where))[1]:
            raise _error(proxy, where, "it does not accept the user and password of its URL")
    await loop.sock_sendall(sock, bytes((5, 1, 0, *_address(host, name))) + port.to_bytes(2, "big"))
    _, refusal, _, kind = await _exactly(sock, 4, proxy, where)
    if refusal:
        raise _error(proxy, where, _SOCKS_REFUSALS.get(refusal, f"it answered {refusal}"))
    length = {1: 4, 4: 16}.get(kind) or (await _exactly(sock, 1, proxy, where))[0]
    await _exactly(sock, length + 2, proxy, where)  # the address that the proxy connects from


def _address(host: str, name: bytes) -> bytes:
    """Return a host in SOCKS5's form; the proxy looks a name up."""
    if not is_address(host):
        return bytes((3, len(name))) + name
    is_ipv6 = ":" in host
    return bytes((4 if is_ipv6 else 1,)) + socket.inet_pton(socket.AF_INET6 if is_ipv6 else socket.AF_INET, host)


async def _exactly(sock: socket.socket, size: int, proxy: Proxy, where: str) -> bytes:
    received = b""
    while len(received) < size:
        more = await asyncio.get_running_loop().sock_recv(sock, size - len(received))
        if not more:
            raise _error(proxy, where, f"it closed the connection after {received!r}")
        received += more
    return received


def _error(proxy: Proxy, where: str, why: str) -> TransportError:
    return TransportError(f"cannot connect to {where} through the proxy {proxy}: {why}", sent=False)
