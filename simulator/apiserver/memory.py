"""
Carry requests to an embedded API server by function call: no sockets, so virtual time works.

Guarantees: requests take at least one turn of the event loop and the given latency, as a network would; a client
that goes away closes its stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate

from inplace.common.kube.http.request import Request, Response, Stream, TransportTimeoutError
from inplace.simulator.apiserver.reads import StreamingResponse
from inplace.simulator.apiserver.server import ApiServer


class InMemoryTransport:
    """Implements `common.kube.http.request.Transport` for one client.

    Args:
        user: the client's user name.
        user_agent: sent when a request names none.
        latency_s: seconds that a request takes beside the server's own time, drawn per request.
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        user: str = "admin",
        user_agent: str = "in-memory",
        latency_s: Callable[[Request], float] | None = None,
    ) -> None:
        self._server = server
        self._user = user
        self._user_agent = user_agent
        self._latency_s = latency_s

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request and return its whole answer."""
        try:
            async with self._server.clock.timeout(timeout_s):
                answer = await self._send(request)
                if isinstance(answer, Response):
                    body = answer.body
                else:
                    body = b"".join([chunk async for chunk in answer.chunks()])
                date = formatdate(self._server.clock.wall_s(), usegmt=True)  # every HTTP server says it
                return Response(answer.status, {**answer.headers, "date": date}, body)
        except TimeoutError as error:
            raise TransportTimeoutError(f"no answer to {request.method} {request.path} within {timeout_s} s") from error

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Open a streaming answer."""
        try:
            async with self._server.clock.timeout(timeout_s):
                answer = await self._send(request)
        except TimeoutError as error:
            raise TransportTimeoutError(f"no answer to {request.method} {request.path} within {timeout_s} s") from error
        if isinstance(answer, Response):
            yield WholeStream(answer)
            return
        try:
            yield answer
        finally:
            answer.close()

    async def _send(self, request: Request) -> Response | StreamingResponse:
        if "user-agent" not in request.headers:
            headers = {**request.headers, "user-agent": self._user_agent}
            request = Request(request.method, request.path, headers, request.body)
        latency_s = self._latency_s(request) if self._latency_s is not None else 0.0
        if latency_s > 0:
            await self._server.clock.sleep(latency_s)
        else:
            await asyncio.sleep(0)  # let other tasks run, as a network call does
        return await self._server.handle(request, user=self._user)


class WholeStream:
    """A finished answer in the form of a stream, e.g. the 403 to a watch."""

    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.headers = response.headers
        self._body = response.body

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        if self._body:
            yield self._body
