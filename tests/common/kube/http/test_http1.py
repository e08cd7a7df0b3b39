"""HTTP/1.1 over asyncio streams: exchanges, reuse, bounds and failures, on real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from inplace.common.bare.record import replace
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http import connection
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.http1 import IDLE_CONNECTIONS_MAX, IDLE_S_MAX, Http1Transport
from inplace.common.kube.http.request import (
    CertificateError,
    CredentialsError,
    Request,
    TransportError,
    TransportTimeoutError,
)
from tests.agent.scripted_server import Exchange, ScriptedServer, Step, answers, ends, hangs, hangs_up, sends, shouts

pytestmark = pytest.mark.asyncio

GET = Request("GET", "/x")
WATCH = Request("GET", "/x?watch=1")


async def echo(exchange: Exchange) -> None:
    """Answer with the request's body."""
    await exchange.answer(200, exchange.request.body)


@asynccontextmanager
async def talking(
    server: ScriptedServer, clock: LoopClock | None = None, **credentials: Any
) -> AsyncIterator[Http1Transport]:
    """Run a server and a transport to it."""
    async with server:
        given: dict[str, Any] = {"tls": False} | credentials
        transport = Http1Transport(Credentials("127.0.0.1", server.port, **given), clock=clock)
        try:
            yield transport
        finally:
            await transport.close()


async def test_a_request_brings_back_the_whole_answer() -> None:
    """Status, headers in lower case, and body, whatever the status."""
    answer = answers(418, b"x" * 1_000_000, {"X-Pot": "tea"})
    async with talking(ScriptedServer(answer=answer), token="t") as transport:
        response = await transport.request(GET, timeout_s=5)
    assert (response.status, response.headers["x-pot"], len(response.body)) == (418, "tea", 1_000_000)


async def test_connections_are_reused_one_exchange_at_a_time() -> None:
    """Requests in a row share a connection; a stream keeps its own until it ends cleanly."""
    server = ScriptedServer(answer=echo, watches=[[sends(b"one\n"), ends]])
    async with talking(server) as transport:
        for _ in range(3):
            await transport.request(GET, timeout_s=5)
        assert server.connections == 1
        async with transport.stream(WATCH, timeout_s=5) as stream:
            await transport.request(GET, timeout_s=5)
            assert server.connections == 2
            assert [chunk async for chunk in stream.chunks()] == [b"one\n"]
        await transport.request(GET, timeout_s=5)
        assert server.connections == 2


async def test_a_stream_left_early_is_not_reused() -> None:
    """The connection of an abandoned stream is not used again."""
    server = ScriptedServer(answer=echo, watches=[[sends(b"one\n")]])
    async with talking(server) as transport:
        async with transport.stream(WATCH, timeout_s=5) as stream:
            assert stream.status == 200
        await transport.request(GET, timeout_s=5)
        assert server.connections == 2


async def test_a_refused_connection_sent_nothing() -> None:
    """A refused connection raises an error that says that nothing was sent."""
    async with ScriptedServer() as server:
        pass
    transport = Http1Transport(Credentials("127.0.0.1", server.port, tls=False))
    with pytest.raises(
        TransportError, match=rf"cannot connect to 127\.0\.0\.1:{server.port}: Connection refused$"
    ) as failed:
        await transport.request(GET, timeout_s=5)
    assert not failed.value.sent
    await transport.close()


class Ageing(LoopClock):
    """A clock that a test moves on."""

    age_s = 0.0

    def monotonic_s(self) -> float:
        """Return the loop's time, and what it was moved on by."""
        return super().monotonic_s() + self.age_s


async def test_an_old_idle_connection_is_not_trusted() -> None:
    """A connection idle beyond the bound is not used: the server may be closing it."""
    clock = Ageing()
    server = ScriptedServer(answer=echo)
    async with talking(server, clock) as transport:
        await transport.request(GET, timeout_s=5)
        clock.age_s = IDLE_S_MAX
        await transport.request(GET, timeout_s=5)
    assert server.connections == 2


