"""The agent beside a guard whose worker misbehaves as no real process can be made to."""

from __future__ import annotations

import asyncio
import signal
from random import Random
from typing import Any

import pytest

from inplace.agent.agent import Agent
from inplace.agent.deps import AgentDeps
from inplace.agent.link.linked_worker import GONE_S_MAX
from inplace.agent.link.server import GuardServer, Listener
from inplace.agent.settings.exit_code import ExitCode
from inplace.agent.settings.herd import Herd
from inplace.agent.start.sidecar import agent_of
from inplace.common.bare.record import replace
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.protocol.link import Absent, Failed, Lifted, Message, Signal, Started
from inplace.common.wire.names import DEPTH_PROCESS
from tests.agent.rig import CONFIG, RUN_S_MAX, ImpatientClock, NotedBarrier, NotedLog
from tests.agent.scripted_server import ScriptedServer, Step, jobset, silence, until_patched

pytestmark = pytest.mark.asyncio
LAST_OF_MANY = Herd(10_000, 9_999, 0.99, window_s_max=28.0)  # its patch after a group restart comes after 7 s


class UndeadGuard(GuardServer):
    """A guard whose worker runs for ever, whatever signal it gets; how it fails is a subclass's."""

    agent: Agent

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.lifts = 0

    async def start(self, listener: Listener) -> None:
        """Wait for a lift."""
        self._listener = listener
        listener.greeted(1)
        self._say(Absent(2000))

    def tell(self, peer: int, message: Message) -> None:
        """Start the worker, or note a signal."""
        if isinstance(message, Lifted):
            self.lifts += 1
            asyncio.get_running_loop().call_soon(self.lifted, message.epoch)
        elif isinstance(message, Signal):
            self.signals.append(message.number)
            self.signalled()

    def tell_all(self, message: Message) -> None:
        """Note that the agent leaves."""
        self.signals.append(-1)

    def lifted(self, epoch: int) -> None:
        """Start the worker."""
        self._say(Started(epoch))

    def signalled(self) -> None:
        """Ignore it."""

    def _say(self, message: Message) -> None:
        self._listener.heard(1, message)


class StickyGuard(UndeadGuard):
    """Its worker dies, and leaves something that does not."""

    def lifted(self, epoch: int) -> None:
        """Die at once."""
        self._say(Started(epoch))
        self._say(Failed(epoch, 1))


class ObedientGuard(UndeadGuard):
    """Its worker ends when it is told to, the first one by itself if `first_dies`; the second is the test's end."""

    def __init__(self, *, first_dies: bool) -> None:
        super().__init__()
        self._first_dies = first_dies

    def lifted(self, epoch: int) -> None:
        """Run."""
        super().lifted(epoch)
        if self.lifts == 2:
            self.agent.keeper.terminate(signal.SIGTERM)
        elif self._first_dies:
            self._say(Failed(epoch, 1))
            self._say(Absent(2000))

    def signalled(self) -> None:
        """Obey."""
        self._say(Absent(2000))


class HastyClock(ImpatientClock):
    """Nobody waits for a guard's last word."""

    def timeout(self, delay_s: float | None) -> asyncio.Timeout:
        """Shorten that bound."""
        return super().timeout(0.05 if delay_s == GONE_S_MAX else delay_s)


async def run(
    guard: UndeadGuard, *views: tuple[int, int] | Step, clock: ImpatientClock | None = None, **config: Any
) -> tuple[int, NotedLog, ScriptedServer]:
    """Run an agent whose clock never waits, with a JobSet that shows `views`; return how it ended."""
    clock, log = clock or ImpatientClock(), NotedLog()
    shown = (jobset(*view, rv=20 + at) if isinstance(view, tuple) else view for at, view in enumerate(views))
    watches = [[*shown, silence]]
    async with ScriptedServer(lists=[jobset(0)], watches=watches) as server:
        transport = Http1Transport(Credentials("127.0.0.1", server.port, tls=False), clock=clock)
        deps = AgentDeps(transport=transport, clock=clock, rng=Random(7), barrier=NotedBarrier(), log=log)
        guard.agent = agent_of(replace(CONFIG, restart_depth=DEPTH_PROCESS, **config), deps, guard)
        try:
            async with asyncio.timeout(RUN_S_MAX):
                return await guard.agent.run(), log, server
        finally:
            await transport.close()


async def test_a_main_process_that_survives_sigkill_ends_the_pod() -> None:
    """It hangs in the kernel: SIGTERM, SIGKILL, then exit 5, and the next epoch is never announced."""
    guard = UndeadGuard()
    code, log, server = await run(guard, (1, 0), (1, 1))
    assert code == ExitCode.WORKER_STUCK
    assert guard.signals == [signal.SIGTERM, signal.SIGKILL, -1]
    assert len(log.of("worker_stuck")) == 1
    assert len(server.requests("PATCH")) == 1


async def test_leftovers_that_survive_sigkill_end_the_pod() -> None:
    """The same for a child that the worker left behind."""
    code, log, server = await run(StickyGuard(), (1, 0), clock=HastyClock())
    assert code == ExitCode.WORKER_STUCK
    assert log.of("worker_stuck")[0]["message"].startswith("a guard has said nothing for 35 s")
    assert len(server.requests("PATCH")) == 1


@pytest.mark.parametrize(("first_dies", "views", "slots"), [(False, [(1, 0), (1, 1)], 1), (True, [(1, 0)], 0)])
async def test_what_the_whole_group_saw_is_answered_in_a_slot(
    views: list[tuple[int, int]], slots: int, *, first_dies: bool
) -> None:
    """A view that restarts all 5,000 Pods lets each wait for its own moment, once; who found out by itself does not."""
    clock = ImpatientClock()
    guard = ObedientGuard(first_dies=first_dies)
    code, _, _ = await run(guard, *views, until_patched(2), (2, 1), clock=clock, herd=LAST_OF_MANY)
    assert code == 128 + signal.SIGTERM
    assert len([slept_s for slept_s in clock.slept_s if 6.0 < slept_s <= 7.0]) == slots
