"""The agent as a process: exit codes, signals, and what it says."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from tests.agent.process import COMMAND, environment, environment_in_cluster, finished, process
from tests.agent.scripted_server import Exchange, ScriptedServer, jobset, silence

pytestmark = pytest.mark.asyncio

FINISH = (jobset(1, 0, rv=20), jobset(1, 1, rv=30))


async def test_a_group_restart_ends_with_the_configured_code(tmp_path: Path) -> None:
    """From exec to exit X: three requests, one connection, and a log that tells the story in order."""
    async with ScriptedServer(lists=[jobset(0)], watches=[FINISH]) as server:
        env = environment(tmp_path, server, RESTART_POD_IN_PLACE_EXIT_CODE="77", PREVIOUS_EPOCH="one")
        async with process(env) as child:
            code, lines = await finished(child)
    assert code == 77
    assert [request.method for request in server.received] == ["GET", "PATCH", "GET"]
    assert server.connections == 1
    assert [line["event"] for line in lines] == [
        "setting_ignored",
        "agent_started",
        "announcement_accepted",
        "barrier_lifted",
        "restarting_in_place",
    ]
    assert [line["timestamp"] for line in lines] == sorted(str(line["timestamp"]) for line in lines)


async def test_the_default_code_is_ours(tmp_path: Path) -> None:
    """Without a configured code the agent exits 88."""
    async with (
        ScriptedServer(lists=[jobset(0)], watches=[FINISH]) as server,
        process(environment(tmp_path, server)) as child,
    ):
        assert (await finished(child))[0] == 88


async def test_bad_settings_end_before_any_request(tmp_path: Path) -> None:
    """Exit 2, every problem at once (the credentials' too), and the server never hears of it."""
    async with ScriptedServer() as server:
        env = environment(tmp_path, server, NAMESPACE="NO", BARRIER_PORT="x", KUBECONFIG=str(tmp_path / "none"))
        async with process(env, *COMMAND, "--help") as child:
            code, lines = await finished(child)
    assert code == 2
    assert [str(line["message"]).split(":")[0] for line in lines] == [
        "arguments",
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
    assert f"127.0.0.1 port {port}" in str(lines[-1]["message"])


async def hold(exchange: Exchange) -> None:
    """Accept the request and never answer."""
    await asyncio.Event().wait()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize(
    ("server", "requests"),
    [
        pytest.param(lambda: ScriptedServer(lists=[hold]), 1, id="no answer to the list"),
        pytest.param(lambda: ScriptedServer(lists=[jobset(0)], answer=hold), 2, id="no answer to the announcement"),
        pytest.param(lambda: ScriptedServer(watches=[(hold,)]), 2, id="no answer to the watch"),
        pytest.param(lambda: ScriptedServer(), 2, id="watching, no view yet"),
        pytest.param(lambda: ScriptedServer(lists=[jobset(0)]), 3, id="waiting at the barrier"),
        pytest.param(lambda: ScriptedServer(lists=[jobset(0)], watches=[(jobset(1), silence)]), 3, id="lifted"),
    ],
)
async def test_a_signal_ends_the_agent_at_any_moment(
    tmp_path: Path, number: signal.Signals, code: int, server: Callable[[], ScriptedServer], requests: int
) -> None:
    """SIGTERM is 143 and SIGINT 130, whatever the agent is waiting for, well within kubelet's 2 s."""
    async with server() as listening_server:
        async with process(environment(tmp_path, listening_server)) as child:
            await listening_server.until(lambda: len(listening_server.received) == requests)
            child.send_signal(number)
            async with asyncio.timeout(2):
                ended, lines = await finished(child)
        assert ended == code
        assert lines[-1]["event"] == "signalled"


async def test_a_server_that_accepts_and_never_answers_is_waited_for(tmp_path: Path) -> None:
    """TLS' handshake gets no answer: the agent stays, answers its probes, and ends at the first signal."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = environment_in_cluster(tmp_path, ScriptedServer(port=silent.getsockname()[1]), trustme.CA())
        async with process(env) as child:
            await answering(int(env["BARRIER_PORT"]))
            child.send_signal(signal.SIGTERM)
            code, lines = await finished(child)
    assert code == 143
    assert [line["event"] for line in lines] == ["agent_started", "signalled"]


async def answering(port: int) -> None:
    """Wait until the barrier answers, at most 10 s."""
    async with asyncio.timeout(10):
        await listening(port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: pod\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.transport.abort()


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
