"""HTTP/1.1 without I/O: the same wire under any socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kube.http import Request, TransportError
from common.kube.http1_wire import HEAD_BYTES_MAX, Head, Http1Wire, Poll

ANSWER = b"HTTP/1.1 200 OK\r\nX-Case: Kept\r\ntransfer-encoding: chunked\r\n\r\n4\r\nspam\r\n4\r\neggs\r\n0\r\n\r\n"
GET = Request("GET", "/x?y=1", {"accept": "application/json"})


def drain(wire: Http1Wire) -> list[Head | bytes | Poll]:
    """Poll until the wire wants bytes or the answer ends."""
    parts: list[Head | bytes | Poll] = []
    while not parts or parts[-1] not in (Poll.NEED_BYTES, Poll.END):
        parts.append(wire.poll())
    return parts


def test_a_request_is_one_piece_of_bytes() -> None:
    """Host, token and length are added; path prefix and headers are kept."""
    wire = Http1Wire("[::1]:6443", "/k8s")
    sent = wire.send(Request("PATCH", "/api?a=b", {"accept": "x"}, b"{}"), "secret")
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"PATCH /k8s/api?a=b HTTP/1.1"
    assert {line.lower() for line in lines[1:]} == {
        b"host: [::1]:6443",
        b"accept: x",
        b"authorization: bearer secret",
        b"content-length: 2",
    }
    assert body == b"{}"


@given(cuts=st.lists(st.integers(0, len(ANSWER)), max_size=10))
def test_an_answer_is_the_same_wherever_it_is_cut(cuts: list[int]) -> None:
    """Head and body do not depend on how the bytes arrive."""
    wire = Http1Wire("h")
    wire.send(GET, "")
    parts: list[Head | bytes | Poll] = []
    edges = [0, *sorted(cuts), len(ANSWER)]
    for start, end in pairwise(edges):
        if start < end:
            wire.receive(ANSWER[start:end])
            parts += drain(wire)
    heads = [part for part in parts if isinstance(part, Head)]
    assert [(head.status, head.headers["x-case"]) for head in heads] == [(200, "Kept")]
    assert b"".join(part for part in parts if isinstance(part, bytes)) == b"spameggs"
    assert parts[-1] is Poll.END
    assert wire.is_reusable


def test_a_second_exchange_follows_on_the_same_connection() -> None:
    """After a complete answer the wire takes the next request."""
    wire = Http1Wire("h")
    for _ in range(3):
        wire.send(GET, "")
        wire.receive(ANSWER)
        assert drain(wire)[-1] is Poll.END


def test_connection_close_is_not_reusable() -> None:
    """A server that says it will close is believed."""
    wire = Http1Wire("h")
    wire.send(GET, "")
    wire.receive(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    assert drain(wire)[-1] is Poll.END
    assert not wire.is_reusable


def test_informational_answers_are_skipped() -> None:
    """100 Continue is no answer."""
    wire = Http1Wire("h")
    wire.send(GET, "")
    wire.receive(b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER)
    assert isinstance(drain(wire)[0], Head)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsp",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 2",
        b"",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 2 * HEAD_BYTES_MAX,
    ],
)
def test_what_is_no_whole_answer_is_a_transport_error(answer: bytes) -> None:
    """Garbage, an early end and an endless head raise; nothing is made up."""
    wire = Http1Wire("h")
    wire.send(GET, "")

    def read_all() -> None:
        for received in filter(None, (answer,)):
            wire.receive(received)
            drain(wire)
        wire.receive(b"")
        drain(wire)

    with pytest.raises(TransportError):
        read_all()


def test_an_impossible_request_is_refused_unsent() -> None:
    """A header that would split the request is our mistake, and `sent` says that nothing left."""
    with pytest.raises(TransportError) as refused:
        Http1Wire("h").send(Request("GET", "/", {"accept": "a\r\nx: y"}), "")
    assert not refused.value.sent


def test_a_plain_blocking_socket_can_begin_what_asyncio_ends() -> None:
    """The wire is handed over in the middle of an answer, which is what a start without a loop needs."""
    ours, theirs = socket.socketpair()
    wire = Http1Wire("h")
    ours.sendall(wire.send(GET, ""))
    server = threading.Thread(target=theirs.sendall, args=(ANSWER[:80],))
    server.start()
    while not isinstance(part := wire.poll(), Head):
        assert part is Poll.NEED_BYTES
        wire.receive(ours.recv(65536))
    server.join()

    async def finish() -> bytes:
        reader, writer = await asyncio.open_connection(sock=ours)
        theirs.sendall(ANSWER[80:])
        body = b""
        while (part := wire.poll()) is not Poll.END:
            if part is Poll.NEED_BYTES:
                wire.receive(await reader.read(65536))
            else:
                assert isinstance(part, bytes)
                body += part
        writer.close()
        await writer.wait_closed()
        return body

    assert asyncio.run(finish()) == b"spameggs"
    theirs.close()
