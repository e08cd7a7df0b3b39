"""
One HTTP/1.1 client connection as bytes in and bytes out (h11), with no I/O of its own.

Whoever owns the socket drives it: `send` a request and write what comes back; then `poll`, and whenever that
says NEED_BYTES, `receive` what was read (b"" at the end of the stream). A plain blocking socket can do so
before an event loop exists, and hand the same object over to asyncio streams in the middle of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

import h11

from common.kube.http import Request, TransportError

HEAD_BYTES_MAX: Final = 64 * 1024  # of one answer's head; the API server's are some 500 bytes


class Head(NamedTuple):
    """The first part of an answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]


class Poll(Enum):
    """What `Http1Wire.poll` says when it has neither a head nor bytes."""

    NEED_BYTES = "need bytes"  # read from the socket, call `receive`, poll again
    END = "end"  # the answer is complete


class Http1Wire:
    """Turn requests into bytes and bytes into answers, one exchange at a time.

    Args:
        authority: the Host header.
        path_prefix: put in front of every request's path.
    """

    def __init__(self, authority: str, path_prefix: str = "") -> None:
        self._authority = authority
        self._path_prefix = path_prefix
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)

    @property
    def is_reusable(self) -> bool:
        """Say whether the exchange is over in a way that allows another on the same connection."""
        return self._connection.our_state is h11.DONE and self._connection.their_state is h11.DONE

    def send(self, request: Request, token: str) -> bytes:
        """Begin an exchange; return the bytes of the whole request, with a bearer token unless it is ""."""
        if self.is_reusable:
            self._connection.start_next_cycle()
        headers = [("host", self._authority), *request.headers.items()]
        if token:
            headers.append(("authorization", f"Bearer {token}"))
        if request.body:
            headers.append(("content-length", str(len(request.body))))
        connection = self._connection
        try:
            target = self._path_prefix + request.path
            head = connection.send(h11.Request(method=request.method, target=target, headers=headers)) or b""
            body = (connection.send(h11.Data(data=request.body)) or b"") if request.body else b""
            return head + body + (connection.send(h11.EndOfMessage()) or b"")
        except h11.LocalProtocolError as error:
            raise TransportError(f"cannot send {request.method} {request.path}: {error}", sent=False) from error

    def receive(self, received: bytes) -> None:
        """Take bytes from the socket, b"" at its end."""
        try:
            self._connection.receive_data(received)
        except h11.RemoteProtocolError as error:
            raise TransportError(f"expected HTTP/1.1, saw {error}") from error

    def poll(self) -> Head | bytes | Poll:
        """Return the next part of the answer.

        Raises:
            TransportError: the bytes are no HTTP/1.1 answer, or end too early (not our fault).
        """
        while True:
            try:
                event = self._connection.next_event()
            except h11.RemoteProtocolError as error:
                raise TransportError(f"expected an HTTP/1.1 answer, saw {error}") from error
            match event:
                case h11.NEED_DATA:
                    return Poll.NEED_BYTES
                case h11.Response(status_code=status, headers=headers):
                    return Head(status, {name.decode("latin-1"): value.decode("latin-1") for name, value in headers})
                case h11.Data(data=part):
                    return bytes(part)
                case h11.EndOfMessage():
                    return Poll.END
                case h11.InformationalResponse():
                    continue
                case _:
                    raise TransportError(f"expected an HTTP/1.1 answer, saw {type(event).__name__}")
