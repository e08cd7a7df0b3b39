"""
One HTTP/1.1 connection that an event loop drives: a socket under a `Link`.

The loop's own streams are not used, because they cannot take over a TLS session that a blocking socket began.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final

from inplace.common.kube.http.credentials import Credentials, is_address
from inplace.common.kube.http.link import ANSWER_BYTES_MAX, READ_BYTES, Link, no_connection
from inplace.common.kube.http.proxy import Proxy
from inplace.common.kube.http.request import Request, Response, TransportError
from inplace.common.kube.http.wire import Head, Poll

CONNECT_S_MAX: Final = 10.0  # for one address, then the next one is tried; the kernel would take two minutes


class Connection:
    """A socket that the loop reads and writes, and its link.

    Args:
        read_bytes: what one look at the socket takes at most.
    """

    def __init__(self, sock: socket.socket, link: Link, *, read_bytes: int = READ_BYTES) -> None:
        self._socket = sock
        self._link = link
        self._read_bytes = read_bytes
        self._is_waiting = False  # the loop watches the socket; closing it then would leave the waiter for ever
        self.idle_since_s = 0.0

    @property
    def is_reusable(self) -> bool:
        """Say whether another exchange may begin here, as far as one can know."""
        return self._link.is_reusable

    def is_open(self) -> bool:
        """Say whether the peer has neither closed an idle connection nor said anything on it."""
        try:
            while True:
                self._link.receive(self._socket.recv(READ_BYTES))
                if not self._link.is_reusable:
                    return False
        except BlockingIOError:
            return True
        except (OSError, TransportError):
            return False

    async def handshake(self) -> None:
        """Establish the link."""
        self._link.handshake()
        try:
            while not self._link.is_established:
                await self._write()
                await self._read()
                self._link.handshake()
        finally:  # an alert too: it tells the server why
            with suppress(OSError):
                await self._write()

    async def send(self, request: Request, identity: Sequence[tuple[str, str]] = ()) -> None:
        """Write a whole request."""
        self._link.send(request, identity)
        try:
            await self._write()
        except OSError as error:
            raise TransportError(f"the connection broke while sending: {error}") from error

    async def answer(self, bytes_max: int = ANSWER_BYTES_MAX) -> Response:
        """Return the whole answer, of at most `bytes_max` bytes."""
        while (answer := self._link.answer(bytes_max)) is None:
            await self._more()
        return answer

    async def head(self) -> Head:
        """Return the answer's head."""
        part = await self._part()
        assert isinstance(part, Head), part
        return part

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield body bytes as they arrive, until the answer ends."""
        while isinstance(part := await self._part(), bytes):
            yield part

    def abort(self) -> None:
        """Drop the connection now, whatever it holds."""
        if self._is_waiting:
            with suppress(OSError):  # not connected any more
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the waiter, who closes
        else:
            self._socket.close()

    async def _part(self) -> Head | bytes | Poll:
        while (part := self._link.poll()) is Poll.NEED_BYTES:
            await self._more()
        return part

    async def _more(self) -> None:
        try:
            await self._read()
            await self._write()
        except OSError as error:
            raise TransportError(f"the connection broke: {error}") from error

    async def _read(self) -> None:
        self._is_waiting = True
        try:
            received = await asyncio.get_running_loop().sock_recv(self._socket, self._read_bytes)
        finally:
            self._is_waiting = False
        self._link.receive(received)

    async def _write(self) -> None:
        if unsent := self._link.unsent():
            self._is_waiting = True
            try:
                await asyncio.get_running_loop().sock_sendall(self._socket, unsent)
            finally:
                self._is_waiting = False


async def connect(to: Credentials, context: ssl.SSLContext | None, *, read_bytes: int = READ_BYTES) -> Connection:
    """Connect to the first of the server's addresses that answers, or through its proxy, and agree on TLS.

    Raises:
        TransportError: there is no connection; nothing was sent.
    """
    try:
        sock = await _connected(to.host, to.port) if to.proxy is None else await _tunnelled(to, to.proxy)
    except OSError as error:
        raise no_connection(to, error) from error
    connection = Connection(sock, Link(to, context), read_bytes=read_bytes)
    try:
        await connection.handshake()
    except OSError as error:
        connection.abort()
        raise no_connection(to, error) from error
    except BaseException:  # cancellation too
        connection.abort()
        raise
    return connection


async def _tunnelled(to: Credentials, proxy: Proxy) -> socket.socket:
    """Return a socket on which the server can be spoken to, through its proxy.

    Raises:
        OSError: there is no connection to the proxy.
        TransportError: the proxy refused.
    """
    sock = await _connected(proxy.host, proxy.port)
    if to.tls or proxy.scheme != "http":
        from inplace.common.kube.http.tunnel import open_tunnel

        try:
            await open_tunnel(sock, proxy, to.authority, to.host, to.port)
        except BaseException:  # cancellation too
            sock.close()
            raise
    return sock


async def _connected(host: str, port: int) -> socket.socket:
    """Return a socket connected to one of the host's addresses, tried in turn.

    Raises:
        OSError: what the last of them said.
    """
    loop = asyncio.get_running_loop()
    failed: OSError | None = None
    for family, kind, protocol, _, address in await _addresses(host, port):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(CONNECT_S_MAX):
                await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failed = error if str(error) else TimeoutError(f"no answer within {CONNECT_S_MAX:g} s")
        except BaseException:  # cancellation too
            sock.close()
            raise
        else:
            return sock
    raise failed or OSError(f"{host} has no address")


async def _addresses(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    """Look a name up in a thread; an IP address needs neither.

    Raises:
        OSError: no such name, or a text that no host can have for a name.
    """
    if is_address(host):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"expected the name of a host, saw {host[:80]!r}") from error
