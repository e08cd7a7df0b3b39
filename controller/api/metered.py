"""Count every request to the API server, by code, method and host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from inplace.common.kube.http.request import Request, Response, Stream, Transport, TransportError
from inplace.controller.metrics import Metrics

NO_ANSWER = "<error>"  # client-go's label value


class MeteredTransport:
    """A transport that counts what goes through it."""

    def __init__(self, inner: Transport, metrics: Metrics) -> None:
        self._inner = inner
        self._requests = metrics.requests
        self._host = str(getattr(inner, "host", "in-memory"))

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request and count its answer."""
        try:
            response = await self._inner.request(request, timeout_s=timeout_s)
        except TransportError:
            self._count(NO_ANSWER, request)
            raise
        self._count(str(response.status), request)
        return response

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Open a stream and count its answer."""
        opened = False
        try:
            async with self._inner.stream(request, timeout_s=timeout_s) as stream:
                opened = True
                self._count(str(stream.status), request)
                yield stream
        except TransportError:
            if not opened:
                self._count(NO_ANSWER, request)
            raise

    def _count(self, code: str, request: Request) -> None:
        self._requests.labels(code, request.method, self._host).inc()
