"""What a standby may cost is bounded: its time to get ready, and what it tells the agent."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from inplace.agent.worker.spawn import spawn
from inplace.agent.worker.standby import (
    LIFT_S,
    MESSAGES_MAX,
    PAUSE_S,
    READY_S_MAX,
    STEPS_S_MAX,
    VARIABLE,
    Channel,
    Standby,
)
from inplace.common.kube.clock import LoopClock
from tests.agent.process import ROOT
from tests.agent.rig import RUN_S_MAX, NotedLog
from tests.agent.supervisor_rig import status_of, takes

pytestmark = pytest.mark.asyncio

WAITS = "import inplace, signal; inplace.ready(); signal.pause()"
HANGS = "import inplace, os, signal; 'INPLACE_EPOCH' in os.environ and inplace.ready(); signal.pause()"


class HastyClock(LoopClock):
    """A clock whose bounds pass at once, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds_s: list[float] = []
        self._passed_s = 0.0

    def monotonic_s(self) -> float:
        """Return the sum of all that passed."""
        return self._passed_s

    def timeout(self, delay_s: float | None) -> asyncio.Timeout:
        """Be over at once, if it is ever over."""
        if delay_s is None:
            return super().timeout(None)
        self.bounds_s.append(delay_s)
        self._passed_s += delay_s
        return super().timeout(0)


class TurningClock(HastyClock):
    """A clock whose turns and pauses take their time, so that a process gets some; only longer bounds pass at once."""

    def timeout(self, delay_s: float | None) -> asyncio.Timeout:
        """Be over at once, if it is no turn."""
        if delay_s is None or delay_s > PAUSE_S:
            return super().timeout(delay_s)
        self._passed_s += delay_s
        return LoopClock.timeout(self, delay_s / 10)


@dataclass
class Kept:
    """One standby with its clock, log and children."""

    standby: Standby
    clock: LoopClock
    log: NotedLog
    children: list[int]
    script: str
    news: asyncio.Event

    async def keep(self, spawn: Callable[[Mapping[str, str]], int] | None = None) -> None:
        """Go on until nothing more is to be done in this run, as the worker's host does."""
        while True:
            wait_s = self.standby.go_on(spawn or self.spawn, self.clock.monotonic_s())
            if self.standby.is_settled:
                return
            with suppress(TimeoutError):
                async with self.clock.timeout(wait_s):
                    await self.news.wait()
            self.news.clear()

    def spawn(self, env: Mapping[str, str]) -> int:
        """Start the script as the agent starts a worker."""
        self.children.append(spawn([sys.executable, "-c", self.script], {"PYTHONPATH": str(ROOT), **env}))
        return self.children[-1]


@asynccontextmanager
async def kept(script: str, clock: LoopClock | None = None) -> AsyncIterator[Kept]:
    """Run a worker in epoch 1; leave none of its processes."""
    clock, log, news = clock or TurningClock(), NotedLog(), asyncio.Event()
    loop = asyncio.get_running_loop()
    standby = Standby(readers=loop, log=log, on_news=news.set)
    one = Kept(standby, clock, log, [], script, news)
    try:
        one.standby.start(one.spawn, {"INPLACE_EPOCH": "1"})
        yield one
    finally:
        for pid in one.children:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            await asyncio.to_thread(os.waitpid, pid, 0)
            one.standby.ended(pid, 137)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what processes do; the caller has a bound."""
    while not holds():  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.001)


async def test_a_worker_that_tells_no_steps_has_a_standby_after_a_while() -> None:
    """Nobody knows whether its script tells steps: the wait for them is bounded."""
    clock = HastyClock()
    async with kept(WAITS, clock) as one, asyncio.timeout(RUN_S_MAX):
        keeping = asyncio.create_task(one.keep())
        await until(lambda: len(one.children) == 2)
        assert clock.bounds_s[0] == STEPS_S_MAX
        keeping.cancel()


async def test_a_worker_that_tells_steps_has_a_standby_after_them() -> None:
    """Not before: its own start is not slowed down by another one's."""
    steps = "inplace.progress(1), inplace.progress(2), inplace.progress(3)"
    script = f"import inplace, signal; inplace.ready(); signal.signal(signal.SIGUSR1, lambda *_: ({steps}))\n"
    async with kept(script + "while True: signal.pause()", LoopClock()) as one, asyncio.timeout(RUN_S_MAX):
        keeping = asyncio.create_task(one.keep())
        [worker] = one.children
        await until(lambda: takes(worker, signal.SIGUSR1))
        await asyncio.sleep(0)
        assert one.children == [worker]
        os.kill(worker, signal.SIGUSR1)
        await until(lambda: len(one.children) == 2)
        keeping.cancel()