async def test_a_bursts_connections_are_closed_when_they_are_old() -> None:
    """Idle connections beyond the bound of age are closed by whatever exchange ends next."""
    clock = Ageing()
    server = ScriptedServer(answer=echo)
    async with talking(server, clock) as transport:
        await asyncio.gather(*(transport.request(GET, timeout_s=5) for _ in range(5)))
        assert len(transport._idle) == 5
        clock.age_s = IDLE_S_MAX
        await transport.request(GET, timeout_s=5)
        assert len(transport._idle) == 1


async def test_a_connection_the_server_closed_is_not_trusted() -> None:
    """After `connection: close` the next request opens a new connection."""

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(200, b"", {"connection": "close"})
        exchange.writer.close()

    server = ScriptedServer(answer=answer)
    async with talking(server) as transport:
        for _ in range(2):
            await transport.request(GET, timeout_s=5)
    assert server.connections == 2


async def test_idle_connections_are_bounded() -> None:
    """A burst of requests leaves no more than the bound behind."""
    server = ScriptedServer(answer=echo)
    async with talking(server) as transport:
        burst = IDLE_CONNECTIONS_MAX + 4
        await asyncio.gather(*(transport.request(GET, timeout_s=5) for _ in range(burst)))
        opened = server.connections
        await asyncio.gather(*(transport.request(GET, timeout_s=5) for _ in range(burst)))
        assert server.connections == opened + burst - IDLE_CONNECTIONS_MAX


async def cut(exchange: Exchange) -> None:
    """Reset in the middle of the body."""
    await exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
    exchange.writer.transport.abort()


@pytest.mark.parametrize(("answer", "words"), [(shouts, "HTTP/1.1"), (hangs_up, "HTTP/1.1"), (cut, "HTTP/1.1|broke")])
async def test_no_whole_answer_is_a_transport_error(answer: Step, words: str) -> None:
    """Garbage, a close and a reset raise TransportError, which says that the request was sent."""
    async with talking(ScriptedServer(answer=answer)) as transport:
        with pytest.raises(TransportError, match=words) as failed:
            await transport.request(GET, timeout_s=5)
    assert failed.value.sent


async def test_the_deadline_covers_the_whole_request() -> None:
    """A server that never answers costs `timeout_s`, for a request and for a stream's head."""
    async with talking(ScriptedServer(answer=hangs, watches=[[hangs]])) as transport:
        with pytest.raises(TransportTimeoutError, match=r"no answer to GET /x from 127\.0\.0\.1:\d+ within 0.02 s"):
            await transport.request(GET, timeout_s=0.02)
        with pytest.raises(TransportTimeoutError):
            async with transport.stream(WATCH, timeout_s=0.02):
                pass


async def test_cancellation_closes_the_connection() -> None:
    """A cancelled request leaves no socket behind."""
    server = ScriptedServer(answer=hangs)
    async with talking(server) as transport:
        asking = asyncio.create_task(transport.request(GET, timeout_s=5))
        await server.until(lambda: bool(server.received))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_close_is_final_and_may_be_repeated() -> None:
    """After `close` nothing is sent; a second `close` is harmless."""
    async with talking(ScriptedServer(answer=echo)) as transport:
        await transport.request(GET, timeout_s=5)
        await transport.close()
        await transport.close()
        with pytest.raises(TransportError, match="closed"):
            await transport.request(GET, timeout_s=5)


async def test_on_sent_comes_before_the_answer() -> None:
    """`on_sent` is called when the request has left, before its answer."""
    sent: list[str] = []
    released = asyncio.Event()

    def on_sent(request: Request) -> None:
        sent.append(request.method)
        released.set()

    async def answer(exchange: Exchange) -> None:
        await released.wait()
        await exchange.answer(200, b"")

    async with ScriptedServer(answer=answer) as server:
        transport = Http1Transport(Credentials("127.0.0.1", server.port, tls=False), on_sent=on_sent)
        await transport.request(GET, timeout_s=5)
        await transport.close()
    assert sent == ["GET"]


