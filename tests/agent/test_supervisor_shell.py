"""The supervisor's shell around a worker that misbehaves as no real process can be made to."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from inplace.agent.agent import Agent
from inplace.agent.deps import AgentDeps
from inplace.agent.settings.arguments import WorkerOptions
from inplace.agent.settings.exit_code import ExitCode
from inplace.agent.settings.herd import Herd
from inplace.agent.worker.worker import Worker, WorkerStuckError
from inplace.common.bare.record import replace
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.http1 import Http1Transport
from tests.agent.rig import CONFIG, RUN_S_MAX, ImpatientClock, NotedBarrier, NotedLog
from tests.agent.scripted_server import ScriptedServer, Step, jobset, silence, until_patched

pytestmark = pytest.mark.asyncio
LAST_OF_MANY = Herd(10_000, 9_999, 0.99, window_s_max=28.0)  # its patch after a group restart comes after 7 s


class UndeadWorker(Worker):
    """Runs for ever, whatever signal it gets; how it fails is a subclass's."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.starts: list[dict[str, str]] = []

    def start(self, env: Mapping[str, str]) -> None:
        """Run."""
        self.starts.append(dict(env))

    async def exited(self) -> int:
        """Never."""
        await asyncio.Event().wait()
        raise AssertionError

    def signal(self, number: int) -> None:
        """Note it."""
        self.signals.append(number)

    async def close(self) -> None:
        """Note the last attempt."""
        self.signals.append(-1)


class StickyWorker(UndeadWorker):
    """Dies, and leaves something that does not."""

    async def exited(self) -> int:
        """Die at once."""
        return 1

    async def gone(self) -> None:
        """Be stuck."""
        raise WorkerStuckError("planted")


class ObedientWorker(UndeadWorker):
    """Ends when it is told to, the first one by itself if `first_dies`; the second start is the test's end."""

    supervisor: Agent

    def __init__(self, *, first_dies: bool) -> None:
        super().__init__()
        self._first_dies = first_dies
        self._ended = asyncio.Event()

    def start(self, env: Mapping[str, str]) -> None:
        """Run."""
        super().start(env)
        self._ended.clear()
        if len(self.starts) == 2:
            asyncio.get_running_loop().call_soon(self.supervisor.keeper.terminate, signal.SIGTERM)
        elif self._first_dies:
            self._ended.set()

    async def exited(self) -> int:
        """End."""
        await self._ended.wait()
        return 1

    def signal(self, number: int) -> None:
        """Obey."""
        super().signal(number)
        self._ended.set()


async def run(
    worker: UndeadWorker, *views: tuple[int, int] | Step, clock: ImpatientClock | None = None, **config: Any
) -> tuple[int, NotedLog, ScriptedServer]:
    """Run a supervisor whose clock never waits, with a JobSet that shows `views`; return how it ended."""
    clock, log = clock or ImpatientClock(), NotedLog()
    shown = (jobset(*view, rv=20 + at) if isinstance(view, tuple) else view for at, view in enumerate(views))
    watches = [[*shown, silence]]
    async with ScriptedServer(lists=[jobset(0)], watches=watches) as server:
        transport = Http1Transport(Credentials("127.0.0.1", server.port, tls=False), clock=clock)
        deps = AgentDeps(transport=transport, clock=clock, rng=Random(7), barrier=NotedBarrier(), log=log)
        options = WorkerOptions(("worker",))
        supervisor = Agent(replace(CONFIG, **config), deps, worker=worker, options=options)
        if isinstance(worker, ObedientWorker):
            worker.supervisor = supervisor
        try:
            async with asyncio.timeout(RUN_S_MAX):
                return await supervisor.run(), log, server
        finally:
            await transport.close()


async def test_a_main_process_that_survives_sigkill_ends_the_pod() -> None:
    """It hangs in the kernel: SIGTERM, SIGKILL, then exit 5, and the next epoch is never announced."""
    worker = UndeadWorker()
    code, log, server = await run(worker, (1, 0), (1, 1))
    assert code == ExitCode.WORKER_STUCK
    assert worker.signals == [signal.SIGTERM, signal.SIGKILL, -1]
    assert len(log.of("worker_stuck")) == 1
    assert len(server.requests("PATCH")) == 1


async def test_leftovers_that_survive_sigkill_end_the_pod() -> None:
    """The same for a child that the worker left behind."""
    code, log, server = await run(StickyWorker(), (1, 0))
    assert code == ExitCode.WORKER_STUCK
    assert log.of("worker_stuck")[0]["message"] == "planted"
    assert len(server.requests("PATCH")) == 1


@pytest.mark.parametrize(("first_dies", "views", "slots"), [(False, [(1, 0), (1, 1)], 1), (True, [(1, 0)], 0)])
async def test_what_the_whole_group_saw_is_answered_in_a_slot(
    views: list[tuple[int, int]], slots: int, *, first_dies: bool
) -> None:
    """A view that restarts all 5,000 Pods lets each wait for its own moment, once; who found out by itself does not."""
    clock = ImpatientClock()
    worker = ObedientWorker(first_dies=first_dies)
    code, _, _ = await run(worker, *views, until_patched(2), (2, 1), clock=clock, herd=LAST_OF_MANY)
    assert code == 128 + signal.SIGTERM
    assert len([slept_s for slept_s in clock.slept_s if 6.0 < slept_s <= 7.0]) == slots
