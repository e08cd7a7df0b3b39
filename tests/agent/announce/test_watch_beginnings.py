"""Reasons why a watch cannot be opened: no server, the wrong server, a missing token."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
import trustme

from inplace.common.kube.http.credentials import Credentials
from tests.agent.process import server_tls
from tests.agent.rig import Rig
from tests.agent.scripted_server import ONE_EPOCH, Exchange, ScriptedServer, refuses

pytestmark = pytest.mark.asyncio


async def test_an_unreachable_server_is_retried() -> None:
    """A refused connection is reported and tried again until the server is there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    rig = Rig()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(rig.run(ScriptedServer(port=port)))
        while len(rig.log.of("watch_failed")) < 3:  # noqa: ASYNC110 - the log is in memory
            await asyncio.sleep(0)
        async with ScriptedServer(watches=[ONE_EPOCH], port=port):
            assert await running == 88
    assert "cannot connect" in rig.log.of("watch_failed")[0]["message"]


async def test_a_wrong_certificate_is_never_talked_to(tmp_path: Path) -> None:
    """A server whose certificate another CA signed gets no request and no token."""
    ours, theirs = trustme.CA(), trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.issue_cert("127.0.0.1").configure_cert(tls)
    ca_file = tmp_path / "ca.crt"
    ours.cert_pem.write_to_path(str(ca_file))
    rig = Rig()
    async with ScriptedServer(watches=[ONE_EPOCH], tls=tls) as server:
        credentials = Credentials("127.0.0.1", server.port, ca_file=str(ca_file), token="secret")
        running = asyncio.create_task(rig.run(server, credentials))
        while not rig.log.of("watch_failed"):  # noqa: ASYNC110 - the log is in memory
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert server.received == []
    failed = rig.log.of("watch_failed")[0]
    assert failed["cause"] == "certificate"
    assert "CA" in failed["cure"]


async def test_a_rotated_token_is_read_from_disk(tmp_path: Path) -> None:
    """After a 401 the next request carries the token that is on disk then."""
    token = tmp_path / "token"
    token.write_text("old\n")

    async def rotates(exchange: Exchange) -> None:
        token.write_text("new\n")
        await refuses(401, "Unauthorized")(exchange)

    rig = Rig()
    authority = trustme.CA()
    async with ScriptedServer(watches=[(rotates,), ONE_EPOCH], tls=server_tls(authority)) as server:
        ca = authority.cert_pem.bytes().decode()
        await rig.run(server, Credentials("127.0.0.1", server.port, ca_pem=ca, token_file=str(token)))
    assert [request.headers["authorization"] for request in server.received] == [
        "Bearer old",  # the list
        "Bearer old",
        "Bearer new",
        "Bearer new",
    ]


async def test_a_token_file_that_vanishes_is_waited_for(tmp_path: Path) -> None:
    """An unreadable token sends nothing; the watch fails by name and is tried again."""
    token = tmp_path / "token"
    rig = Rig()
    authority = trustme.CA()
    async with ScriptedServer(watches=[ONE_EPOCH], tls=server_tls(authority)) as server:
        ca = authority.cert_pem.bytes().decode()
        credentials = Credentials("127.0.0.1", server.port, ca_pem=ca, token_file=str(token))
        running = asyncio.create_task(rig.run(server, credentials))
        while not rig.log.of("watch_failed"):  # noqa: ASYNC110 - the log is in memory
            await asyncio.sleep(0)
        assert server.received == []
        token.write_text("here")
        assert await running == 88
    assert str(token) in rig.log.of("watch_failed")[0]["message"]
