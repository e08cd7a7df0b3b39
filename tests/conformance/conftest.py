"""The simulator, over loopback HTTP, as the suite's backend; tests/cluster has the same suite on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest_asyncio

from inplace.common.kube.clock import LoopClock
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, HttpFront
from tests.conformance.api import Api
from tests.conformance.widgets import CRD
from tests.http_transport import AiohttpTransport

NAMESPACE = "conformance"


@pytest_asyncio.fixture
async def api() -> AsyncIterator[Api]:
    """A fresh simulator with the Widget CRD and one namespace."""
    server = ApiServer(clock=LoopClock(), rng=Random(1), options=ApiServerOptions(bookmark_interval_s=1.0))
    server.load([CRD, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    front = HttpFront(server)
    transport = AiohttpTransport(await front.start())
    background = asyncio.create_task(server.run())
    try:
        yield Api(transport, NAMESPACE)
    finally:
        await transport.close()
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)
        await front.stop()