async def test_credentials_are_renewed_before_each_request() -> None:
    """`renew` is asked before each request and stream, and hears of a 401; other credentials get other connections."""
    heard: list[bool] = []
    users = iter(["ann", "bob", "bob", "eve", "eve"])

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(401 if exchange.request.headers["impersonate-user"] == "ann" else 200, b"")

    async with ScriptedServer(answer=answer, watches=[[sends(b"one\n"), ends]]) as server:
        to = Credentials("127.0.0.1", server.port, tls=False)

        async def renew(rejected: bool) -> Credentials:
            heard.append(rejected)
            return replace(to, impersonate=(("impersonate-user", next(users)),))

        transport = Http1Transport(to, renew=renew)
        for connections in (1, 2):
            await transport.request(GET, timeout_s=5)
            assert server.connections == connections
        async with transport.stream(WATCH, timeout_s=5) as stream:
            assert server.connections == 2
            await transport.request(GET, timeout_s=5)  # as eve
            assert [chunk async for chunk in stream.chunks()] == [b"one\n"]
        await transport.request(GET, timeout_s=5)
        assert server.connections == 3
        await transport.close()
    assert heard == [False, True, False, False, False]
    assert [request.headers["impersonate-user"] for request in server.received] == ["ann", "bob", "bob", "eve", "eve"]


async def test_the_time_to_renew_is_not_the_requests() -> None:
    """A request's timeout does not bound `renew`, whose program may ask its user to log in; an error is told."""
    async with ScriptedServer(answer=echo) as server:
        to = Credentials("127.0.0.1", server.port, tls=False)
        replies: list[Credentials | CredentialsError] = [to, CredentialsError("no such program")]

        async def renew(_rejected: bool) -> Credentials:
            await asyncio.sleep(0.2)
            if isinstance(reply := replies.pop(0), CredentialsError):
                raise reply
            return reply

        transport = Http1Transport(to, renew=renew)
        assert (await transport.request(GET, timeout_s=0.15)).status == 200
        with pytest.raises(TransportError, match="no such program") as failed:
            await transport.request(GET, timeout_s=5)
        assert not failed.value.sent
        await transport.close()


