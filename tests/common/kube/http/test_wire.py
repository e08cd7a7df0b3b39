"""HTTP/1.1 without I/O: the same wire under any socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inplace.common.kube.http.request import Request, TransportError
from inplace.common.kube.http.wire import HEAD_BYTES_MAX, Head, Http1Wire, Poll
from tests.common.kube.http import fuzz_http1

ANSWER = b"HTTP/1.1 200 OK\r\nX-Case: Kept\r\ntransfer-encoding: chunked\r\n\r\n4\r\nspam\r\n4\r\neggs\r\n0\r\n\r\n"
GET = Request("GET", "/x?y=1", {"accept": "application/json"})


def drain(wire: Http1Wire) -> list[Head | bytes | Poll]:
    """Poll until the wire wants bytes or the answer ends."""
    parts: list[Head | bytes | Poll] = []
    while not parts or parts[-1] not in (Poll.NEED_BYTES, Poll.END):
        parts.append(wire.poll())
    return parts


def test_a_request_is_one_piece_of_bytes() -> None:
    """Host, length and who we are are added; path prefix and headers are kept."""
    wire = Http1Wire("[::1]:6443", "/k8s")
    sent = wire.send(
        Request("PATCH", "/api?a=b", {"accept": "x"}, b"{}"),
        [("authorization", "Bearer secret"), ("x-group", "a"), ("x-group", "b")],
    )
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"PATCH /k8s/api?a=b HTTP/1.1"
    assert {line.lower() for line in lines[1:]} == {
        b"x-group: a",
        b"x-group: b",
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
    wire.send(GET)
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
        wire.send(GET)
        wire.receive(ANSWER)
        assert drain(wire)[-1] is Poll.END


def test_connection_close_is_not_reusable() -> None:
    """After an answer with `connection: close` the connection is not used again."""
    wire = Http1Wire("h")
    wire.send(GET)
    wire.receive(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    assert drain(wire)[-1] is Poll.END
    assert not wire.is_reusable


def test_informational_answers_are_skipped() -> None:
    """Informational answers such as 100 Continue are skipped."""
    wire = Http1Wire("h")
    wire.send(GET)
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
    """Garbage, an early end and an endless head raise TransportError."""
    wire = Http1Wire("h")
    wire.send(GET)

    def read_all() -> None:
        for received in filter(None, (answer,)):
            wire.receive(received)
            drain(wire)
        wire.receive(b"")
        drain(wire)

    with pytest.raises(TransportError):
        read_all()


def test_an_impossible_request_is_refused_unsent() -> None:
    """A header that would split the request is refused; `sent` is False."""
    with pytest.raises(TransportError) as refused:
        Http1Wire("h").send(Request("GET", "/", {"accept": "a\r\nx: y"}))
    assert not refused.value.sent


def test_a_plain_blocking_socket_can_begin_what_asyncio_ends() -> None:
    """A blocking socket can begin an exchange that asyncio ends, also in the middle of an answer."""
    ours, theirs = socket.socketpair()
    wire = Http1Wire("h")
    ours.sendall(wire.send(GET))
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


# Parts of answers; random choices of them make many nearly valid answers.
PIECES = st.sampled_from(
    [
        *(b"HTTP/1.1 200 OK", b"HTTP/1.1 204 No Content", b"HTTP/1.0 200 OK", b"HTTP/1.1 100 Continue", b"HTTP/2 200"),
        *(b"\r\n", b"\r\n", b"\r\n", b"\r\n\r\n", b"\r\n\r\n", b"\n", b" ", b":", b"x: y", b"x : y", b"4", b"0"),
        *(b"content-length: 4", b"content-length: 5", b"content-length: -1", b"Content-Length: 4, 4"),
        *(b"transfer-encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"connection: close"),
        *(b"4\r\nspam\r\n", b"0\r\n\r\n", b"4;a=b\r\nspam\r\n", b"zz\r\n", b"spam", b"\x00"),
    ]
)


def read_by_us(answer: bytes) -> tuple[int, bytes] | None:
    """Return status and body, None when the answer is refused or incomplete."""
    reading = fuzz_http1.read_by_us([answer] if answer else [])
    return reading and (reading.status, reading.body)


def read_by_h11(answer: bytes) -> tuple[int, bytes] | None:
    """Return h11's reading of an answer."""
    reading = fuzz_http1.read_by_h11([answer] if answer else [])
    return reading and (reading.status, reading.body)


@given(answer=st.lists(PIECES, max_size=12).map(b"".join))
@example(answer=ANSWER)
@example(answer=b"HTTP/1.1 200 OK\x00\r\n\r\n")
@example(answer=b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nspam")
@example(answer=b"HTTP/1.1 200 OK\r\n\r\nspam")
@example(answer=b"HTTP/1.1 204 No Content\r\n\r\n")
@example(answer=b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
@example(answer=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4;a=b\r\nspam\r\n0\r\nx: y\r\n\r\n")
def test_what_we_take_h11_takes_alike(answer: bytes) -> None:
    """h11 reads each answer that we accept in the same way; we may refuse more."""
    ours = read_by_us(answer)
    assert ours is None or ours == read_by_h11(answer)


@pytest.mark.parametrize(
    "answer",
    [
        ANSWER,
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nspam",
        b"HTTP/1.1 200 \r\nContent-Length:4\r\n\r\nspam",
        b"HTTP/1.1 200\r\n\r\nspam to the end",
        b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\nspam",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\ncontent-length: 4\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n4;a=b\r\nspam\r\n0\r\nx: y\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n" + ANSWER,
    ],
)
def test_what_servers_send_is_read(answer: bytes) -> None:
    """Each form that HTTP allows a server is read as h11 reads it."""
    assert read_by_us(answer) == read_by_h11(answer) is not None


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nspams",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: +4\r\n\r\nspam",
        b"HTTP/1.1 200 OK\r\nx: a\r\n folded\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx : a\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\nb\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\ncontent-length: 0\n\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\ncontent-length: -1\r\n\r\nHTTP/1.1 200 OK\r\n\r\nam",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nspamX\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"f" * 16 + b"\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4;" + b"a" * 300 + b"\r\nspam\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * HEAD_BYTES_MAX,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n folded: y\r\n\r\n",
    ],
)
def test_what_two_readers_could_take_differently_is_refused(head: bytes) -> None:
    """Two lengths, a length beside chunks, folding, bare line feeds and endless trailers are errors."""
    assert read_by_us(head) is None


def test_what_comes_unasked_ends_the_reuse() -> None:
    """After bytes beyond an answer the connection is not used: a request could take them for its answer."""
    wire = Http1Wire("h")
    wire.send(GET)
    wire.receive(ANSWER + b"HTTP/1.1 200 OK\r\n")
    assert drain(wire)[-1] is Poll.END
    assert not wire.is_reusable
    with pytest.raises(TransportError, match="without a request"):
        wire.poll()


def test_random_answers_are_read_as_h11_reads_them() -> None:
    """Random answers, cut anywhere, are read as h11 reads them; `make soak` reads 450,000 of them."""
    taken, wrong = fuzz_http1.fuzz(2_000, seed=7)
    assert wrong == []
    assert taken > 400  # enough of them are answers
