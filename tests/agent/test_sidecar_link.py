"""A sidecar whose worker has a guard: it tells of the death with one PATCH, then ends."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest

from inplace.agent.agent import Agent
from inplace.agent.announce.failure_reporter import REPORT_S_MAX
from inplace.agent.deps import AgentDeps
from inplace.agent.link.server import GuardServer, Listener
from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.report.phases import PhaseFile, RestartPhases
from inplace.agent.settings.herd import Herd
from inplace.agent.start.sidecar import agent_of
from inplace.common.bare.record import replace
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.protocol.link import Ended, Failed, Leaving, Lifted, Message, Started
from inplace.common.wire.last_line import told_line_of
from inplace.common.wire.names import LAST_LINE, WORKER_FAILED
from inplace.common.wire.phases import exit_code_of
from inplace.common.wire.worker_failure import parse_failure
from tests.agent.rig import CONFIG, NotedBarrier, NotedLog
from tests.agent.scripted_server import Exchange, ScriptedServer, accept_patch, jobset, refuses, silence, until_patched

pytestmark = pytest.mark.asyncio


@dataclass
class NotedServer(GuardServer):
    """The link to one guard, in memory."""

    said: list[Message] = field(default_factory=list)
    lifted: asyncio.Event = field(default_factory=asyncio.Event)
    agent: Listener | None = None

    async def start(self, listener: Listener) -> None:
        """Let the guard greet."""
        self.agent = listener
        listener.greeted(0)

    def tell(self, peer: int, message: Message) -> None:
        """Note what the guard hears; it starts its worker at a lift."""
        self.said.append(message)
        if isinstance(message, Lifted):
            self.lifted.set()

    def tell_all(self, message: Message) -> None:
        """Note it."""
        self.tell(0, message)

    async def worker_ends(self, message: Message | None) -> None:
        """Tell of the worker's end after the lift; None: the guard is gone without a word."""
        await self.lifted.wait()
        assert self.agent is not None
        self.agent.heard(0, Started(1))
        if message is None:
            self.agent.left(0)
        else:
            self.agent.heard(0, message)


@dataclass
class Scene:
    """One agent with a link."""

    link: NotedServer = field(default_factory=NotedServer)
    log: NotedLog = field(default_factory=NotedLog)
    agent: Agent | None = None

    async def run(self, server: ScriptedServer, *, phases: RestartPhases | None = None, **config: Any) -> int:
        """Run the agent until it exits; return its exit code."""
        clock, credentials = LoopClock(), Credentials("127.0.0.1", server.port, tls=False)
        transport = Http1Transport(credentials, clock=clock)
        deps = AgentDeps(
            transport=transport, clock=clock, rng=Random(7), barrier=NotedBarrier(), log=self.log, phases=phases
        )
        self.agent = agent_of(replace(CONFIG, **config), deps, self.link)
        try:
            async with asyncio.timeout(20):
                return await self.agent.run()
        finally:
            await transport.close()


LIFT = (jobset(0), until_patched(), jobset(1, 0))


async def test_a_death_is_one_patch_and_then_the_exit() -> None:
    """With epoch and code; the guards are told to end their workers BEFORE the process is gone."""
    scene = Scene()
    async with ScriptedServer(lists=[jobset(0)], watches=[(*LIFT, silence)]) as server:
        code, _ = await asyncio.gather(scene.run(server, restart_exit_code=77), scene.link.worker_ends(Failed(1, 9)))
        announcement, told = server.requests("PATCH")
    assert code == 77
    assert scene.link.said[0] == Lifted(1)
    assert scene.link.said[-1] == Leaving()
    metadata = json.loads(told.body)["metadata"]
    assert metadata["uid"] == CONFIG.pod_uid
    assert list(metadata["annotations"]) == [WORKER_FAILED, LAST_LINE]
    failure = parse_failure(metadata["annotations"][WORKER_FAILED])
    words = told_line_of(metadata["annotations"][LAST_LINE], 1)
    assert words is not None
    assert (failure.epoch, failure.code, failure.at_s, words.line) == (1, 9, words.at_s, "")
    assert told.path == announcement.path
    assert scene.log.of("restarting_in_place") == [
        {"epoch": 1, "verdict": "worker_failed", "worker_exit_code": 9, "exit_code": 77}
    ]


