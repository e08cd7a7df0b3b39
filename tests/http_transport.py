"""A transport over aiohttp for tests: plain, TLS with a client certificate, or a bearer token.

Deliberately not the product's transport: a test of a server must not share bugs with the server's real clients.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from yarl import URL

from inplace.common.kube.http.request import Request, Response, Stream, TransportError, TransportTimeoutError


class AiohttpTransport:
    """Implements `common.kube.http.request.Transport`.

    Args:
        url: the server's address.
        token: sent as a bearer token.
        tls: trust and client certificate of an https address.
    """

    def __init__(self, url: str, *, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request and return its whole answer."""
        try:
            async with self._send(request, aiohttp.ClientTimeout(total=timeout_s)) as answer:
                return Response(answer.status, _lower(answer.headers), await answer.read())
        except TimeoutError as error:
            raise TransportTimeoutError(f"{request.method} {request.path}: no answer in {timeout_s} s") from error
        except aiohttp.ClientError as error:
            raise TransportError(f"{request.method} {request.path}: {error}") from error

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Open a streaming answer."""
        limits = aiohttp.ClientTimeout(total=None, connect=timeout_s)
        try:
            async with self._send(request, limits) as answer:
                try:
                    yield _Streaming(answer)
                finally:
                    if answer.connection is not None and answer.connection.transport is not None:
                        answer.connection.transport.abort()  # the server's end of TLS may come after the loop's end
        except aiohttp.ClientError as error:
            raise TransportError(f"{request.method} {request.path}: {error}") from error

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def _send(self, request: Request, limits: aiohttp.ClientTimeout) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            # Here and not in the constructor: a session belongs to the running event loop.
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls or True))
        return self._session.request(
            request.method,
            URL(self._url + request.path, encoded=True),
            headers={**self._headers, **request.headers},
            data=request.body or None,
            timeout=limits,
            skip_auto_headers=("content-type", "accept", "user-agent"),
        )


class _Streaming:
    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    @property
    def status(self) -> int:
        """Return the HTTP status code."""
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers, names in lower case."""
        return _lower(self._answer.headers)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield body bytes as they arrive."""
        async for chunk in self._answer.content.iter_any():
            yield chunk


def transport_for(kubeconfig: Path) -> AiohttpTransport:
    """Return a transport for the only cluster and user of a kubeconfig that names files."""
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    if "client-certificate" in user:
        tls.load_cert_chain(user["client-certificate"], user["client-key"])
    return AiohttpTransport(cluster["server"], token=user.get("token", ""), tls=tls)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
