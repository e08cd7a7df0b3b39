"""
A client that sends the requests of upstream's agent: the reference for server CPU.

Upstream's in-place-restart agent (a Go program on controller-runtime) makes four requests per start over one HTTP/2
connection: it discovers the API (/api and /apis), watches its JobSet as whole objects, and writes its annotation by
server-side apply. The server does not see in which language they were made. Source: kubernetes-sigs/jobset
cmd/in-place-restart-agent/main.go; k8s.io/client-go/discovery.
"""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Self

import h2.connection
import h2.events

from benchmarks.start import Start
from inplace.common.kube.credentials import Credentials
from inplace.common.wire import API_VERSION, ATTEMPT

ANSWER_S_MAX = 30.0
READ_BYTES = 64 * 1024
_DISCOVERY = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


class Http2Client:
    """One HTTP/2 connection driven by a blocking socket."""

    def __init__(self, to: Credentials, context: ssl.SSLContext) -> None:
        self._to = to
        raw = socket.create_connection((to.host, to.port), timeout=ANSWER_S_MAX)
        self._socket = context.wrap_socket(raw, server_hostname=to.server_name or to.host)
        assert self._socket.selected_alpn_protocol() == "h2", "expected a server that speaks HTTP/2"
        self._connection = h2.connection.H2Connection()
        self._connection.initiate_connection()
        self._bodies: dict[int, bytearray] = {}
        self._ended: set[int] = set()
        self._flush()

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> int:
        """Send a request; return the number of its stream."""
        stream = self._connection.get_next_available_stream_id()
        pseudo = {":method": method, ":scheme": "https", ":authority": self._to.authority, ":path": path}
        fields = [*pseudo.items(), *headers.items(), *self._to.identity()]
        self._bodies[stream] = bytearray()
        self._connection.send_headers(stream, fields, end_stream=not body)
        if body:
            self._connection.send_data(stream, body, end_stream=True)
        self._flush()
        return stream

    def answer(self, stream: int) -> bytes:
        """Return the whole body of an answer, which must be a 200."""
        while stream not in self._ended:
            self._read()
        return bytes(self._bodies[stream])

    def first_line(self, stream: int) -> bytes:
        """Return the first line of an answer that goes on."""
        while b"\n" not in self._bodies[stream]:
            assert stream not in self._ended, "expected a stream that stays open"
            self._read()
        return bytes(self._bodies[stream]).partition(b"\n")[0]

    def close(self) -> None:
        """Drop the connection."""
        self._socket.close()

    def _read(self) -> None:
        received = self._socket.recv(READ_BYTES)
        assert received, "the server closed the connection"
        for event in self._connection.receive_data(received):
            if isinstance(event, h2.events.ResponseReceived):
                status = dict(event.headers or ())[b":status"]
                assert status == b"200", f"expected 200, saw {status!r}"
            elif isinstance(event, h2.events.DataReceived):
                assert event.stream_id is not None
                self._bodies[event.stream_id] += event.data or b""
                self._connection.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                assert event.stream_id is not None
                self._ended.add(event.stream_id)
        self._flush()

    def _flush(self) -> None:
        self._socket.sendall(self._connection.data_to_send())


def http2_context(to: Credentials) -> ssl.SSLContext:
    """Return TLS settings that offer HTTP/2 alone."""
    context = to.ssl_context()
    assert context is not None, "expected a server with TLS"
    context.set_alpn_protocols(["h2"])
    return context


@dataclass(slots=True)
class UpstreamStart:
    """One start of upstream's agent; `close` ends its watch."""

    client: Http2Client

    @classmethod
    def begin(cls, start: Start) -> Self:
        """Make the four requests; return when the annotation is stored."""
        client = Http2Client(start.credentials, start.http2)
        json_ = {"accept": "application/json", "user-agent": "upstream-client"}
        for path in ("/api", "/apis"):
            client.answer(client.send("GET", path, json_ | {"accept": _DISCOVERY}))
        query = f"watch=true&fieldSelector=metadata.name%3D{start.jobset}&allowWatchBookmarks=true"
        watching = client.send("GET", f"/apis/{API_VERSION}/namespaces/{start.namespace}/jobsets?{query}", json_)
        status = json.loads(client.first_line(watching))["object"].get("status", {})
        applied: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": start.pod,
                "namespace": start.namespace,
                "annotations": {ATTEMPT: str(status.get("currentInPlaceRestartAttempt", -1) + 1)},
            },
        }
        path = f"/api/v1/namespaces/{start.namespace}/pods/{start.pod}?fieldManager=upstream-client&force=true"
        kind = {"content-type": "application/apply-patch+yaml"}
        client.answer(client.send("PATCH", path, json_ | kind, json.dumps(applied).encode()))
        return cls(client)

    def close(self) -> None:
        """End the watch with its connection."""
        self.client.close()