async def test_a_completion_is_told_by_the_next_announcement(tmp_path: Path) -> None:
    """It is no failure: the agent stays until the group restarts, and its next process says that a worker was done."""
    scene, done, file = Scene(), asyncio.Event(), PhaseFile(str(tmp_path / "phases"))

    async def until_done(_exchange: Exchange) -> None:
        await done.wait()

    async def complete() -> None:
        await scene.link.worker_ends(Ended(1, 0))
        done.set()

    phases = RestartPhases(AgentMetrics(), now_s=monotonic, file=file)
    async with ScriptedServer(lists=[jobset(0)], watches=[(*LIFT, until_done, jobset(1, 1, rv=12))]) as server:
        code, _ = await asyncio.gather(scene.run(server, phases=phases), complete())
        assert len(server.requests("PATCH")) == 1
    phases.leave()
    assert code == CONFIG.restart_exit_code
    assert exit_code_of(RestartPhases(AgentMetrics(), now_s=monotonic, file=file).announcing(2)) == 0


async def test_it_keeps_silent_when_the_group_restarts_anyway() -> None:
    """In a large group its moment is yet to come when the epoch is deprecated: no PATCH more."""
    scene, dead = Scene(), asyncio.Event()

    async def until_dead(_exchange: Exchange) -> None:
        await dead.wait()

    async def die() -> None:
        await scene.link.worker_ends(Failed(1, 9))
        dead.set()

    async with ScriptedServer(lists=[jobset(0)], watches=[(*LIFT, until_dead, jobset(1, 1, rv=12))]) as server:
        code, _ = await asyncio.gather(scene.run(server, herd=Herd(10**9)), die())
        assert len(server.requests("PATCH")) == 1
    assert code == CONFIG.restart_exit_code
    assert scene.log.of("restarting_in_place")[0]["verdict"] == "deprecated"


@pytest.mark.parametrize("answer", ["refused", "none"])
async def test_it_leaves_whatever_becomes_of_the_patch(answer: str) -> None:
    """A refusal, or a server that is silent: at most a second later kubelet takes over."""
    scene = Scene()

    async def answer_first(exchange: Exchange) -> None:
        if len(exchange.server.requests("PATCH")) == 1:
            await accept_patch(exchange)
        elif answer == "refused":
            await refuses(403)(exchange)
        else:
            await asyncio.sleep(60)

    async with ScriptedServer(lists=[jobset(0)], watches=[(*LIFT, silence)], answer=answer_first) as server:
        loop = asyncio.get_running_loop()

        async def die() -> float:
            await scene.link.worker_ends(None)
            return loop.time()

        code, died_s = await asyncio.gather(scene.run(server), die())
        took_s = loop.time() - died_s
    assert code == CONFIG.restart_exit_code
    assert took_s < REPORT_S_MAX + 1.0
    assert scene.log.of("failure_not_told")


async def test_a_signal_ends_an_agent_that_is_about_to_tell() -> None:
    """Nothing holds its process."""
    scene = Scene()

    async def die() -> None:
        await scene.link.worker_ends(Failed(1, 9))
        assert scene.agent is not None
        scene.agent.keeper.terminate(signal.SIGTERM)

    async with ScriptedServer(lists=[jobset(0)], watches=[(*LIFT, silence)]) as server:
        code, _ = await asyncio.gather(scene.run(server, herd=Herd(10**9)), die())
        assert len(server.requests("PATCH")) == 1
    assert code == 143
