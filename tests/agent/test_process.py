"""The agent as a process: exit codes, signals, and log lines."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from inplace.agent.report.phases import boot_s
from inplace.agent.settings.config import AgentConfig
from tests.agent.process import environment, environment_in_cluster, finished, process
from tests.agent.scripted_server import (
    SYNC_THEN_RESTART,
    Exchange,
    ScriptedServer,
    hangs,
    jobset,
    silence,
    until_patched,
)

pytestmark = pytest.mark.asyncio


async def test_a_group_restart_ends_with_the_configured_code(tmp_path: Path) -> None:
    """From exec to exit X the agent sends three requests on one connection and logs each step in order."""
    async with ScriptedServer(lists=[jobset(0)], watches=[SYNC_THEN_RESTART]) as server:
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
        ScriptedServer(lists=[jobset(0)], watches=[SYNC_THEN_RESTART]) as server,
        process(environment(tmp_path, server)) as child,
    ):
        assert (await finished(child))[0] == 88


async def test_bad_settings_end_before_any_request(tmp_path: Path) -> None:
    """The agent exits with 2, reports every problem at once (of the credentials too), and sends no request."""
    async with ScriptedServer() as server:
        env = environment(tmp_path, server, NAMESPACE="NO", BARRIER_PORT="x", KUBECONFIG=str(tmp_path / "none"))
        async with process(env) as child:
            code, lines = await finished(child)
    assert code == 2
    assert [str(line["message"]).split(":")[0] for line in lines] == ["NAMESPACE", "BARRIER_PORT", "KUBECONFIG"]
    assert server.connections == 0


@pytest.mark.parametrize("setting", ["SAVE_WITHIN_S", "STALL_AFTER_S"])
async def test_a_sidecar_without_a_guard_asks_and_watches_nobody(tmp_path: Path, setting: str) -> None:
    """It says so, and sends nothing."""
    async with ScriptedServer(lists=[jobset(0)]) as server:
        env = environment(tmp_path, server, EPOCH_FILE=str(tmp_path / "epoch")) | {setting: "60"}
        async with process(env) as child:
            code, lines = await finished(child)
        assert code == 2
        assert "expected LINK_FILE beside it, and a guard" in str(lines[0]["message"])
        assert server.requests("GET") == []


async def test_a_barrier_port_in_use_ends_before_any_request(tmp_path: Path) -> None:
    """The agent exits with 3, names address and port, and announces nothing."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with ScriptedServer() as server:
            async with process(environment(tmp_path, server, BARRIER_PORT=str(port))) as child:
                code, lines = await finished(child)
            assert server.received == []
    assert code == 3
    assert f"127.0.0.1 port {port}" in str(lines[-1]["message"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize(
    ("server", "requests"),
    [
        pytest.param(lambda: ScriptedServer(lists=[hangs]), 1, id="no answer to the list"),
        pytest.param(lambda: ScriptedServer(lists=[jobset(0)], answer=hangs), 2, id="no answer to the announcement"),
        pytest.param(lambda: ScriptedServer(watches=[(hangs,)]), 2, id="no answer to the watch"),
        pytest.param(lambda: ScriptedServer(), 2, id="watching, no view yet"),
        pytest.param(lambda: ScriptedServer(lists=[jobset(0)]), 3, id="waiting at the barrier"),
        pytest.param(lambda: ScriptedServer(lists=[jobset(0)], watches=[(jobset(1), silence)]), 3, id="lifted"),
    ],
)
async def test_a_signal_ends_the_agent_at_any_moment(
    tmp_path: Path, number: signal.Signals, code: int, server: Callable[[], ScriptedServer], requests: int
) -> None:
    """SIGTERM ends the agent with 143 and SIGINT with 130, in every wait, well within kubelet's 2 s."""
    async with server() as listening_server:
        async with process(environment(tmp_path, listening_server)) as child:
            await listening_server.until(lambda: len(listening_server.received) == requests)
            child.send_signal(number)
            async with asyncio.timeout(2):
                ended, lines = await finished(child)
        assert ended == code
        assert lines[-1]["event"] == "signalled"


async def test_a_server_that_accepts_and_never_answers_is_waited_for(tmp_path: Path) -> None:
    """When the TLS handshake gets no answer, the agent waits, answers its probes, and ends at the first signal."""
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
    """A signal ends the agent while a server does not accept its connection."""
    async with ScriptedServer() as server:
        env = environment(tmp_path, server)
    with socket.create_server(("127.0.0.1", server.port), backlog=0):
        async with process(env) as child:
            await listening(int(env["BARRIER_PORT"]))
            child.send_signal(signal.SIGTERM)
            assert (await finished(child))[0] == 143


SIGNALLED_IN_A_DESTRUCTOR = """
import os, signal, sys

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(10):
            pass

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "inplace.agent.start.loop":
            Dying()

sys.unraisablehook = lambda _: None
sys.meta_path.insert(0, Finder())
from inplace.agent.main import main
sys.exit(main())
"""


async def test_a_signal_that_python_drops_ends_the_agent(tmp_path: Path) -> None:
    """When Python drops the signal handler's exception, as in a destructor, the agent still ends."""
    async with ScriptedServer() as server:
        env = environment(tmp_path, server)
    with socket.create_server(("127.0.0.1", server.port), backlog=0):
        async with process(env, sys.executable, "-c", SIGNALLED_IN_A_DESTRUCTOR) as child:
            assert (await finished(child))[0] == 143


HUNG_IN_A_THREAD = """
import asyncio, sys, time
from inplace.agent.agent import Agent
run = Agent.run
async def run_beside_a_thread(self):
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    return await run(self)
Agent.run = run_beside_a_thread
from inplace.agent.main import main
sys.exit(main())
"""


async def test_what_hangs_does_not_hold_the_agent(tmp_path: Path) -> None:
    """A hanging thread (a name look-up) does not hold the process: it ends a second after the signal."""
    async with (
        ScriptedServer(watches=[(jobset(0), until_patched(), silence)]) as server,
        process(environment(tmp_path, server), sys.executable, "-c", HUNG_IN_A_THREAD) as child,
    ):
        await server.until(lambda: bool(server.requests("PATCH")))
        child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert (await finished(child))[0] == 143


async def listening(port: int) -> None:
    """Wait until a process accepts connections on `port`, at most 10 s."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.005)
            else:
                writer.transport.abort()
                return


async def test_an_agent_sends_nothing_before_its_slot(tmp_path: Path) -> None:
    """Without a head start the first request leaves at the slot's time, counted from the start of the process."""
    # Pod 150 of 302, one start per second: a window of 2 s, a slot of about one.
    place = {"GROUP_SIZE": "302", "GROUP_OFFSET": "100", "JOB_COMPLETION_INDEX": "50", "START_RATE_PER_S": "1"}
    config = AgentConfig.from_env({"NAMESPACE": "ns", "POD_NAME": "train-w-0-0", "JOBSET_NAME": "train"} | place)
    assert 0.99 < config.start_slot_s < 1.0
    async with ScriptedServer(watches=[(jobset(0), until_patched(), silence)]) as server:
        env = environment(tmp_path, server, **place)
        settings = Path(env["KUBECONFIG"])
        settings.write_text(settings.read_text().replace("127.0.0.1", "localhost"))  # a name gets no head start
        began_s = boot_s()
        async with process(env):
            await server.until(lambda: bool(server.received))
            assert boot_s() - began_s > config.start_slot_s - 0.02  # /proc shows process starts to 10 ms


@pytest.mark.parametrize("late_s", [0.0, 0.1])
async def test_an_agent_waits_for_its_slot_after_a_late_answer_only(tmp_path: Path, late_s: float) -> None:
    """It asks at once; after a late list the announcement leaves at the slot, and that is logged."""
    # Pod 300 of 303, one start per second: a window of 3 s.
    place = {"GROUP_SIZE": "303", "GROUP_OFFSET": "200", "JOB_COMPLETION_INDEX": "100", "START_RATE_PER_S": "1"}
    slot_s = 300 * 3 / 303

    async def lists(exchange: Exchange) -> None:
        await asyncio.sleep(late_s)
        await jobset(0)(exchange)

    async with ScriptedServer(lists=[lists], watches=[SYNC_THEN_RESTART]) as server:
        began_s = boot_s()
        async with process(environment(tmp_path, server, **place)) as child:
            await server.until(lambda: bool(server.received))
            assert boot_s() - began_s < slot_s
            await server.until(lambda: len(server.received) > 1)
            waited_s = boot_s() - began_s
            _, lines = await finished(child)
    assert [request.method for request in server.received] == ["GET", "PATCH", "GET"]
    assert server.connections == 1
    was_put_off = "start_put_off" in [line["event"] for line in lines]
    assert was_put_off or not late_s  # on a busy machine any answer may be late
    assert (waited_s >= slot_s - 0.02) == was_put_off


async def test_an_agent_that_waits_for_its_slot_can_be_observed(tmp_path: Path) -> None:
    """An agent that waits for a late slot serves its metrics meanwhile."""
    place = {"GROUP_SIZE": "341", "GROUP_OFFSET": "300", "JOB_COMPLETION_INDEX": "40", "START_RATE_PER_S": "1"}

    async def late(exchange: Exchange) -> None:
        await asyncio.sleep(0.1)
        await jobset(0)(exchange)

    async with ScriptedServer(lists=[late]) as server:
        env = environment(tmp_path, server, START_WINDOW_S="60", **place)
        async with process(env):
            await listening(int(env["BARRIER_PORT"]))
            await scrapable(int(env["BARRIER_PORT"]))
            assert [request.method for request in server.received] == ["GET"]


async def scrapable(port: int) -> None:
    """Wait until /metrics answers with 200, at most 20 s."""
    async with asyncio.timeout(20):
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n")
            status = await reader.readline()
            writer.transport.abort()
            if b" 200 " in status:
                return
            await asyncio.sleep(0.05)


SLEEPY = """
import time
time.sleep(0.3)
from inplace.agent.settings.config import AgentConfig
from inplace.agent.start.loop import _with_what_is_left_of_the_slot as left
print(left(AgentConfig("ns", "p", "j", start_slot_s=9.0)).start_slot_s)
print(left(AgentConfig("ns", "p", "j", start_slot_s=0.1)).start_slot_s)
"""


async def test_what_a_process_did_before_counts_towards_its_slot(tmp_path: Path) -> None:
    """After 0.3 s of imports a slot at 9 s is less than 8.7 s away, and a slot at 0.1 s has passed."""
    async with (
        ScriptedServer() as server,
        process(environment(tmp_path, server), sys.executable, "-c", SLEEPY) as child,
    ):
        async with asyncio.timeout(20):
            printed, _ = await child.communicate()
    long_s, short_s = map(float, printed.split())
    assert 0.0 < long_s <= 8.71
    assert short_s == 0.0
