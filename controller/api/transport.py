"""
Open the controller's HTTP to the API server, and count its requests by code, method and host.

It is the agent's transport, for large lists, a herd's events and a long life.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.kube.http.request import Request, Response, Stream, Transport, TransportError
from inplace.controller.api.credentials import Identity
from inplace.controller.metrics import Metrics

READ_BYTES: Final = 2**20  # 100 Pods' events; what came during one rest is rarely more. docs/adr/0025
ANSWER_BYTES_MAX: Final = 32 * 2**20  # 500 Pods are 5 MB; 500 of 1.5 MB, as anybody may make, would be all our memory
NO_ANSWER: Final = "<error>"  # client-go's label value


@asynccontextmanager
async def open_transport(identity: Identity) -> AsyncIterator[Http1Transport]:
    """Run the block with a transport whose credentials are renewed.

    Raises:
        CredentialsError: a certificate or key cannot be loaded.
    """
    transport = Http1Transport(
        identity.now, renew=identity.renew, read_bytes=READ_BYTES, answer_bytes_max=ANSWER_BYTES_MAX
    )
    try:
        yield transport
    finally:
        await transport.close()


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
