"""The supervisor's shell around a worker that misbehaves as no real process can be made to."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from random import Random

import pytest

from agent.arguments import RunOptions
from agent.exit_code import ExitCode
from agent.supervisor import Supervisor
from agent.worker import NOT_FOUND, WorkerStartError, WorkerStuckError
from common.kube.credentials import Credentials
from common.kube.http1 import Http1Transport
from tests.agent.rig import CONFIG, RUN_S_MAX, ImpatientClock, NotedBarrier, NotedLog
from tests.agent.scripted_server import ScriptedServer, jobset, silence

pytestmark = pytest.mark.asyncio


class UndeadWorker:
    """Runs for ever, whatever signal it gets; how it fails is a subclass's."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.starts: list[dict[str, str]] = []

    def prepare(self) -> None:
        """Nothing to see."""

    def stage(self) -> None:
        """Not used here."""

    def start(self, env: Mapping[str, str]) -> None:
        """Run."""
        self.starts.append(dict(env))

    async def exited(self) -> int:
        """Never."""
        await asyncio.Event().wait()
        raise AssertionError

    async def gone(self) -> None:
        """Be gone at once."""

    def signal(self, number: int) -> None:
        """Note it."""
        self.signals.append(number)

    def kill(self) -> None:
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


class AbsentWorker(UndeadWorker):
    """Its command is not there any more; SIGTERM comes in the same turn of the loop."""

    supervisor: Supervisor

    def start(self, env: Mapping[str, str]) -> None:
        """Fail, with a signal on its way."""
        asyncio.get_running_loop().call_soon(self.supervisor.terminate, signal.SIGTERM)
        raise WorkerStartError("planted", NOT_FOUND)


async def run(worker: UndeadWorker, *views: tuple[int, int]) -> tuple[int, NotedLog, ScriptedServer]:
    """Run a supervisor whose clock never waits, with a JobSet that shows `views`; return how it ended."""
    clock, log = ImpatientClock(), NotedLog()
    watches = [[*(jobset(*view, rv=20 + at) for at, view in enumerate(views)), silence]]
    async with ScriptedServer(lists=[jobset(0)], watches=watches) as server:
        transport = Http1Transport(Credentials("127.0.0.1", server.port, tls=False), clock=clock)
        supervisor = Supervisor(
            CONFIG,
            worker=worker,
            options=RunOptions(("worker",)),
            transport=transport,
            clock=clock,
            rng=Random(7),
            barrier=NotedBarrier(),
            log=log,
        )
        if isinstance(worker, AbsentWorker):
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


async def test_a_signal_beside_a_failed_start_does_not_hang() -> None:
    """SIGTERM between the failure and its report: nobody waits for the grace of a worker that never was."""
    code, _, server = await run(AbsentWorker(), (1, 0))
    assert code == NOT_FOUND
    assert len(server.requests("PATCH")) == 1
