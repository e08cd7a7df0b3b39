"""
The HTTP seam over one aiohttp session; streams have connections of their own.

Guarantees: every request has a bound. A refused or unreachable server, an untrusted certificate and expired credentials
give different messages. After a 401 the credentials are read again before the next request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp

from inplace.common.kube.http.request import (
    CertificateError,
    CredentialsError,
    Request,
    Response,
    Stream,
    TooLargeError,
    TransportError,
    TransportTimeoutError,
)
from inplace.controller.api.credentials import Identity
from inplace.controller.api.streams import open_stream

CONNECT_TIMEOUT_S = 10.0
CONNECTIONS_MAX = 64  # 50 parallel writes, four watches, leases and Events
READ_BYTES = 2**20  # lists are large; fewer, larger reads
ANSWER_BYTES_MAX = 32 * 2**20  # 500 Pods are 5 MB, and 500 of 1.5 MB, which anybody may make, would be all our memory
_UNAUTHORIZED = 401


class AiohttpTransport:
    """Implements `common.kube.http.request.Transport`; open it with `async with`."""

    def __init__(self, credentials: Identity) -> None:
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._tls_version: object = None  # of the session
        self._rejected = False

    @property
    def host(self) -> str:
        """Return the API server's host, for metrics."""
        return self._credentials.host.partition("://")[2]

    async def __aenter__(self) -> AiohttpTransport:
        self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request and return its whole answer."""
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, CONNECT_TIMEOUT_S))
        async with self._sent(request, timeout, timeout_s) as response:
            return Response(response.status, _lower(response.headers), await _body(response))

    def stream(self, request: Request, *, timeout_s: float) -> AbstractAsyncContextManager[Stream]:
        """Open a streaming answer."""
        return self._stream(request, timeout_s)

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def _stream(self, request: Request, timeout_s: float) -> AsyncIterator[Stream]:
        await self._ready_session()
        try:
            async with open_stream(self._credentials, request, timeout_s=timeout_s) as stream:
                self._rejected = stream.status == _UNAUTHORIZED
                yield stream
        except TimeoutError as error:
            raise self._no_answer(request, timeout_s) from error
        except CredentialsError as error:
            raise TransportError(str(error), sent=False) from error

    @asynccontextmanager
    async def _sent(
        self, request: Request, timeout: aiohttp.ClientTimeout, timeout_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and run the block with its answer; every way to fail inside it has its name."""
        session = await self._ready_session()
        to = self._credentials.now
        headers = [*request.headers.items(), *to.identity()]
        try:
            async with asyncio.timeout(timeout_s):
                response = await session.request(
                    request.method,
                    self._credentials.host + request.path,
                    headers=headers,
                    data=request.body or None,
                    timeout=timeout,
                    proxy=to.proxy.url if to.proxy else None,
                    allow_redirects=False,  # our credentials are for the API server alone
                    server_hostname=to.server_name or None,
                )
            async with response:
                self._rejected = response.status == _UNAUTHORIZED
                yield response
        except TimeoutError as error:
            raise self._no_answer(request, timeout_s) from error
        except aiohttp.ClientConnectorCertificateError as error:
            self._tls_version = None  # whatever the files' times say, they are read again before the next request
            raise CertificateError(
                f"the certificate of {self.host} was not signed by the certificate authority we were given: "
                f"{error.certificate_error}",
                sent=False,
            ) from error
        except (aiohttp.ClientConnectorError, ssl.SSLError) as error:
            raise TransportError(f"cannot connect to {self.host}: {error}", sent=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"the connection to {self.host} broke: {error!r}") from error

    def _no_answer(self, request: Request, timeout_s: float) -> TransportTimeoutError:
        return TransportTimeoutError(
            f"no answer to {request.method} {request.path} from {self.host} within {timeout_s:g} s"
        )

    async def _ready_session(self) -> aiohttp.ClientSession:
        """Return the session, with fresh credentials; a new CA or client certificate needs a new one."""
        try:
            rejected, self._rejected = self._rejected, False
            await self._credentials.refresh(rejected=rejected)
            if self._session is None or self._tls_version != self._credentials.tls_version:
                await self.close()
                self._open()
        except CredentialsError as error:
            raise TransportError(str(error), sent=False) from error
        assert self._session is not None
        return self._session

    def _open(self) -> None:
        self._tls_version = self._credentials.tls_version  # BEFORE the files are read
        to = self._credentials.now
        if to.proxy is not None and to.proxy.scheme != "http":
            raise CredentialsError(f"expected an http:// proxy for this program, saw {to.proxy}")
        context = to.ssl_context()
        connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX, ssl=True if context is None else context)
        # raise_for_status stays off: an error is an answer.
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=READ_BYTES, auto_decompress=True)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Read a whole answer, but not more than `ANSWER_BYTES_MAX`."""
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > ANSWER_BYTES_MAX:
            raise TooLargeError(f"expected an answer of at most {ANSWER_BYTES_MAX} bytes, saw more; ask for less")
        chunks.append(chunk)
    return b"".join(chunks)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
