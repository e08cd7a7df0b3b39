"""Requests and streams of the controller on their way: a path before /api, impersonation, proxies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.proxy import Proxy, proxy_of_url
from inplace.common.kube.http.request import Request
from inplace.controller.api.credentials import Identity
from inplace.controller.api.transport import open_transport
from tests.common.kube.http.proxies import Proxying


def somebody(port: int, path_prefix: str = "", proxy: Proxy | None = None, host: str = "127.0.0.1") -> Identity:
    """Return an identity without files, for a server without TLS."""
    now = Credentials(host, port, path_prefix, tls=False, impersonate=(("impersonate-user", "ann"),), proxy=proxy)

    async def read(_rejected: bool) -> Credentials:
        return now

    return Identity(now, read, clock=LoopClock())


@asynccontextmanager
async def serving(seen: list[web.BaseRequest]) -> AsyncIterator[int]:
    """Serve two lines to every client."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await response.write(b"two\n")
        return response

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def read(identity: Identity, path: str) -> bytes:
    """Return the bytes of a request's answer and of a stream."""
    async with asyncio.timeout(5), open_transport(identity) as transport:
        whole = (await transport.request(Request("GET", path), timeout_s=5.0)).body
        async with transport.stream(Request("GET", path), timeout_s=5.0) as stream:
            assert stream.status == 200
            return whole + b"".join([chunk async for chunk in stream.chunks()])


@pytest.mark.asyncio
async def test_a_path_before_the_api_and_who_we_are_go_along() -> None:
    """The server URL's path, as of a multi-cluster front, and whose rights we ask for are sent with each request."""
    seen: list[web.BaseRequest] = []
    async with serving(seen) as port:
        assert await read(somebody(port, "/k8s/c-1"), "/api?x=1%202") == b"one\ntwo\n" * 2
    for request in seen:
        assert request.raw_path == "/k8s/c-1/api?x=1%202"
        assert request.headers["impersonate-user"] == "ann"
        assert request.headers["host"] == f"127.0.0.1:{port}"


@pytest.mark.asyncio
async def test_requests_and_streams_go_through_the_proxy() -> None:
    """A proxy gets the whole URL of a server without TLS, from requests and streams alike, and its password."""
    seen: list[web.BaseRequest] = []
    async with serving(seen) as port:
        proxy = proxy_of_url(f"http://me:hush@127.0.0.1:{port}", "proxy-url")
        assert await read(somebody(80, proxy=proxy, host="kubernetes.invalid"), "/api") == b"one\ntwo\n" * 2
    for request in seen:
        assert request.headers["host"].removesuffix(":80") == "kubernetes.invalid"
        assert request.headers["proxy-authorization"] == proxy.authorization


@pytest.mark.asyncio
async def test_requests_and_streams_go_through_a_socks_proxy() -> None:
    """A SOCKS5 proxy is asked for the server, by requests and streams alike."""
    async with serving([]) as port, Proxying(port).running() as socks:
        proxy = proxy_of_url(f"socks5://127.0.0.1:{socks.port}", "proxy-url")
        assert await read(somebody(80, proxy=proxy, host="kubernetes.invalid"), "/api") == b"one\ntwo\n" * 2
    assert set(socks.asked) == {"kubernetes.invalid:80"}
