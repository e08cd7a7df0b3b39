"""The agent as a process: exit codes, signals, and what it says."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import pytest

from tests.agent.process import environment, finished, process
from tests.agent.scripted_server import Exchange, ScriptedServer, Step, jobset, silence, until_patched

pytestmark = pytest.mark.asyncio

FINISH = (jobset(0), until_patched(), jobset(1, 0, rv=20), jobset(1, 1, rv=30))


async def test_a_group_restart_ends_with_the_configured_code(tmp_path: Path) -> None:
    """From exec to exit X: one watch, one patch, and a log that tells the story in order."""
    async with ScriptedServer(watches=[FINISH]) as server:
        env = environment(tmp_path, server, RESTART_POD_IN_PLACE_EXIT_CODE="77", PREVIOUS_EPOCH="one")
        async with process(env) as child:
            code, lines = await finished(child)
    assert code == 77
    assert [request.method for request in server.received] == ["GET", "PATCH"]
    assert [line["event"] for line in lines] == [
        "setting_ignored",
        "announcement_accepted",
        "barrier_lifted",
        "restarting_in_place",
    ]
    assert [line["timestamp"] for line in lines] == sorted(str(line["timestamp"]) for line in lines)


async def test_the_default_code_is_ours(tmp_path: Path) -> None:
    """Without a configured code the agent exits 88."""
    async with ScriptedServer(watches=[FINISH]) as server, process(environment(tmp_path, server)) as child:
        assert (await finished(child))[0] == 88


async def test_bad_settings_end_before_any_request(tmp_path: Path) -> None:
    """Exit 2, every problem at once (the credentials' too), and the server never hears of it."""
    async with ScriptedServer() as server:
        env = environment(tmp_path, server, NAMESPACE="NO", BARRIER_PORT="x", KUBECONFIG=str(tmp_path / "none"))
        async with process(env) as child:
            code, lines = await finished(child)
    assert code == 2
    assert [str(line["message"]).split(":")[0] for line in lines] == [
        "NAMESPACE",
        "BARRIER_PORT",
        "KUBECONFIG",
    ]
    assert server.connections == 0


async def test_a_barrier_port_in_use_ends_before_any_request(tmp_path: Path) -> None:
    """Exit 3 with address and port; nothing was announced."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with ScriptedServer() as server:
            async with process(environment(tmp_path, server, BARRIER_PORT=str(port))) as child:
                code, lines = await finished(child)
            assert server.received == []
    assert code == 3
    assert f"127.0.0.1 port {port}" in str(lines[0]["message"])


async def hold(exchange: Exchange) -> None:
    """Accept the request and never answer."""
    await asyncio.Event().wait()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize(
    ("script", "patches"),
    [
        pytest.param((hold,), 0, id="no answer yet"),
        pytest.param((silence,), 0, id="watching, no view yet"),
        pytest.param((jobset(0), until_patched(), silence), 1, id="waiting at the barrier"),
        pytest.param((jobset(0), until_patched(), jobset(1, 0), silence), 1, id="lifted"),
    ],
)
async def test_a_signal_ends_the_agent_at_any_moment(
    tmp_path: Path, number: signal.Signals, code: int, script: tuple[Step, ...], patches: int
) -> None:
    """SIGTERM is 143 and SIGINT 130, whatever the agent is waiting for, well within kubelet's 2 s."""
    async with ScriptedServer(watches=[script]) as server:
        async with process(environment(tmp_path, server)) as child:
            await server.until(lambda: bool(server.watched) and len(server.requests("PATCH")) == patches)
            child.send_signal(number)
            async with asyncio.timeout(2):
                ended, lines = await finished(child)
        assert ended == code
        assert lines[-1]["event"] == "signalled"


async def test_a_signal_ends_the_agent_while_it_connects(tmp_path: Path) -> None:
    """A server that accepts no connection cannot hold the agent."""
    async with ScriptedServer() as server:
        env = environment(tmp_path, server)
    with socket.create_server(("127.0.0.1", server.port), backlog=0):
        async with process(env) as child:
            await listening(int(env["BARRIER_PORT"]))
            child.send_signal(signal.SIGTERM)
            assert (await finished(child))[0] == 143


async def listening(port: int) -> None:
    """Wait until somebody accepts connections on `port`, at most 10 s."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.005)
            else:
                writer.transport.abort()
                return
