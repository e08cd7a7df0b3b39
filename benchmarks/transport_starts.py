"""Ways to carry the requests of an agent's start; the requests are the agent's own."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Self

from benchmarks.start import Start
from benchmarks.upstream_client import ANSWER_S_MAX, Http2Client
from inplace.agent.config import AgentConfig
from inplace.agent.jobset_events import JobSetEvents, Seen
from inplace.agent.jobset_requests import announcement_request, list_request, watch_request
from inplace.common.kube.credentials import Credentials
from inplace.common.kube.http import Request
from inplace.common.kube.http1_link import READ_BYTES, Link
from inplace.common.kube.http1_wire import Head, Poll


class Http1Client:
    """One HTTP/1.1 connection over TLS, driven by a blocking socket."""

    def __init__(self, to: Credentials, context: ssl.SSLContext) -> None:
        self._identity = to.identity()
        self._link = Link(to, context)
        self._socket = socket.create_connection((to.host, to.port), timeout=ANSWER_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link.handshake()
        while not self._link.is_established:
            self._exchange()
            self._link.handshake()

    def fileno(self) -> int:
        """Return the socket's number, for selectors."""
        return self._socket.fileno()

    def send(self, request: Request) -> None:
        """Send a request."""
        self._link.send(request, self._identity)
        self._socket.sendall(self._link.unsent())

    def answer(self) -> bytes:
        """Return the whole body of an answer, which must be a 200."""
        while (answer := self._link.answer()) is None:
            self._exchange()
        assert answer.status == 200, f"expected 200, saw {answer.status}: {answer.body[:200]!r}"
        return answer.body

    def first_line(self) -> bytes:
        """Return the first line of an answer that goes on."""
        body = b""
        while b"\n" not in body:
            match self._link.poll():
                case Head(status=status):
                    assert status == 200, f"expected 200, saw {status}"
                case Poll():
                    self._exchange()
                case part:
                    body += part
        return body.partition(b"\n")[0]

    def receive(self) -> tuple[int, int]:
        """Read what arrived of an answer that goes on; return its bytes on the wire and those of its body."""
        received = self._socket.recv(READ_BYTES)
        assert received, "the server closed the connection"
        self._link.receive(received)
        body = 0
        while (part := self._link.poll()) is not Poll.NEED_BYTES:
            assert part is not Poll.END, "the server ended the answer"
            body += len(part) if isinstance(part, bytes) else 0
        return len(received), body

    def close(self) -> None:
        """Drop the connection."""
        self._socket.close()

    def _exchange(self) -> None:
        if unsent := self._link.unsent():
            self._socket.sendall(unsent)
        self._link.receive(self._socket.recv(READ_BYTES))


def config_of(start: Start) -> AgentConfig:
    """Return the settings of the agent that makes this start; the group is at epoch 1."""
    return AgentConfig(start.namespace, start.pod, start.jobset, previous_epoch=1)


@dataclass(slots=True)
class TwoConnections:
    """A watch that begins with the JobSet as it is, and beside it a patch: two requests, two handshakes."""

    watching: Http1Client
    patching: Http1Client

    @classmethod
    def begin(cls, start: Start) -> Self:
        """Make the start; return when the announcement is stored."""
        config = config_of(start)
        watching = Http1Client(start.credentials, start.tls)
        watching.send(watch_request(config, as_table=True, resource_version="0", from_state=False, jitter=0.5))
        patching = Http1Client(start.credentials, start.tls)
        seen = JobSetEvents().read_line(watching.first_line())
        assert isinstance(seen, Seen), f"expected the JobSet, saw {seen!r}"
        patching.send(announcement_request(config, int(seen.status["syncedEpoch"]) + 1))
        patching.answer()
        return cls(watching, patching)

    def close(self) -> None:
        """Drop both connections."""
        self.watching.close()
        self.patching.close()


@dataclass(slots=True)
class OneConnection:
    """A list, a patch and a watch on one keep-alive connection: three requests, one handshake."""

    client: Http1Client

    @classmethod
    def begin(cls, start: Start) -> Self:
        """Make the start; return when the announcement is stored and the watch is asked for."""
        config = config_of(start)
        client = Http1Client(start.credentials, start.tls)
        client.send(list_request(config, as_table=True, consistent=False))
        (seen,), version = JobSetEvents().read_list(client.answer())
        client.send(announcement_request(config, int(seen.status["syncedEpoch"]) + 1))
        client.answer()
        client.send(watch_request(config, as_table=True, resource_version=version, from_state=True, jitter=0.5))
        return cls(client)

    def close(self) -> None:
        """Drop the connection."""
        self.client.close()


@dataclass(slots=True)
class OneHttp2Connection:
    """A watch and a patch as two streams of one HTTP/2 connection: two requests, one handshake."""

    client: Http2Client

    @classmethod
    def begin(cls, start: Start) -> Self:
        """Make the start; return when the announcement is stored."""
        config = config_of(start)
        client = Http2Client(start.credentials, start.http2)
        watch = watch_request(config, as_table=True, resource_version="0", from_state=False, jitter=0.5)
        watching = client.send(watch.method, watch.path, dict(watch.headers))
        seen = JobSetEvents().read_line(client.first_line(watching))
        assert isinstance(seen, Seen), f"expected the JobSet, saw {seen!r}"
        patch = announcement_request(config, int(seen.status["syncedEpoch"]) + 1)
        client.answer(client.send(patch.method, patch.path, dict(patch.headers), patch.body))
        return cls(client)

    def close(self) -> None:
        """Drop the connection."""
        self.client.close()
