"""One real agent over real sockets against a scripted server, with a clock that makes no test wait."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from inplace.agent.agent import REMINDER
from inplace.agent.barrier.http import Barrier, BarrierState
from inplace.agent.deps import AgentDeps
from inplace.agent.link.linked_worker import LinkedWorker, WorkerLostError
from inplace.agent.link.server import GuardServer, LinkServer
from inplace.agent.progress.watchdog import Watched
from inplace.agent.report.log_line import LevelLog
from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.report.phases import RestartPhases
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.epoch_file import EpochFile
from inplace.agent.start.prelude import head_start
from inplace.agent.start.sidecar import agent_of
from inplace.common.bare.record import replace
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.protocol.link import Leaving, Lifted, Message
from inplace.common.wire.names import DEPTH_CONTAINERS
from tests.agent.scripted_server import ScriptedServer

CONFIG = AgentConfig(namespace="ns", pod_name="train-w-0-0", jobset_name="train", pod_uid="pod-uid")
RUN_S_MAX = 20.0  # a test that takes longer has failed
BOUND_S_MAX = 60.0  # bounds above this one are waits for the next event, not for an answer
QUIET_S = 0.05


class Running(Watched):
    """A worker that runs."""


class ContainersLink(LinkedWorker):
    """An agent's end of the link in depth `containers`, on a socket; it notes each death and each line of its log."""

    def __init__(self, path: Path, *, clock: LoopClock | None = None, checks: int = 0) -> None:
        clock, self.log = clock or LoopClock(), NotedLog()
        self._link = LinkServer(str(path), DEPTH_CONTAINERS, clock=clock, log=self.log)
        super().__init__(self._link, stays=False, clock=clock, log=self.log, checks=checks)
        self.deaths: list[tuple[int, int | None]] = []
        self._noting: asyncio.Task[None] | None = None

    def lift(self, epoch: int) -> None:
        """Let the workers start, once."""
        self.start(Lifted(epoch))
        self._noting = asyncio.create_task(self._note(epoch))

    def leave(self) -> None:
        """Let the guards end their workers; what ends now is no news."""
        if self._noting is not None:
            self._noting.cancel()
        self._link.tell_all(Leaving())

    async def close(self) -> None:
        """Close every connection."""
        if self._noting is not None:
            self._noting.cancel()
        await super().close()

    async def _note(self, epoch: int) -> None:
        try:
            self.deaths.append((epoch, await self.exited()))
        except WorkerLostError:
            self.deaths.append((epoch, None))


class ImpatientClock(LoopClock):
    """A clock whose sleeps pass at once and are recorded.

    Args:
        is_quiet: long bounds are reached soon; for tests in which the server is silent.
        reminders: how often the time of a reminder passes; with no limit an agent would do nothing else.
    """

    def __init__(self, *, is_quiet: bool = False, reminders: int = 0) -> None:
        super().__init__()
        self.reminders = reminders
        self.slept_s: list[float] = []
        self._is_quiet = is_quiet

    def monotonic_s(self) -> float:
        """Return the loop's time plus the sum of all sleeps."""
        return super().monotonic_s() + sum(self.slept_s)

    async def sleep(self, delay_s: float) -> None:
        """Record the sleep and let other tasks run."""
        task = asyncio.current_task()
        if task is not None and task.get_name() == REMINDER:
            if not self.reminders:
                await super().sleep(delay_s)
            self.reminders -= 1
        self.slept_s.append(delay_s)
        await asyncio.sleep(0)

    def timeout(self, delay_s: float | None) -> asyncio.Timeout:
        """Shorten a bound that no test can wait for, when the test is about silence."""
        if self._is_quiet and delay_s is not None and delay_s > BOUND_S_MAX:
            delay_s = QUIET_S
        return super().timeout(delay_s)


class ShortClock(LoopClock):
    """Every bound is reached soon."""

    def timeout(self, delay_s: float | None) -> asyncio.Timeout:
        """Return a bound of 50 ms."""
        assert delay_s is not None
        return super().timeout(0.05)


@dataclass
class NotedBarrier(Barrier):
    """A barrier in memory."""

    lifts: list[int | None] = field(default_factory=list)
    reports: list[BarrierState] = field(default_factory=list)
    running: bool = False

    async def start(self) -> None:
        """Close the barrier."""
        self.running = True

    def lift(self, epoch: int | None) -> None:
        """Note the lift."""
        assert self.running
        self.lifts.append(epoch)

    def report(self, report: BarrierState) -> None:
        """Note the report."""
        self.reports.append(report)

    async def stop(self) -> None:
        """Stop."""
        self.running = False


@dataclass
class NotedGuards(GuardServer):
    """Guards in memory, that say nothing by themselves."""

    told: list[tuple[int, Message]] = field(default_factory=list)
    told_all: list[Message] = field(default_factory=list)

    def tell(self, peer: int, message: Message) -> None:
        """Note what one of them hears."""
        self.told.append((peer, message))

    def tell_all(self, message: Message) -> None:
        """Note what all of them hear."""
        self.told_all.append(message)


@dataclass
class NotedLog(LevelLog):
    """A log in memory."""

    lines: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def _log(self, level: str, event: str, fields: dict[str, Any]) -> None:
        self.lines.append((level, event, fields))

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of each line with this event."""
        return [fields for _, name, fields in self.lines if name == event]


@dataclass
class Rig:
    """The parts of an agent's run, and its results."""

    config: AgentConfig = CONFIG
    clock: ImpatientClock = field(default_factory=ImpatientClock)
    barrier: NotedBarrier = field(default_factory=NotedBarrier)
    log: NotedLog = field(default_factory=NotedLog)
    metrics: AgentMetrics = field(default_factory=AgentMetrics)
    memory: EpochFile = field(default_factory=EpochFile)

    async def run(
        self,
        server: ScriptedServer,
        credentials: Credentials | None = None,
        *,
        with_head_start: bool = False,
        **config: Any,
    ) -> int:
        """Run the agent against the server until it exits; return its exit code."""
        self.config = replace(self.config, **config)
        credentials = credentials or Credentials("127.0.0.1", server.port, tls=False)
        context = credentials.ssl_context()
        phases = RestartPhases(
            self.metrics, now_s=lambda: 0.0, wall_s=lambda: 0.0, annotate=self.config.phases_annotation
        )
        ahead = None
        if with_head_start:  # in a thread, because the server runs in this one
            ahead, _ = await asyncio.to_thread(head_start, self.config, credentials, context, self.memory, phases)
        transport = Http1Transport(credentials, clock=self.clock, context=context, ahead=ahead)
        deps = AgentDeps(
            transport=transport,
            clock=self.clock,
            rng=Random(7),
            barrier=self.barrier,
            log=self.log,
            metrics=self.metrics,
            memory=self.memory,
            phases=phases,
        )
        agent = agent_of(self.config, deps, GuardServer())
        try:
            async with asyncio.timeout(RUN_S_MAX):
                return await agent.run()
        finally:
            await transport.close()