async def test_a_standby_imports_in_turns() -> None:
    """While it is not ready it is stopped most of the time; then it runs."""

    class Watching(TurningClock):
        """Looks at the standby in each pause."""

        def timeout(self, delay_s: float | None) -> asyncio.Timeout:
            """Wait until the standby is stopped."""
            if delay_s == pytest.approx(PAUSE_S):
                while not status_of(one.children[-1], "State").startswith("T"):
                    time.sleep(0.001)
                self.pauses += 1
            return super().timeout(delay_s)

        pauses = 0

    clock = Watching()
    async with kept(WAITS, clock) as one, asyncio.timeout(RUN_S_MAX):
        await one.keep()
        assert clock.pauses > 0
        await until(lambda: status_of(one.children[-1], "State").startswith("S"))
        assert len(one.log.of("standby_ready")) == 1


async def test_a_released_standby_is_the_worker_and_no_standby() -> None:
    """What it leaves at its own end is killed, as any worker's."""
    async with kept(WAITS) as one, asyncio.timeout(RUN_S_MAX):
        await one.keep()
        worker, early = one.children
        one.standby.ended(worker, 1)
        assert one.standby.left_alone() == early
        assert one.standby.start(one.spawn, {"INPLACE_EPOCH": "2"}) == early
        assert one.standby.left_alone() == 0


async def test_a_launcher_that_waits_itself_has_a_standby(tmp_path: Path) -> None:
    """docs/worker.md's torchrun: its ranks start when it is released, in its epoch, and their own `ready` returns."""
    notes = tmp_path / "ranks"
    rank = f"import inplace; open({str(notes)!r}, 'a').write(str(inplace.ready().epoch) + '\\n')"
    launcher = "import inplace, signal, subprocess, sys; inplace.ready(); "
    launcher += f"subprocess.run([sys.executable, '-c', {rank!r}]); signal.pause()"

    def ranks() -> list[str]:
        return notes.read_text().split() if notes.exists() else []

    async with kept(launcher) as one, asyncio.timeout(RUN_S_MAX):
        await until(lambda: ranks() == ["1"])
        await one.keep()
        worker, early = one.children
        one.standby.ended(worker, 1)
        assert one.standby.start(one.spawn, {"INPLACE_EPOCH": "2"}) == early
        await until(lambda: len(ranks()) == 2)
        assert ranks() == ["1", "2"]


async def test_a_launcher_is_told_why_it_has_no_standby() -> None:
    """Its child called `ready`, and it did not: one line says so."""
    child = "import inplace, os, signal; os.fork() == 0 and (inplace.ready(), os._exit(0)); signal.pause()"
    async with kept(child) as one, asyncio.timeout(RUN_S_MAX):
        await one.keep()
        assert len(one.children) == 1
        [line] = one.log.of("standby_unavailable")
        assert f"in the command's process {one.children[0]}, saw it in" in line["message"]


