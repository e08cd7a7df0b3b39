"""
One connection driven by a plain blocking socket, for requests before there is an event loop.

An event loop takes longer to import than an API server takes to answer. The requests and their answers are then handed
to `Http1Transport`, which continues on the same connection. Its caller sends the same requests again and gets the
answers that are there. One deadline bounds every wait; `Http1Transport` waits for answers that have not come by then.
"""

from __future__ import annotations

import socket
import ssl
import time

from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.link import READ_BYTES, Link, no_connection
from inplace.common.kube.http.request import Request, Response, TransportError


class EarlyConnection:
    """Ask one server, one request at a time.

    Args:
        to: server address and credentials.
        context: TLS settings, None for plain HTTP.
        within_s: bounds everything that is asked here, together.

    Attributes:
        outcomes: what came of each request that is over.
        in_flight: the request that was sent and is not over.
        round_trip_s: what the network took to connect.
        waited_s: spent in waiting for the server's bytes, in all.
    """

    def __init__(self, to: Credentials, context: ssl.SSLContext | None, *, within_s: float) -> None:
        self._to = to
        self._deadline_s = time.monotonic() + within_s
        self.link = Link(to, context)
        self.socket: socket.socket | None = None
        self.outcomes: list[tuple[Request, Response | TransportError]] = []
        self.in_flight: Request | None = None
        self.round_trip_s = 0.0
        self.waited_s = 0.0

    def connect(self) -> None:
        """Connect, and send TLS' first words without waiting for an answer; the host has to be an IP address.

        Raises:
            TransportError: there is no connection; nothing was sent.
        """
        try:
            # Not create_connection: it looks every host up, and imports the IDNA codec for that.
            self.socket = socket.socket(socket.AF_INET6 if ":" in self._to.host else socket.AF_INET)
            self.socket.settimeout(self._left_s())
            began_s = time.monotonic()
            self.socket.connect((self._to.host, self._to.port))
            self.round_trip_s = time.monotonic() - began_s
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.link.handshake()
            self._write()
        except OSError as error:
            raise no_connection(self._to, error) from error

    def establish(self) -> None:
        """Wait for the rest of TLS' handshake.

        Raises:
            TransportError: there is no connection; nothing was sent.
        """
        try:
            while not self.link.is_established:
                self._read()
                self.link.handshake()
                self._write()
        except OSError as error:
            raise no_connection(self._to, error) from error

    def send(self, request: Request) -> None:
        """Send a request, after the rest of TLS' handshake.

        Raises:
            TransportError: nothing was sent. Once something was, a failure is the request's outcome.
        """
        identity = self._to.identity()
        self.establish()
        self.link.send(request, identity)
        self.in_flight = request
        try:
            self._write()
        except OSError as error:  # a deadline in the middle of a request too: nothing can follow half of one
            self._end(TransportError(f"the connection broke while sending: {error}"))
            self.close()

    def answer(self) -> Response | None:
        """Return the answer to the request in flight; None when it did not come in time, or none is coming."""
        if self.in_flight is None:
            return None
        outcome: Response | TransportError | None
        try:
            while (outcome := self.link.answer()) is None:
                self._read()
                self._write()
        except TimeoutError:
            return None
        except TransportError as error:
            outcome = error
        except OSError as error:
            outcome = TransportError(f"the connection broke: {error}")
        self._end(outcome)
        return outcome if isinstance(outcome, Response) else None

    def close(self) -> None:
        """Drop the connection."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def _end(self, outcome: Response | TransportError) -> None:
        assert self.in_flight is not None, "expected a request in flight"
        self.outcomes.append((self.in_flight, outcome))
        self.in_flight = None

    def _left_s(self) -> float:
        """Return the seconds until the deadline, never 0: that would mean a socket that does not block."""
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the head start's time is over")
        return left_s

    def _read(self) -> None:
        assert self.socket is not None, "expected a connection"
        self.socket.settimeout(self._left_s())
        began_s = time.monotonic()
        try:
            received = self.socket.recv(READ_BYTES)
        finally:
            self.waited_s += time.monotonic() - began_s
        self.link.receive(received)

    def _write(self) -> None:
        assert self.socket is not None, "expected a connection"
        if unsent := self.link.unsent():
            self.socket.settimeout(self._left_s())
            self.socket.sendall(unsent)
