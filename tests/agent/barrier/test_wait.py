"""`inplace-agent wait`: nothing runs before the barrier of this Pod is lifted."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from inplace.agent.start.agent_file import leave_agent_file
from testbed.ports import free_ports
from tests.agent.process import ROOT, environment, finished, modules_loaded_by, process
from tests.agent.scripted_server import ScriptedServer, jobset, silence, until_patched
from tests.agent.supervisor_rig import takes, until
from tests.agent.test_start_path import FORBIDDEN

WAIT = (sys.executable, "-m", "inplace.agent", "wait")


def variables(port: int, **more: str) -> dict[str, str]:
    """Return a worker container's environment."""
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "BARRIER_PORT": str(port)} | more


@pytest.mark.asyncio
async def test_it_waits_for_the_lift_and_then_becomes_the_command(tmp_path: Path) -> None:
    """Started before the agent, it outlasts 'nobody there' and 'not yet', and hands the epoch to the command."""
    (port,) = free_ports(1)
    lift = asyncio.Event()

    async def lifted(exchange: object) -> None:
        await lift.wait()

    script = (jobset(0), until_patched(), lifted, jobset(1, 0), silence)
    command = (*WAIT, "--", "sh", "-c", "echo $INPLACE_EPOCH $INPLACE_RESTART_COUNT; exit 5")
    async with (
        process(variables(port), *command) as waiting,
        ScriptedServer(watches=[script]) as server,
        process(environment(tmp_path, server, BARRIER_PORT=str(port))) as agent,
    ):
        await server.until(lambda: bool(server.requests("PATCH")))
        early = waiting.returncode
        lift.set()
        async with asyncio.timeout(10):
            output, _ = await waiting.communicate()
        agent.terminate()
        assert (await finished(agent))[0] == 143
        assert (early, waiting.returncode, output) == (None, 5, b"1 0\n")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "no agent there yet"),
        (b"HTTP/1.1 200 OK\r\n\r\nwelcome", "not the agent's"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"ok": true}', "not the agent's"),
        (b'HTTP/1.1 503 Service Unavailable\r\n\r\n{"lifted": false, "phase": "waiting"}', "the barrier is up"),
    ],
)
@pytest.mark.asyncio
async def test_it_gives_up_in_words(answer: bytes | None, words: str) -> None:
    """After --timeout the exit code is 1, and the message says what was there instead of a lifted barrier."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer or b"")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1] if answer else free_ports(1)[0]
    async with server, process(variables(port), *WAIT, "--timeout", "0.2") as waiting:
        async with asyncio.timeout(10):
            _, errors = await waiting.communicate()
    assert waiting.returncode == 1
    assert words in errors.decode()


@pytest.mark.asyncio
async def test_a_signal_ends_the_wait() -> None:
    """A Pod that is deleted at the barrier does not wait for its grace period."""
    async with process(variables(*free_ports(1)), *WAIT) as waiting:
        await until(lambda: takes(waiting.pid, signal.SIGTERM), "a handler")
        waiting.terminate()
        async with asyncio.timeout(10):
            assert await waiting.wait() == 143


@pytest.mark.parametrize(("name", "value"), [("BARRIER_PORT", "http"), ("BARRIER_PATH", "/metrics")])
@pytest.mark.asyncio
async def test_a_bad_setting_is_refused(name: str, value: str) -> None:
    """The same names and rules as the agent's."""
    async with process(variables(1) | {name: value}, *WAIT) as waiting:
        async with asyncio.timeout(10):
            _, errors = await waiting.communicate()
    assert waiting.returncode == 2
    assert name in errors.decode()


@pytest.mark.parametrize(
    ("head", "state", "epoch"),
    [
        (b"HTTP/1.1 200 OK\r\nInplace-Epoch: 7\r\n\r\n", b"{}", b"7"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b'{"lifted": true, "epoch": 7}', b"7"),  # an agent that knows no such header
        (b"HTTP/1.1 200 OK\r\ninplace-epoch: 0\r\n\r\n", b'{"lifted": true}', b""),  # in-place restart is off
    ],
)
@pytest.mark.asyncio
async def test_a_lifted_barrier_names_its_epoch(head: bytes, state: bytes, epoch: bytes) -> None:
    """In a header, so that no JSON has to be loaded; agents of before say it in the body alone."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + state)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, process(variables(port), *WAIT, "--", "sh", "-c", "echo $INPLACE_EPOCH") as waiting:
        async with asyncio.timeout(10):
            output, _ = await waiting.communicate()
    assert (waiting.returncode, output) == (0, epoch + b"\n")


def test_it_loads_nothing_heavy() -> None:
    """It stands in front of every start of a worker: up to its answer, modules that make enums are too dear as well."""
    loaded = modules_loaded_by(
        "import inplace.agent.main, inplace.agent.start.arguments as a, inplace.agent.barrier.wait as w;"
        "w.lifted_epoch(b'HTTP/1.1 200 OK\\r\\ninplace-epoch: 1'); a.parse(['wait', '--', 'true'], {})"
    )
    dear = FORBIDDEN | {"collections", "enum", "functools", "json", "re", "signal", "socket", "ssl"}
    assert loaded & dear == set()


def test_the_agent_leaves_itself_for_the_worker(tmp_path: Path) -> None:
    """Once: the file that is there already stays, and another is replaced; what went wrong is told."""
    source, target = tmp_path / "agent.pyz", tmp_path / "left"
    source.write_bytes(b"new")
    target.write_bytes(b"older")
    assert leave_agent_file(str(target), str(source)) is None
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o755)
    before = target.stat().st_ino
    assert leave_agent_file(str(target), str(source)) is None
    assert target.stat().st_ino == before
    assert "AGENT_FILE: cannot copy" in str(leave_agent_file(str(tmp_path / "no/folder"), str(source)))