async def test_a_standby_that_never_gets_ready_is_killed() -> None:
    """It hangs in an import, or trains: after READY_S_MAX it is ended, and no other one is started in this run."""
    async with kept(HANGS, HastyClock()) as one, asyncio.timeout(RUN_S_MAX):
        await one.keep()
        worker, early = one.children
        assert one.clock.monotonic_s() > READY_S_MAX
        ended = await asyncio.to_thread(os.waitid, os.P_PID, early, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        assert ended.si_status == signal.SIGKILL
        one.standby.ended(early, 137)
        [line] = one.log.of("standby_ended")
        assert line["message"] == f"it did not call inplace.ready() within {READY_S_MAX:g} s"
        os.kill(worker, 0)


async def test_the_wait_for_a_lift_is_bounded_too_and_a_broken_promise_is_not_believed_again() -> None:
    """It starts LIFT_S after its Pod began to wait, has READY_S_MAX, and is the last one."""
    async with kept("import signal; signal.pause()", HastyClock()) as one, asyncio.timeout(RUN_S_MAX):
        os.killpg(one.children[0], signal.SIGKILL)
        await asyncio.to_thread(os.waitid, os.P_PID, one.children[0], os.WEXITED | os.WNOWAIT)
        one.standby.ended(one.children[0], 137)
        assert one.standby.go_on(one.spawn, one.clock.monotonic_s()) is None
        one.standby.await_lift(one.clock.monotonic_s())
        assert one.standby.go_on(one.spawn, one.clock.monotonic_s()) == pytest.approx(LIFT_S)
        await one.keep()
        assert one.clock.monotonic_s() > LIFT_S + READY_S_MAX
        early = one.children[1]
        await asyncio.to_thread(os.waitid, os.P_PID, early, os.WEXITED | os.WNOWAIT)
        one.standby.ended(early, 137)
        [line] = one.log.of("standby_ended")
        assert line["message"] == f"it did not call inplace.ready() within {READY_S_MAX:g} s"
        assert "--standby=always promises" in line["then"]
        one.standby.await_lift(one.clock.monotonic_s())
        assert one.standby.is_settled


async def test_a_command_that_is_gone_by_then_is_the_start_s_to_tell() -> None:
    """The program was removed: no standby, and no exception in the agent."""

    def fail(_env: Mapping[str, str]) -> int:
        raise FileNotFoundError

    async with kept(WAITS) as one, asyncio.timeout(RUN_S_MAX):
        await one.keep(fail)
        assert one.standby.left_alone() == 0


async def test_a_flood_of_messages_is_not_read() -> None:
    """Whatever a process and its children write, the agent reads MESSAGES_MAX of it, and knows nothing more by it."""
    channel = Channel("wait", asyncio.get_running_loop(), lambda: None)
    fd = os.dup(int(channel.variable[VARIABLE].split(":")[1]))
    channel.open(7)
    with socket.socket(fileno=fd) as theirs:
        for number in range(MESSAGES_MAX):
            theirs.send(b"ready 8" if number % 2 else b"x" * 5000)
            channel.read()
        theirs.send(b"ready 7")
        channel.read()
        assert not channel.is_ready
        assert channel.stranger == 8
    channel.close()


async def test_only_the_process_itself_gets_ready() -> None:
    """A child's word is not the command's; the agent's word is a packet that stays for whoever looks."""
    channel = Channel("wait", asyncio.get_running_loop(), lambda: None)
    fd = os.dup(int(channel.variable[VARIABLE].split(":")[1]))
    channel.open(7)
    with socket.socket(fileno=fd) as theirs:
        theirs.send(b"ready 77")
        theirs.send(b"ready")
        theirs.send(b"")
        channel.read()
        assert not channel.is_ready
        theirs.send(b"ready 7")
        channel.read()
        assert channel.is_ready
        assert channel.release({"INPLACE_EPOCH": "2"})
        looks = {theirs.recv(4096, socket.MSG_PEEK) for _ in range(2)}
        assert {look.split(b"\0")[0] for look in looks} == {b"INPLACE_EPOCH=2"}
    channel.close()
