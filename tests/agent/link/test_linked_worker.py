"""Depth `process`: real guards start and end their workers as the agent's end of the link says, and stay."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from inplace.agent.link import linked_worker
from inplace.agent.link.linked_worker import LinkedWorker, WorkerLostError, WorkerStuckError
from inplace.agent.link.server import LinkServer
from inplace.agent.worker.process_tree import STUCK_S
from inplace.common.kube.clock import LoopClock
from inplace.common.protocol.link import LINK_PROCESS, Absent, Failed, Hello, Lifted, Signal, Started, line_of
from inplace.common.wire.names import DEPTH_PROCESS
from tests.agent.link.test_agent_end import connected, ended
from tests.agent.rig import NotedLog, ShortClock
from tests.agent.supervisor_rig import DEAF, RUN, until
from tests.agent.test_guard import RSS_MB_MAX, Guarded, agent_at, guarded
from tests.agent.test_start_path import rss_mb

pytestmark = pytest.mark.asyncio


class Linked(LinkedWorker):
    """The agent's side, with its log."""

    def __init__(self, path: Path, clock: LoopClock) -> None:
        self.log = NotedLog()
        server = LinkServer(str(path / "link"), DEPTH_PROCESS, clock=clock, log=self.log)
        super().__init__(server, stays=True, clock=clock, log=self.log)

    def lift(self, epoch: int) -> None:
        """Let the workers start."""
        self.start(Lifted(epoch))

    async def over(self) -> int:
        """Wait for the worker's end, and until nothing is left of it; return its exit code."""
        async with asyncio.timeout(20):
            code = await self.exited()
            await self.gone()
        return code


@asynccontextmanager
async def linked(path: Path, clock: LoopClock | None = None) -> AsyncIterator[Linked]:
    """Serve the link."""
    worker = Linked(path, clock or LoopClock())
    await worker.prepare()
    try:
        yield worker
    finally:
        await worker.close()


async def noted(group: Guarded, epoch: int) -> None:
    """Wait for the worker of an epoch."""
    await group.noted(f"epoch-{epoch}")


WORKER = "note('epoch-' + os.environ['INPLACE_EPOCH'])\n"


async def test_a_worker_that_dies_is_started_again_in_the_same_container(tmp_path: Path) -> None:
    """With its leftovers gone BEFORE the agent hears that it is, and in the next epoch's environment."""
    async with linked(tmp_path) as worker, guarded(tmp_path, WORKER + "daemon(linger)\n" + RUN) as group:
        for epoch in (1, 2, 3):
            worker.lift(epoch)
            await noted(group, epoch)
            await until(worker.runs, "the worker's start")
            await until(lambda: len(group.tree()) == 2, "the worker and its daemon")
            main = next(pid for pid in group.tree() if parent_of(pid) == group.child.pid)
            signal_process(main)
            assert await worker.over() == 128 + signal.SIGKILL
            assert group.tree() == []
            assert group.child.returncode is None
        assert rss_mb(group.child.pid) <= RSS_MB_MAX  # with what it needs to find a tree
        await worker.close()
        assert (await group.finished())[0] == 143


async def test_a_group_restart_ends_the_worker_and_keeps_the_guard(tmp_path: Path) -> None:
    """SIGTERM first, with the guard's own grace, and SIGKILL for what is deaf to it."""
    async with linked(tmp_path) as worker, guarded(tmp_path, DEAF, "--grace", "7.5") as group:
        worker.lift(1)
        await group.noted("main")
        assert worker.grace_s() == 7.5
        worker.signal(signal.SIGTERM)
        await asyncio.sleep(0.1)
        assert group.tree() != []
        worker.signal(signal.SIGKILL)
        await worker.over()
        assert group.tree() == []
        worker.lift(2)
        await until(worker.runs, "the next worker")


@pytest.mark.parametrize("code", [0, 42])
async def test_an_end_that_is_the_pods_ends_the_container(tmp_path: Path, code: int) -> None:
    """The agent goes on, because its Pod's other containers may run; a restart after that needs clean containers."""
    program = f"sys.exit({code})"
    async with linked(tmp_path) as worker, guarded(tmp_path, program, "--fail-on", "42") as group:
        worker.lift(1)
        assert (await group.finished())[0] == code
        await asyncio.sleep(0.05)
        ending = asyncio.ensure_future(worker.over())
        await asyncio.sleep(0.05)
        assert not ending.done()
        worker.signal(signal.SIGTERM)
        with pytest.raises(WorkerLostError):
            await ending


