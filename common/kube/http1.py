"""
HTTP/1.1 over asyncio streams, with TLS: the agent's transport.

An exchange has a connection for itself. One that ended in good order is kept for the next request, so an agent
that lists, announces and then watches needs only one. Nothing is sent twice behind the caller's back: a lost
answer is a TransportError, and the caller decides.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from common.kube.clock import Clock, LoopClock
from common.kube.credentials import Credentials
from common.kube.http import (
    CertificateError,
    Request,
    Response,
    Stream,
    TransportError,
    TransportTimeoutError,
)
from common.kube.http1_wire import Head, Http1Wire, Poll

READ_BYTES: Final = 64 * 1024
RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024  # of one whole answer; a watch is a stream and has its own bound
IDLE_CONNECTIONS_MAX: Final = 2
IDLE_S_MAX: Final = 60.0  # the API server closes idle connections after 90 s; reusing one just then loses a request


class _Connection:
    """A socket and its wire."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: Credentials) -> None:
        self._reader = reader
        self._writer = writer
        self._wire = Http1Wire(to.authority, to.path_prefix)
        self.idle_since_s = 0.0

    @property
    def is_reusable(self) -> bool:
        """Say whether another exchange may begin here, as far as one can know."""
        return self._wire.is_reusable and self.is_open

    @property
    def is_open(self) -> bool:
        """Say whether the peer has not closed, as far as one can know."""
        return not (self._reader.at_eof() or self._writer.is_closing())

    async def send(self, request: Request, token: str) -> None:
        """Write a whole request."""
        try:
            self._writer.write(self._wire.send(request, token))
            await self._writer.drain()
        except OSError as error:
            raise TransportError(f"the connection broke while sending: {error}") from error

    async def head(self) -> Head:
        """Return the answer's head."""
        part = await self._part()
        assert isinstance(part, Head), part
        return part

    async def body(self) -> bytes:
        """Return the answer's whole body."""
        parts: list[bytes] = []
        length = 0
        async for part in self.chunks():
            parts.append(part)
            length += len(part)
            if length > RESPONSE_BYTES_MAX:
                raise TransportError(f"an answer passed {RESPONSE_BYTES_MAX} bytes")
        return b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield body bytes as they arrive, until the answer ends."""
        while isinstance(part := await self._part(), bytes):
            yield part

    def abort(self) -> None:
        """Drop the connection now, whatever it holds."""
        self._writer.transport.abort()

    async def _part(self) -> Head | bytes | Poll:
        try:
            while (part := self._wire.poll()) is Poll.NEED_BYTES:
                self._wire.receive(await self._reader.read(READ_BYTES))
        except OSError as error:
            raise TransportError(f"the connection broke: {error}") from error
        return part


class _Stream:
    """A streaming answer, see `common.kube.http.Stream`."""

    def __init__(self, connection: _Connection, head: Head) -> None:
        self._connection = connection
        self._head = head

    @property
    def status(self) -> int:
        """Return the HTTP status code."""
        return self._head.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the response headers."""
        return self._head.headers

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield body bytes as they arrive."""
        return self._connection.chunks()


class Http1Transport:
    """Carry requests to one API server, see `common.kube.http.Transport`.

    Args:
        credentials: where, and as whom.
        clock: bounds every wait.
        on_sent: called each time a request has been handed to the socket, BEFORE its answer is waited for.

    Raises:
        CredentialsError: a certificate or key cannot be loaded.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock | None = None,
        on_sent: Callable[[Request], None] | None = None,
    ) -> None:
        self._credentials = credentials
        self._ssl = credentials.ssl_context()
        self._clock = clock or LoopClock()
        self._on_sent = on_sent
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._closed = False

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request and return its whole answer, see Transport."""
        async with self._bound(request, timeout_s):
            connection, head = await self._open(request)
            try:
                return Response(head.status, head.headers, await connection.body())
            finally:
                self._release(connection)

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Open a streaming answer, see Transport."""
        async with self._bound(request, timeout_s):
            connection, head = await self._open(request)
        try:
            yield _Stream(connection, head)
        finally:
            self._release(connection)

    async def close(self) -> None:
        """Close every connection; idempotent."""
        self._closed = True
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next turn

    async def _open(self, request: Request) -> tuple[_Connection, Head]:
        """Send a request and return the connection it went over, with the answer's head."""
        if self._closed:
            raise TransportError("the transport is closed", sent=False)
        token = self._credentials.bearer_token()
        connection = self._reuse() or await self._connect()
        self._busy.add(connection)
        try:
            await connection.send(request, token)
            if self._on_sent is not None:
                self._on_sent(request)
            return connection, await connection.head()
        except BaseException:  # cancellation too: nobody else would close it
            self._release(connection)
            raise

    async def _connect(self) -> _Connection:
        to = self._credentials
        server_name = (to.server_name or to.host) if self._ssl else None
        try:
            reader, writer = await asyncio.open_connection(
                to.host, to.port, ssl=self._ssl, server_hostname=server_name, limit=READ_BYTES
            )
        except ssl.SSLCertVerificationError as error:
            raise CertificateError(f"cannot trust {to.authority}: {error.verify_message}", sent=False) from error
        except OSError as error:
            raise TransportError(f"cannot connect to {to.authority}: {error}", sent=False) from error
        return _Connection(reader, writer, to)

    def _reuse(self) -> _Connection | None:
        """Return an idle connection that may still work."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and self._clock.monotonic_s() - connection.idle_since_s < IDLE_S_MAX:
                return connection
            connection.abort()
        return None

    def _release(self, connection: _Connection) -> None:
        """Keep a connection whose exchange ended in good order; drop any other."""
        self._busy.discard(connection)
        if connection.is_reusable:
            self._keep(connection)
        else:
            connection.abort()

    def _keep(self, connection: _Connection) -> None:
        if self._closed or len(self._idle) >= IDLE_CONNECTIONS_MAX:
            connection.abort()
            return
        connection.idle_since_s = self._clock.monotonic_s()
        self._idle.append(connection)

    @asynccontextmanager
    async def _bound(self, request: Request, timeout_s: float) -> AsyncIterator[None]:
        try:
            async with self._clock.timeout(timeout_s):
                yield
        except TimeoutError as error:
            message = f"{request.method} {request.path.partition('?')[0]}: no answer within {timeout_s:g} s"
            raise TransportTimeoutError(message) from error
