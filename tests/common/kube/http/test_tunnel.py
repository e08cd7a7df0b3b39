"""An API server behind a proxy: CONNECT and SOCKS5, with and without a password, and every refusal."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trustme

from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.kube.http.proxy import proxy_of_url
from inplace.common.kube.http.request import Request, Response, TransportError
from tests.agent.scripted_server import Exchange, ScriptedServer
from tests.common.kube.http.proxies import Proxying

pytestmark = pytest.mark.asyncio


async def echo(exchange: Exchange) -> None:
    """Answer with the path."""
    await exchange.answer(200, exchange.request.path.encode())


@asynccontextmanager
async def behind(**settings: object) -> AsyncIterator[tuple[Proxying, str]]:
    """Run a TLS server that is known as api.example, and a proxy that leads to it; yield its CA too."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("api.example").configure_cert(context)
    server = ScriptedServer(answer=echo, tls=context)
    async with server, Proxying(server.port, **settings).running() as proxy:  # type: ignore[arg-type]
        yield proxy, authority.cert_pem.bytes().decode()


async def ask(url: str, ca_pem: str) -> Response:
    """Ask api.example:6443 through a proxy."""
    to = Credentials("api.example", 6443, ca_pem=ca_pem, proxy=proxy_of_url(url, "proxy-url"))
    transport = Http1Transport(to)
    try:
        async with asyncio.timeout(5):
            return await transport.request(Request("GET", "/x"), timeout_s=5)
    finally:
        await transport.close()


@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.parametrize("password", ["", "me:a@b"])
async def test_a_server_is_reached(scheme: str, password: str) -> None:
    """The proxy looks the server's name up; TLS is between us and the server."""
    async with behind(password=password) as (proxy, ca):
        secret = password.replace("a@b", "a%40b") + "@" if password else ""
        assert (await ask(f"{scheme}://{secret}127.0.0.1:{proxy.port}", ca)).body == b"/x"
    assert proxy.asked == ["api.example:6443"]


@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"refuses": True}, "'403 Forbidden'|its rules do not allow it"),
        ({"password": "me:secret"}, "put user and password into its URL"),
    ],
)
async def test_a_refusal_is_told(scheme: str, settings: dict[str, object], said: str) -> None:
    """A refusal names server, proxy, where the proxy was set, and the reason."""
    async with behind(**settings) as (proxy, ca):
        with pytest.raises(TransportError, match=said) as refused:
            await ask(f"{scheme}://127.0.0.1:{proxy.port}", ca)
    assert not refused.value.sent
    assert f"api.example:6443 through the proxy {scheme}://127.0.0.1:{proxy.port} (proxy-url)" in str(refused.value)


async def test_a_wrong_password_is_told() -> None:
    """A password that SOCKS5 does not accept is told without being shown."""
    async with behind(password="me:secret") as (proxy, ca):
        with pytest.raises(TransportError, match="does not accept the user and password") as refused:
            await ask(f"socks5://me:wrong@127.0.0.1:{proxy.port}", ca)
    assert "wrong" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.parametrize("words", [b"SSH-2.0-x\r\n\r\n", b"\x05", b"", b"x" * 40_000])
async def test_something_else_than_a_proxy_is_told(scheme: str, words: bytes) -> None:
    """What answers nonsense, half of an answer or too much is named as no proxy."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(3)
        writer.write(words)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TransportError, match=r"through the proxy .*"):
            await ask(f"{scheme}://127.0.0.1:{port}", trustme.CA().cert_pem.bytes().decode())


async def test_a_proxy_that_is_not_there_is_told() -> None:
    """Without a proxy the error says which one was tried."""
    with pytest.raises(TransportError, match=r"through the proxy http://127.0.0.1:1 \(proxy-url\): Connection refused"):
        await ask("http://127.0.0.1:1", trustme.CA().cert_pem.bytes().decode())