async def test_a_guard_that_is_killed_loses_the_worker(tmp_path: Path) -> None:
    """Only kubelet starts its container again: nothing is said to be gone."""
    async with linked(tmp_path) as worker, guarded(tmp_path, RUN) as group:
        worker.lift(1)
        await group.noted("main")
        group.child.kill()
        with pytest.raises(WorkerLostError):
            await worker.exited()
        with pytest.raises(WorkerLostError):
            await worker.gone()
        await until(lambda: group.tree() == [], "the worker's end")


async def test_workers_of_one_pod_end_together(tmp_path: Path) -> None:
    """One dies, the other is killed, and only then is nothing left; both start again."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    link = str(tmp_path / "link")
    async with (
        linked(tmp_path) as worker,
        guarded(first, WORKER + "time.sleep(0.5); sys.exit(3)", LINK_FILE=link) as dies,
        guarded(second, WORKER + DEAF, LINK_FILE=link) as deaf,
    ):
        for epoch in (1, 2):
            worker.lift(epoch)
            await noted(dies, epoch)
            await noted(deaf, epoch)
            assert await worker.over() == 3
            assert dies.tree() + deaf.tree() == []


async def test_a_guard_that_comes_late_starts_with_the_others(tmp_path: Path) -> None:
    """Its image may have taken longer; a guard that comes while workers end waits."""
    async with linked(tmp_path) as worker:
        worker.lift(4)
        async with connected(tmp_path) as (reader, writer):
            writer.write(line_of(Hello()) + line_of(Absent(0)))
            assert await reader.readline() == line_of(Hello(LINK_PROCESS))
            assert await reader.readline() == line_of(Lifted(4))
            worker.signal(signal.SIGTERM)
            assert await reader.readline() == line_of(Signal(15))
            async with connected(tmp_path) as (late, writes):
                writes.write(line_of(Hello()) + line_of(Absent(0)))
                assert await late.readline() == line_of(Hello(LINK_PROCESS))
                writer.write(line_of(Started(4)) + line_of(Absent(0)))
                await worker.over()
                worker.lift(5)
                assert await late.readline() == line_of(Lifted(5))


@pytest.mark.parametrize("said", [Started(3), Failed(3, 1), Absent(0)])
async def test_a_guard_that_lies_is_not_believed(tmp_path: Path, said: Started | Failed | Absent) -> None:
    """It was not lifted in that epoch, or nobody told it to end: its connection is closed, and its worker is lost."""
    async with linked(tmp_path) as worker:
        worker.lift(4)
        async with connected(tmp_path) as (reader, writer):
            writer.write(line_of(Hello()) + line_of(Absent(0)))
            await reader.readline()
            assert await reader.readline() == line_of(Lifted(4))
            writer.write(line_of(said))
            assert await ended(reader)
        assert "expected no" in worker.log.of("link_refused")[0]["message"]
        with pytest.raises(WorkerLostError):
            await worker.exited()


async def test_a_guard_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stopped (SIGSTOP) neither ends its worker nor says so; the Pod is not announced."""
    assert linked_worker.GONE_S_MAX > STUCK_S
    async with linked(tmp_path, ShortClock()) as worker:
        worker.lift(4)
        async with connected(tmp_path) as (reader, writer):
            writer.write(line_of(Hello()) + line_of(Absent(0)))
            await reader.readline()
            writer.write(line_of(Failed(4, 1)))
            assert await worker.exited() == 1
            with pytest.raises(WorkerStuckError, match="a guard has said nothing"):
                await worker.gone()


async def test_an_agent_of_a_newer_version_is_refused_once(tmp_path: Path) -> None:
    """The guard says so one time, not at each of fifty connections a second, and starts nothing."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(b"inplace-link 9\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, str(tmp_path / "link"))
    async with server, guarded(tmp_path, RUN) as group:
        await until(lambda: connections >= 5, "five connections")
        assert group.tree() == []
        group.child.terminate()
        _, said = await group.finished()
    assert said.count("expected 'inplace-link 1' or 'inplace-link 2' first, saw b'inplace-link 9'") == 1
    assert "run the same inplace-agent in all containers" in said


async def test_depth_containers_still_ends_with_its_worker(tmp_path: Path) -> None:
    """The same guard, told by an agent of the other depth."""
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, "sys.exit(7)") as group:
        agent.lift(1)
        assert (await group.finished())[0] == 7


def parent_of(pid: int) -> int:
    """Return a process's parent."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:  # noqa: PTH123
        return int(stat.read().rpartition(")")[2].split()[1])


def signal_process(pid: int) -> None:
    """Kill a process."""
    os.kill(pid, signal.SIGKILL)
