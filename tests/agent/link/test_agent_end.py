"""The agent's end of the link against peers that are no guards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from inplace.agent.link.server import GUARDS_MAX
from inplace.agent.report.line_limit import LINES_A_MINUTE, PERIOD_S, LineLimit
from inplace.common.protocol.link import Ended, Ending, Failed, Hello, Lifted, Message, Started, line_of
from tests.agent.rig import ShortClock
from tests.agent.supervisor_rig import until
from tests.agent.test_guard import agent_at

pytestmark = pytest.mark.asyncio
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Peer]:
    """Connect as any process of the Pod may."""
    reader, writer = await asyncio.open_unix_connection(str(path / "link"))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def ended(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection, within a second."""
    async with asyncio.timeout(5):
        try:
            while await reader.read(100):
                pass
        except ConnectionError:
            pass
    return True


@pytest.mark.parametrize(
    "nonsense", [b"GET / HTTP/1.1\r\n\r\n", b"inplace-link 3\n", b"x" * 100_000, line_of(Hello()) + line_of(Lifted(3))]
)
async def test_nonsense_closes_the_connection(tmp_path: Path, nonsense: bytes) -> None:
    """An agent's own words from a guard are nonsense, too; the log says what was seen, and nobody died."""
    async with agent_at(tmp_path / "link") as agent:
        agent.lift(3)
        async with connected(tmp_path) as (reader, writer):
            writer.write(nonsense)
            assert await ended(reader)
        assert agent.deaths == []
        assert len(agent.log.of("link_refused")) == 1


@pytest.mark.parametrize("last", [Ended(3, 0), Ending(3), Failed(3, 1), None])
async def test_it_knows_while_a_worker_runs(tmp_path: Path, last: Message | None) -> None:
    """From its start until it ends, its Pod does, or its guard is gone; so long its silence means something."""
    async with agent_at(tmp_path / "link") as agent:
        agent.lift(3)
        async with connected(tmp_path) as (_, writer):
            writer.write(line_of(Hello()))
            assert not agent.runs()
            writer.write(line_of(Started(3)))
            await until(agent.runs, "the worker's start")
            if last is not None:
                writer.write(line_of(last))
                await until(lambda: not agent.runs(), "the worker's end")
        await until(lambda: not agent.runs(), "the guard's end")


async def test_a_silent_peer_is_dropped(tmp_path: Path) -> None:
    """Who does not say hello gets no place for long."""
    async with agent_at(tmp_path / "link", clock=ShortClock()), connected(tmp_path) as (reader, _):
        assert await ended(reader)


async def test_a_flood_leaves_the_guard_alone(tmp_path: Path) -> None:
    """More connections than guards are closed at once; the guard that was there hears the lift."""
    async with agent_at(tmp_path / "link") as agent, AsyncExitStack() as flood:
        reader, writer = await flood.enter_async_context(connected(tmp_path))
        writer.write(line_of(Hello()))
        assert await reader.readline() == line_of(Hello())
        others = [await flood.enter_async_context(connected(tmp_path)) for _ in range(GUARDS_MAX + 20)]
        assert await ended(others[-1][0])
        agent.lift(3)
        assert await reader.readline() == line_of(Lifted(3))


@pytest.mark.parametrize(("last_words", "code"), [(line_of(Failed(3, 9)), 9), (b"", None)])
async def test_each_death_is_told_once(tmp_path: Path, last_words: bytes, code: int | None) -> None:
    """A guard that says how its worker died is not told again by the end of its connection."""
    async with agent_at(tmp_path / "link") as agent:
        agent.lift(3)
        async with connected(tmp_path) as (reader, writer):
            writer.write(line_of(Hello()) + line_of(Started(3)) + last_words)
            assert await reader.readline() == line_of(Hello())
            await asyncio.sleep(0.02)
        await until(lambda: bool(agent.deaths), "a death")
        await asyncio.sleep(0.02)
        assert agent.deaths == [(3, code)]


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The agent goes on, without a link."""
    async with agent_at(tmp_path / "no" / "link") as agent:
        agent.lift(3)
        agent.leave()
        assert "LINK_FILE: cannot listen on" in agent.log.of("link_unavailable")[0]["message"]


async def test_a_long_path_works(tmp_path: Path) -> None:
    """A socket's address has 107 bytes; a longer path is reached through its folder."""
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    async with agent_at(folder / "link"):
        assert (folder / "link").is_socket()
        assert (folder / "link").stat().st_mode & 0o777 == 0o666


@pytest.mark.asyncio
async def test_nonsense_by_the_thousand_costs_ten_lines_a_minute(tmp_path: Path) -> None:
    """And a count of the lines that were left out."""
    async with agent_at(tmp_path / "link") as agent:
        for _ in range(30):
            async with connected(tmp_path) as (reader, writer):
                writer.write(b"nonsense\n")
                await reader.read()
    assert len(agent.log.of("link_refused")) == LINES_A_MINUTE
    assert [line["lines"] for line in agent.log.of("log_lines_left_out")] == [30 - LINES_A_MINUTE]


async def test_a_limit_begins_anew_each_minute() -> None:
    """The first line of the next minute says how many were left out."""
    now_s = 0.0
    limit = LineLimit(lambda: now_s)
    taken = [limit.take() for _ in range(LINES_A_MINUTE + 7)]
    assert taken == [0] * LINES_A_MINUTE + [None] * 7
    now_s = PERIOD_S
    assert [limit.take(), limit.take()] == [7, 0]
