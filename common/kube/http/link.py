"""
One connection to an API server as bytes in and bytes out: HTTP/1.1, inside TLS if the server uses it.

No I/O here: a blocking socket (`common.kube.http.early_connection`) or an event loop (`common.kube.http.http1`) writes
what `unsent` returns, reads, and calls `receive`. All state is in here, so the loop can continue what the socket began.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence

from inplace.common.bare.typed import Final
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.request import (
    CertificateError,
    GarbledError,
    Request,
    Response,
    TooLargeError,
    TransportError,
)
from inplace.common.kube.http.tls import TlsSession
from inplace.common.kube.http.wire import Head, Http1Wire, Poll

READ_BYTES: Final = 16 * 1024  # what one TLS record holds at most
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024  # of one whole answer; a watch is a stream and has its own bound
_GZIP: Final = 31  # zlib's wbits for a gzip header and trailer


class Link:
    """TLS (unless `context` is None) and HTTP/1.1 to the server that `to` names."""

    def __init__(self, to: Credentials, context: ssl.SSLContext | None) -> None:
        self._wire = Http1Wire(to.authority, to.url_prefix)
        self._tls = TlsSession(context, to.server_name or to.host) if context else None
        self._plain = bytearray()  # unsent, when there is no TLS
        self._head: Head | None = None  # of an answer that is still arriving
        self._body: list[bytes] = []
        self._body_bytes = 0

    @property
    def is_established(self) -> bool:
        """Say whether a request may be sent."""
        return self._tls is None or self._tls.is_established

    @property
    def is_reusable(self) -> bool:
        """Say whether no exchange is under way and another may begin."""
        return self._wire.is_reusable

    def handshake(self) -> None:
        """Go on with TLS' handshake; see `TlsSession.handshake`."""
        if self._tls is not None:
            self._tls.handshake()

    def unsent(self) -> bytes:
        """Return what has to be written to the socket now."""
        if self._tls is not None:
            return self._tls.unsent()
        plain = bytes(self._plain)
        self._plain.clear()
        return plain

    def send(self, request: Request, identity: Sequence[tuple[str, str]] = ()) -> None:
        """Begin an exchange: put a whole request among the unsent bytes."""
        sent = self._wire.send(request, identity)
        if self._tls is not None:
            self._tls.encrypt(sent)
        else:
            self._plain += sent

    def receive(self, received: bytes) -> None:
        """Take bytes from the socket, b"" at its end; before `is_established` they are the handshake's.

        Raises:
            TransportError: they are no HTTP/1.1.
            ssl.SSLError: they are not this session's.
        """
        if self._tls is None:
            self._wire.receive(received)
            return
        self._tls.receive(received)
        if not self._tls.is_established:
            return
        while (plain := self._tls.decrypt()) is not None:
            self._wire.receive(plain)
            if not plain:
                return

    def poll(self) -> Head | bytes | Poll:
        """Return the next part of the answer; see `Http1Wire.poll`."""
        return self._wire.poll()

    def answer(self, bytes_max: int = ANSWER_BYTES_MAX) -> Response | None:
        """Return the whole answer, None while more bytes have to be received; a gzip body is decompressed.

        Raises:
            TransportError: they are no HTTP/1.1 answer.
            TooLargeError: they are more than `bytes_max`, or would be.
        """
        while (part := self._wire.poll()) is not Poll.NEED_BYTES:
            if isinstance(part, Head):
                self._head, self._body, self._body_bytes = part, [], 0
            elif isinstance(part, bytes):
                self._body.append(part)
                self._body_bytes += len(part)
                if self._body_bytes > bytes_max:
                    raise _too_large(bytes_max)
            else:
                assert self._head is not None, part
                body = b"".join(self._body)
                if body and self._head.headers.get("content-encoding") == "gzip":
                    body = _decompressed(body, bytes_max)
                return Response(self._head.status, self._head.headers, body)
        return None


def no_connection(to: Credentials, error: OSError) -> TransportError:
    """Say why there is no connection to `to`; nothing was sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        expected = "a certificate for it, signed by the certificate authority that we were given"
        return CertificateError(
            f"cannot trust {to.authority}: expected {expected}, saw: {error.verify_message}", sent=False
        )
    why = os.strerror(error.errno) if isinstance(error, ConnectionError) and error.errno else str(error)
    way = f" through the proxy {to.proxy}" if to.proxy else ""
    return TransportError(f"cannot connect to {to.authority}{way}: {why}", sent=False)


def _decompressed(body: bytes, bytes_max: int) -> bytes:
    """Return what a gzip body holds.

    Raises:
        GarbledError: it is none, or not all of one.
        TooLargeError: it holds more than `bytes_max`; not more of it was decompressed.
    """
    import zlib  # the agent asks for no gzip

    gzip = zlib.decompressobj(_GZIP)
    try:
        whole = gzip.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise GarbledError(f"expected a gzip body, saw {error}") from error
    if len(whole) > bytes_max:
        raise _too_large(bytes_max)
    if not gzip.eof:
        raise GarbledError("expected a gzip body, saw a part of one")
    return whole


def _too_large(bytes_max: int) -> TooLargeError:
    return TooLargeError(f"expected an answer of at most {bytes_max} bytes, saw more; ask for less")
