"""
The HTTP seam: what agent and controller need of a transport.

Two transports implement it: HTTP/1.1 over sockets (`common.kube.http.http1`), and in-memory calls into the embedded API
server (`simulator.apiserver`). Code above the seam cannot tell them apart, so the same agent and controller run on a
cluster, over loopback and under virtual time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final, Protocol

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@record
class Request:
    """One HTTP request.

    Args:
        method: upper case.
        path: absolute path with its query string, already percent-encoded.
        headers: names in lower case. The transport adds host, authorization and content-length.
        body: whole body; empty for none.
    """

    method: str
    path: str
    headers: Mapping[str, str] = _NO_HEADERS
    body: bytes = b""


@record
class Response:
    """One whole HTTP answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream(Protocol):
    """An answer whose body is still arriving: a watch, or a log that is followed."""

    @property
    def status(self) -> int:
        """Return the HTTP status code."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the response headers, names in lower case."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield body bytes as they arrive, cut anywhere; end on a clean end.

        Raises:
            TransportError: the connection broke before the body was complete.
        """


class Transport(Protocol):
    """Carries requests to one API server, with its credentials; whoever made it closes it."""

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request and return its whole answer, whatever its status.

        Raises:
            TransportError: no answer (refused, reset, TLS failure, deadline of `timeout_s` passed).
        """

    def stream(self, request: Request, *, timeout_s: float) -> AbstractAsyncContextManager[Stream]:
        """Open a streaming answer; `timeout_s` bounds the time to its headers, not its life.

        Raises:
            TransportError: no answer within the bound.
        """


class TransportError(Exception):
    """No (complete) answer arrived. Whether the server acted on the request is unknown unless `sent` is False."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class TransportTimeoutError(TransportError):
    """The named deadline passed."""


class TooLargeError(TransportError):
    """The answer has more bytes than this client takes at once; ask for less."""


class CredentialsError(Exception):
    """Credentials, or a proxy, that cannot be used; the message names file and field, expected and seen."""


class CertificateError(TransportError):
    """The server's TLS certificate is not one we trust."""


class GarbledError(TransportError):
    """An answer has another form than expected, or a stream has broken lines of JSON: a proxy cut or replaced it."""