async def test_an_address_that_does_not_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that takes no connection is given up long before the request's bound; nothing was sent."""
    monkeypatch.setattr(connection, "CONNECT_S_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as before:
        for _ in range(3):  # fill its queue: the kernel then drops who comes
            waiting = before.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        transport = Http1Transport(Credentials("127.0.0.1", full.getsockname()[1], tls=False))
        with pytest.raises(
            TransportError, match=r"cannot connect to 127\.0\.0\.1:\d+: no answer within 0.05 s"
        ) as failed:
            await transport.request(GET, timeout_s=5)
        assert not failed.value.sent
        await transport.close()


# TLS


def tls_server(authority: trustme.CA, name: str = "127.0.0.1", client_ca: trustme.CA | None = None) -> ScriptedServer:
    """Return a server with a certificate for `name`, which may ask for a client's."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(tls)
    if client_ca is not None:
        client_ca.configure_trust(tls)
        tls.verify_mode = ssl.CERT_REQUIRED
    return ScriptedServer(answer=echo, tls=tls)


def pem(authority: trustme.CA) -> str:
    """Return a CA's certificate as text."""
    return authority.cert_pem.bytes().decode()


async def test_tls_is_spoken_with_the_clusters_ca() -> None:
    """A certificate of the cluster's CA is trusted, and the token goes over it."""
    authority = trustme.CA()
    server = tls_server(authority)
    async with talking(server, tls=True, ca_pem=pem(authority), token="secret") as transport:
        await transport.request(GET, timeout_s=5)
    assert server.received[0].headers["authorization"] == "Bearer secret"


async def test_another_ca_is_not_trusted() -> None:
    """A certificate of any other CA ends the connection before a request."""
    server = tls_server(trustme.CA())
    async with talking(server, tls=True, ca_pem=pem(trustme.CA())) as transport:
        with pytest.raises(CertificateError, match=r"cannot trust 127\.0\.0\.1") as failed:
            await transport.request(GET, timeout_s=5)
    assert not failed.value.sent
    assert server.received == []


async def test_a_rotated_ca_is_read_again(tmp_path: Path) -> None:
    """When CA file and server change to a new CA, the next connection succeeds."""
    file, old, new = tmp_path / "ca.crt", trustme.CA(), trustme.CA()
    file.write_text(pem(old))
    async with talking(tls_server(old), tls=True, ca_file=str(file)) as transport:
        assert (await transport.request(GET, timeout_s=5)).status == 200
        (tmp_path / "ca.new").write_text(pem(new))
        (tmp_path / "ca.new").replace(file)
        async with moved(transport, tls_server(new)):
            assert (await transport.request(GET, timeout_s=5)).status == 200


async def test_a_connection_of_an_old_ca_is_not_used_again(tmp_path: Path) -> None:
    """When the CA file changes, neither an idle connection nor a stream's is kept for another request."""
    file, authority = tmp_path / "ca.crt", trustme.CA()
    file.write_text(pem(authority))
    server = tls_server(authority)
    server.watches = [[sends(b"one\n"), ends]]
    async with talking(server, tls=True, ca_file=str(file)) as transport:
        async with transport.stream(WATCH, timeout_s=5) as stream:
            await transport.request(GET, timeout_s=5)
            assert server.connections == 2
            file.write_text(pem(authority) * 2)
            await transport.request(GET, timeout_s=5)
            assert server.connections == 3
            assert [chunk async for chunk in stream.chunks()] == [b"one\n"]
        assert len(transport._idle) == 1


async def test_a_handshake_that_fails_lets_the_ca_be_read_again(tmp_path: Path) -> None:
    """A CA file that changed with the same time and size makes one handshake fail; then it is read again."""
    file, old, new = tmp_path / "ca.crt", trustme.CA(), trustme.CA()
    size = 4096
    file.write_text(pem(old).ljust(size, "\n"))
    os.utime(file, ns=(0, 0))
    async with talking(tls_server(old), tls=True, ca_file=str(file)) as transport:
        with file.open("r+") as same:
            same.write(pem(new).ljust(size, "\n"))
        os.utime(file, ns=(0, 0))
        async with moved(transport, tls_server(new)):
            with pytest.raises(CertificateError):
                await transport.request(GET, timeout_s=5)
            assert (await transport.request(GET, timeout_s=5)).status == 200


@asynccontextmanager
async def moved(transport: Http1Transport, server: ScriptedServer) -> AsyncIterator[None]:
    """Let a transport without idle connections talk to another server."""
    async with server:
        transport._drop_idle()
        transport._credentials = replace(transport._credentials, port=server.port)
        yield


async def test_a_ca_file_that_cannot_be_read_is_an_error_until_it_can(tmp_path: Path) -> None:
    """An unreadable CA file is named and nothing is sent; the next try reads it again."""
    file, authority = tmp_path / "ca.crt", trustme.CA()
    file.write_text(pem(authority))
    async with talking(tls_server(authority), tls=True, ca_file=str(file)) as transport:
        file.write_text("-----BEGIN")
        with pytest.raises(TransportError, match=r"ca\.crt: expected CA certificates") as failed:
            await transport.request(GET, timeout_s=5)
        assert not failed.value.sent
        file.write_text(pem(authority))
        assert (await transport.request(GET, timeout_s=5)).status == 200


async def test_a_token_does_not_leave_without_tls(tmp_path: Path) -> None:
    """Without TLS no token is sent, as with kubectl."""
    file = tmp_path / "token"
    file.write_text("secret")
    for name, secret in (("token", "secret"), ("token_file", str(file))):
        server = ScriptedServer(answer=echo)
        async with talking(server, None, **{name: secret}) as transport:
            await transport.request(GET, timeout_s=5)
        assert "authorization" not in server.received[0].headers


async def test_another_name_is_not_trusted_unless_it_is_named() -> None:
    """The certificate must have the host's name, or that of tls-server-name."""
    authority = trustme.CA()
    async with talking(tls_server(authority, "api.example"), tls=True, ca_pem=pem(authority)) as transport:
        with pytest.raises(CertificateError):
            await transport.request(GET, timeout_s=5)
    named: dict[str, Any] = {"tls": True, "ca_pem": pem(authority), "server_name": "api.example"}
    async with talking(tls_server(authority, "api.example"), **named) as transport:
        assert (await transport.request(GET, timeout_s=5)).status == 200


async def test_insecure_trusts_anybody() -> None:
    """With insecure-skip-tls-verify any certificate is accepted."""
    async with talking(tls_server(trustme.CA(), "other"), tls=True, insecure=True) as transport:
        assert (await transport.request(GET, timeout_s=5)).status == 200


async def test_a_client_certificate_is_shown() -> None:
    """Certificate and key as text, as a kubeconfig's -data fields carry them."""
    authority, clients = trustme.CA(), trustme.CA()
    mine = clients.issue_cert("me")
    given: dict[str, Any] = {
        "tls": True,
        "ca_pem": pem(authority),
        "certificate_pem": mine.cert_chain_pems[0].bytes().decode(),
        "key_pem": mine.private_key_pem.bytes().decode(),
    }
    async with talking(tls_server(authority, client_ca=clients), **given) as transport:
        assert (await transport.request(GET, timeout_s=5)).status == 200


async def test_no_tls_where_tls_is_expected_is_a_transport_error() -> None:
    """A server that speaks no TLS raises TransportError, and nothing was sent."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp ready\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        transport = Http1Transport(Credentials("127.0.0.1", port, ca_pem=pem(trustme.CA())))
        with pytest.raises(TransportError, match="cannot connect") as failed:
            await transport.request(GET, timeout_s=5)
        await transport.close()
    assert not failed.value.sent


async def test_a_name_is_looked_up_and_each_of_its_addresses_tried() -> None:
    """Each address of a name is tried: the first of `localhost` may have no listener."""
    async with ScriptedServer(answer=echo) as server:
        transport = Http1Transport(Credentials("localhost", server.port, tls=False))
        assert (await transport.request(GET, timeout_s=5)).status == 200
        await transport.close()


async def test_a_name_without_an_address_sent_nothing() -> None:
    """A name without an address raises an error with the resolver's message; nothing was sent."""
    transport = Http1Transport(Credentials("no-such-host.invalid", 1, tls=False))
    with pytest.raises(TransportError, match=r"cannot connect to no-such-host\.invalid:1") as failed:
        await transport.request(GET, timeout_s=5)
    assert not failed.value.sent
    await transport.close()


async def test_close_ends_a_request_that_waits() -> None:
    """`close` ends a waiting request with an error and leaves no socket."""
    server = ScriptedServer(answer=hangs)
    async with talking(server) as transport:
        asking = asyncio.create_task(transport.request(GET, timeout_s=5))
        await server.until(lambda: bool(server.received))
        await transport.close()
        with pytest.raises(TransportError):
            await asking


async def test_a_deadline_covers_connection_and_handshake() -> None:
    """A peer that accepts and never speaks TLS costs `timeout_s`."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        to = Credentials("127.0.0.1", silent.getsockname()[1], ca_pem=pem(trustme.CA()))
        transport = Http1Transport(to)
        with pytest.raises(TransportTimeoutError):
            await transport.request(GET, timeout_s=0.05)
        await transport.close()


async def test_what_a_server_says_unasked_ends_the_reuse() -> None:
    """An idle connection with unrequested bytes is dropped: a request could take them for its answer."""
    said = asyncio.Event()

    async def answer_twice(exchange: Exchange) -> None:
        await exchange.answer(200, b"mine")
        await exchange.answer(200, b"nobody's")
        said.set()

    server = ScriptedServer(answer=answer_twice)
    async with talking(server) as transport:
        for _ in range(3):
            assert (await transport.request(GET, timeout_s=5)).body == b"mine"
            await said.wait()  # both are in our kernel's buffer now
            said.clear()
    assert server.connections == 3
