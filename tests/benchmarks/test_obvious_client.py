"""The herd benchmark's obvious client sends what the obvious agent sends."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.obvious_client import follow, follow_for_ever
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.http1 import Http1Transport
from tests.agent.rig import ImpatientClock
from tests.agent.scripted_server import Exchange, Received, ScriptedServer, ends, line, plain, refuses, sends

pytestmark = pytest.mark.asyncio

DEPRECATED = line("ADDED", plain(1, 9))  # the real client exits then


async def answer(exchange: Exchange) -> None:
    """Answer a read with a JobSet, and a patch with a Pod."""
    await exchange.answer(200, {"kind": "JobSet", "status": {"syncedEpoch": 1}})


def essence(request: Received) -> tuple[object, ...]:
    """Return the parts of a request that decide the server's answer."""
    content = request.headers.get("content-type") if request.body else None
    return request.method, request.path, request.query, request.headers["accept"], content, request.body


async def test_the_requests_are_the_obvious_agents() -> None:
    """All three requests have the obvious agent's method, path, query, types and body, on one connection."""
    # Imported here, because it has 800 generated models, and every worker of the tests collects this module.
    from kubernetes_asyncio import client

    from benchmarks.baseline_agent import follow as follow_for_real

    async with ScriptedServer(watches=[[sends(DEPRECATED), ends]] * 2, answer=answer) as server:
        settings = client.Configuration()
        settings.host = f"http://127.0.0.1:{server.port}"
        async with client.ApiClient(settings) as api:
            assert await follow_for_real(api, "ns", "train", "pod-0") == 88
        theirs, server.received[:] = list(map(essence, server.received)), []
        transport = Http1Transport(Credentials("127.0.0.1", server.port, tls=False))
        await follow(transport, LoopClock(), "ns", "train", "pod-0")
        await transport.close()
    assert list(map(essence, server.received)) == theirs
    assert len(theirs) == 3
    assert server.connections == 2


async def test_a_refusal_ends_the_process_and_kubelet_starts_it_again() -> None:
    """After a 429 all three requests are sent anew, over a new connection, about a second later."""
    clock = ImpatientClock()
    async with ScriptedServer(watches=[[refuses(429)]], answer=answer) as server:

        def connect() -> Http1Transport:
            return Http1Transport(Credentials("127.0.0.1", server.port, tls=False))

        running = asyncio.create_task(follow_for_ever(connect, clock, "ns", "train", "pod-0"))
        await server.until(lambda: len(server.watched) == 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [request.method for request in server.received] == ["GET", "PATCH", "GET"] * 2
    assert clock.slept_s == [1.0]
    assert server.connections == 2
