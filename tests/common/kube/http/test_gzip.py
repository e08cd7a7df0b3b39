"""Compressed answers: who asks for them, and what is refused."""

from __future__ import annotations

import gzip
import json

import pytest

from inplace.common.kube.client import KubeClient
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.kube.http.request import GarbledError, Request, TooLargeError
from inplace.common.kube.resources import PODS
from tests.agent.scripted_server import Exchange, ScriptedServer, answers, ends, sends

pytestmark = pytest.mark.asyncio

BYTES_MAX = 10_000
LIST = json.dumps({"kind": "PodList", "metadata": {}, "items": ["a Pod"] * 500}).encode()


async def compresses(exchange: Exchange) -> None:
    """Answer as kube-apiserver does: compressed where the client takes it."""
    if "gzip" in exchange.request.headers.get("accept-encoding", ""):
        await exchange.answer(200, gzip.compress(LIST), {"content-encoding": "gzip"})
    else:
        await exchange.answer(200, LIST)


def transport_to(server: ScriptedServer) -> Http1Transport:
    """Return a transport with a small bound."""
    return Http1Transport(Credentials("127.0.0.1", server.port, tls=False), answer_bytes_max=BYTES_MAX)


async def test_the_client_takes_compressed_answers_and_uncompressed_watches() -> None:
    """A client's list comes compressed and is read like any other; a watch asks for no compression."""
    async with ScriptedServer(answer=compresses, watches=[[sends(b"{}\n"), ends]]) as server:
        transport = transport_to(server)
        client = KubeClient(transport, user_agent="t", field_manager="t")
        assert len((await client.list(PODS, "default"))["items"]) == 500
        async with transport.stream(Request("GET", "/x?watch=1", client.headers), timeout_s=5) as stream:
            assert [chunk async for chunk in stream.chunks()] == [b"{}\n"]
        assert (await transport.request(Request("GET", "/x"), timeout_s=5)).body == LIST
        await transport.close()
    assert [request.headers.get("accept-encoding") for request in server.received] == ["gzip", None, None]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (gzip.compress(bytes(BYTES_MAX)), None),
        (gzip.compress(bytes(BYTES_MAX + 1)), TooLargeError),
        (gzip.compress(bytes(1000 * BYTES_MAX)), TooLargeError),
        (gzip.compress(LIST)[:-1], GarbledError),
        (LIST, GarbledError),
        (b"", None),
    ],
    ids=["at the bound", "above the bound", "a bomb", "a part", "no gzip", "nothing"],
)
async def test_a_compressed_answer_is_bounded_and_whole(body: bytes, error: type[Exception] | None) -> None:
    """The bound holds for what an answer decompresses to; a part of an answer is an error."""
    async with ScriptedServer(answer=answers(200, body, {"content-encoding": "gzip"})) as server:
        transport = transport_to(server)
        if error is None:
            assert set((await transport.request(Request("GET", "/x"), timeout_s=5)).body) <= {0}
        else:
            with pytest.raises(error):
                await transport.request(Request("GET", "/x"), timeout_s=5)
        await transport.close()
