"""
HTTP/1.1 over sockets that an event loop drives, with TLS: the transport of agent, controller and CLI.

Each exchange has a connection for itself. A connection whose exchange ended in good order is kept for the next request,
so an agent that lists, announces and then watches needs only one. The transport never repeats a request: a lost answer
is a TransportError, and the caller decides. It bounds no number of requests at once either: its callers do, and a Lease
must not wait for them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from inplace.common.kube.clock import Clock, LoopClock
from inplace.common.kube.http.connection import Connection, connect
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.early_connection import EarlyConnection
from inplace.common.kube.http.link import ANSWER_BYTES_MAX, READ_BYTES
from inplace.common.kube.http.request import (
    CertificateError,
    CredentialsError,
    Request,
    Response,
    Stream,
    TransportError,
    TransportTimeoutError,
)
from inplace.common.kube.http.wire import Head

IDLE_CONNECTIONS_MAX: Final = 64  # the controller's 48 writes in flight, its reads, status writes and Lease
IDLE_S_MAX: Final = 60.0  # the API server closes idle connections after 90 s; reusing one just then loses a request
_UNAUTHORIZED: Final = 401

Renew = Callable[[bool], Awaitable[Credentials]]
"""Returns the credentials to use now; it is told whether the server rejected the last ones."""


class Http1Stream:
    """A streaming answer, see `common.kube.http.request.Stream`; it leaves its connection to its opener."""

    def __init__(self, connection: Connection, head: Head) -> None:
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
    """Carry requests to one API server, see `common.kube.http.request.Transport`.

    Args:
        credentials: server address and credentials.
        clock: bounds every wait.
        renew: is asked BEFORE each request for the credentials; None keeps the first ones.
        read_bytes: what one look at a socket takes at most.
        answer_bytes_max: of a whole answer; a larger one is TooLargeError.
        on_sent: called each time a request has been handed to the socket, BEFORE its answer is waited for.
        context: TLS settings when they are built already.
        ahead: requests and answers from before the loop existed; the same requests are not sent again.

    Raises:
        CredentialsError: a certificate or key cannot be loaded.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock | None = None,
        renew: Renew | None = None,
        read_bytes: int = READ_BYTES,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        on_sent: Callable[[Request], None] | None = None,
        context: ssl.SSLContext | None = None,
        ahead: EarlyConnection | None = None,
    ) -> None:
        self._credentials = credentials
        self._tls_files = credentials.tls_files()  # BEFORE they are read: a change meanwhile is seen at the next look
        self._context = context or credentials.ssl_context()
        self._clock = clock or LoopClock()
        self._renew = renew
        self._is_rejected = False  # the server did not accept who we were in the last request
        self._read_bytes = read_bytes
        self._answer_bytes_max = answer_bytes_max
        self._on_sent = on_sent
        self._idle: list[Connection] = []
        self._busy: dict[Connection, ssl.SSLContext | None] = {}  # with the settings that each was made with
        self._closed = False
        self._outcomes = ahead.outcomes if ahead else []
        self._in_flight: tuple[Request, Connection] | None = None
        if ahead:
            self._adopt(ahead)

    @property
    def host(self) -> str:
        """Return the API server's host and port, for metrics."""
        return self._credentials.authority

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request and return its whole answer, see Transport."""
        if (outcome := self._take_outcome(request)) is not None:
            if isinstance(outcome, TransportError):
                raise outcome
            return outcome
        await self._refresh()
        async with self._bound(request, timeout_s):
            connection = await self._send(request)
            try:
                answer = await connection.answer(self._answer_bytes_max)
            finally:
                self._release(connection)
        self._is_rejected = answer.status == _UNAUTHORIZED
        return answer

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Open a streaming answer, see Transport."""
        await self._refresh()
        async with self._bound(request, timeout_s):
            connection = await self._send(request)
            try:
                head = await connection.head()
            except BaseException:  # cancellation too: nobody else would close it
                self._release(connection)
                raise
        self._is_rejected = head.status == _UNAUTHORIZED
        try:
            yield Http1Stream(connection, head)
        finally:
            self._release(connection)

    async def close(self) -> None:
        """Close every connection; idempotent."""
        self._closed = True
        unclaimed = [self._in_flight[1]] if self._in_flight else []
        for connection in (*self._busy, *unclaimed):
            connection.abort()
        self._drop_idle()
        self._in_flight = None
        await asyncio.sleep(0)  # those who wait on an aborted socket see its end in the loop's next turn

    async def _refresh(self) -> None:
        """Take the credentials, CA and certificate as they are now; connections made with others are not used again.

        The request's timeout does not bound this: an exec plugin may ask its user to log in.

        Raises:
            TransportError: they cannot be read; nothing was sent.
        """
        is_rejected, self._is_rejected = self._is_rejected, False
        try:
            credentials = await self._renew(is_rejected) if self._renew else self._credentials
            files = credentials.tls_files()  # BEFORE they are read: a change meanwhile is seen at the next look
            if (credentials, files) != (self._credentials, self._tls_files):
                self._context = credentials.ssl_context()
                self._credentials, self._tls_files = credentials, files
                self._drop_idle()
        except CredentialsError as error:
            raise TransportError(str(error), sent=False) from error

    async def _send(self, request: Request) -> Connection:
        """Send a request, unless it is on its way, and return the connection on which its answer comes."""
        if self._closed:
            raise TransportError("the transport is closed", sent=False)
        context = self._context
        connection = self._claim(request)
        is_new = connection is None
        if connection is None:
            identity = self._credentials.identity()
            connection = self._reuse() or await self._connect()
        self._busy[connection] = context
        try:
            if is_new:
                await connection.send(request, identity)
            if self._on_sent is not None:
                self._on_sent(request)
        except BaseException:  # cancellation too: nobody else would close it
            self._release(connection)
            raise
        return connection

    async def _connect(self) -> Connection:
        try:
            return await connect(self._credentials, self._context, read_bytes=self._read_bytes)
        except CertificateError:
            self._tls_files = ()  # whatever the files' times say, they are read again before the next try
            raise

    def _adopt(self, ahead: EarlyConnection) -> None:
        """Go on with the connection that was used before there was a loop."""
        if ahead.socket is None:
            return
        ahead.socket.setblocking(False)
        connection = Connection(ahead.socket, ahead.link)
        if ahead.in_flight is not None:
            self._in_flight = ahead.in_flight, connection
        elif connection.is_reusable:
            self._keep(connection)
        else:
            connection.abort()

    def _take_outcome(self, request: Request) -> Response | TransportError | None:
        """Return what came of this very request before there was a loop, once."""
        if self._outcomes and self._outcomes[0][0] == request:
            return self._outcomes.pop(0)[1]
        return None

    def _claim(self, request: Request) -> Connection | None:
        """Return the connection on which this very request was sent before there was a loop, once."""
        if self._in_flight is None or (request.method, request.path) != (
            self._in_flight[0].method,
            self._in_flight[0].path,
        ):
            return None
        sent, connection = self._in_flight
        assert request == sent, f"expected the bytes that are on their way, {sent!r}, saw {request!r}"
        self._in_flight = None
        return connection

    def _reuse(self) -> Connection | None:
        """Return an idle connection that may still work."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open() and self._clock.monotonic_s() - connection.idle_since_s < IDLE_S_MAX:
                return connection
            connection.abort()
        return None

    def _release(self, connection: Connection) -> None:
        """Keep a connection whose exchange ended in good order, unless the settings have changed; drop any other."""
        if self._busy.pop(connection) is self._context and connection.is_reusable:
            self._keep(connection)
        else:
            connection.abort()

    def _keep(self, connection: Connection) -> None:
        if self._closed or len(self._idle) >= IDLE_CONNECTIONS_MAX:
            connection.abort()
            return
        connection.idle_since_s = now_s = self._clock.monotonic_s()
        self._idle.append(connection)
        while now_s - self._idle[0].idle_since_s >= IDLE_S_MAX:  # of a burst; the last one is used before the others
            self._idle.pop(0).abort()

    def _drop_idle(self) -> None:
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    @asynccontextmanager
    async def _bound(self, request: Request, timeout_s: float) -> AsyncIterator[None]:
        try:
            async with self._clock.timeout(timeout_s):
                yield
        except TimeoutError as error:
            what = f"{request.method} {request.path.partition('?')[0]}"
            raise TransportTimeoutError(f"no answer to {what} from {self.host} within {timeout_s:g} s") from error
