"""Streams with a connection of their own, also through a proxy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from aiohttp import web

from inplace.common.kube.http import Request
from inplace.controller.api.streams import has_proxy
from inplace.controller.api.transport import AiohttpTransport

NAMES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@dataclass
class Somebody:
    """Credentials without files; see `controller.api.credentials.Identity`."""

    host: str
    proxy: str | None = None
    server_name: str | None = None
    tls_version: object = None

    def authorization(self) -> str | None:
        """Return a token."""
        return "Bearer good"

    def tls_context(self) -> ssl.SSLContext | None:
        """Speak plain HTTP."""
        return None

    async def refresh(self, *, rejected: bool = False) -> None:
        """Do nothing."""


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


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


async def read(identity: Somebody, path: str) -> bytes:
    """Return the bytes of a stream."""
    async with (
        asyncio.timeout(5),
        AiohttpTransport(identity) as transport,
        transport.stream(Request("GET", path), timeout_s=5.0) as stream,
    ):
        assert stream.status == 200
        return b"".join([chunk async for chunk in stream.chunks()])


@pytest.mark.asyncio
async def test_a_path_before_the_api_and_our_token_go_along() -> None:
    """The server URL's path, as of a multi-cluster front, and our token are sent with the request."""
    seen: list[web.BaseRequest] = []
    async with serving(seen) as port:
        assert await read(Somebody(f"http://127.0.0.1:{port}/k8s/c-1"), "/api?x=1%202") == b"one\ntwo\n"
    (request,) = seen
    assert request.raw_path == "/k8s/c-1/api?x=1%202"
    assert request.headers["authorization"] == "Bearer good"
    assert request.headers["host"] == f"127.0.0.1:{port}"


@pytest.mark.asyncio
async def test_a_stream_goes_through_the_proxy_of_the_kubeconfig() -> None:
    """A stream uses the kubeconfig's proxy."""
    seen: list[web.BaseRequest] = []
    async with serving(seen) as port:
        there = Somebody("http://kubernetes.invalid", proxy=f"http://127.0.0.1:{port}")
        assert await read(there, "/api") == b"one\ntwo\n"
    assert seen[0].headers["host"] == "kubernetes.invalid"


@pytest.mark.asyncio
async def test_a_stream_goes_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream uses the environment's proxy, as client-go does."""
    seen: list[web.BaseRequest] = []
    async with serving(seen) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        assert await read(Somebody("http://kubernetes.invalid"), "/api") == b"one\ntwo\n"
    assert seen[0].headers["host"] == "kubernetes.invalid"


def test_no_proxy_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the proxy of the server's own scheme counts, and not for hosts that need none."""
    there = Somebody("https://10.96.0.1:443")
    assert not has_proxy(there)
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    assert not has_proxy(there)
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:3128")
    assert has_proxy(there)
    monkeypatch.setenv("no_proxy", "10.96.0.1")
    assert not has_proxy(there)
