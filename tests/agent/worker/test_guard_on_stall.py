"""The command of a guard's --on-stall: the agent asks for it over the link, in both depths."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from inplace.agent.link.side_jobs import COMMAND_ANSWER_S, SideJobs
from inplace.agent.worker.stall_command import COMMAND_S_MAX
from inplace.common.kube.clock import LoopClock
from inplace.common.protocol.link import Examine, Examines, Message
from inplace.common.protocol.stall import Silence
from inplace.simulator.cluster.virtual_time import run
from tests.agent.process import finished
from tests.agent.progress.test_watchdog import STEPS, failures, last_step, stopped_below_a_guard
from tests.agent.rig import NotedGuards, NotedLog
from tests.agent.supervisor_rig import number_in, until
from tests.agent.test_process_depth import pod
from tests.agent.worker.test_on_stall import until_gone

WORDS = "$INPLACE_STALL_PID $INPLACE_STALL_SILENT_S"
STALLED = Silence("rank-0", 41, 10.5, 10.0)


@pytest.mark.asyncio
async def test_the_command_sees_the_worker_before_it_is_told(tmp_path: Path) -> None:
    """It runs in the guard's container, and the agent tells once it is over; then both leave."""
    seen = tmp_path / "seen"
    command = f'sleep 1; echo "{WORDS} $(cut -d" " -f3 /proc/$INPLACE_STALL_PID/stat)" > {seen}'
    async with stopped_below_a_guard(tmp_path, "--on-stall", command) as (server, agent, group, main):
        await server.until(lambda: bool(failures(server)))
        (failure,) = failures(server)
        assert seen.read_text().split() == [str(main), str(failure.stalled_s), "T"]
        code, lines = await finished(agent)
        assert code == 88
        assert (await group.finished())[0] == 143
    events = [line["event"] for line in lines]
    assert events.index("worker_stalled") < events.index("stall_examined") < events.index("worker_failed")
    (line,) = (line for line in lines if line["event"] == "stall_examined")
    assert float(str(line["took_s"])) >= 1


@pytest.mark.asyncio
@pytest.mark.slow
async def test_an_agent_that_leaves_cuts_the_command_short(tmp_path: Path) -> None:
    """Another Pod told first: nothing waits for this command, and nothing is left of it."""
    command = f"sleep 1237 & echo $! > {tmp_path}/child; wait"
    async with stopped_below_a_guard(tmp_path, "--on-stall", command) as (server, agent, group, _):
        child = await number_in(tmp_path / "child")
        began_s = time.monotonic()
        agent.terminate()
        assert (await group.finished())[0] == 143
        assert time.monotonic() - began_s < COMMAND_S_MAX / 2
        await until_gone(child)
        assert failures(server) == []


@pytest.mark.asyncio
@pytest.mark.slow
async def test_the_command_runs_in_each_epoch_of_a_guard_that_stays(tmp_path: Path) -> None:
    """Depth `process`: the same guard examines the next worker too, which hangs as well."""
    seen = tmp_path / "seen"
    worker = "note('epoch-' + os.environ['INPLACE_EPOCH'])\n" + STEPS
    env = {"EPOCH_FILE": str(tmp_path / "epoch"), "STALL_AFTER_S": "1"}
    options = ("--on-stall", f'echo "$INPLACE_STALL_PID" >> {seen}')
    async with pod(tmp_path, worker, *options, env=env) as group:
        pids, folder = list[int](), tmp_path / "progress"
        for epoch in (1, 2):
            await group.runs(epoch)
            pids.append(int(await group.guard.noted(f"epoch-{epoch}")))
            await until(lambda: any(last_step(each) > 40 for each in folder.glob("[!.]*")), "steps")
            os.kill(pids[-1], signal.SIGSTOP)
            await group.annotations()
            assert len(failures(group.server)) == epoch
            assert [int(pid) for pid in seen.read_text().split()] == pids
        await group.runs(3)


class Guards(NotedGuards):
    """Connections to guards that answer after a while, or never."""

    def __init__(self, *after_s: float | None) -> None:
        super().__init__()
        self.after_s = after_s
        self.side_jobs = SideJobs(self, checks=0, clock=LoopClock(), log=NotedLog())

    def tell(self, peer: int, message: Message) -> None:
        """Answer later."""
        super().tell(peer, message)
        after_s = self.after_s[peer]
        if after_s is not None:
            asyncio.get_running_loop().call_later(after_s, self.side_jobs.heard, peer, Examines())

    async def examine(self, pid: int | None = 77) -> tuple[str | None, float]:
        """Let all of them have a command; return what is said of it, and the seconds that took."""
        for peer in range(len(self.after_s)):
            self.side_jobs.heard(peer, Examines())
        began_s = asyncio.get_running_loop().time()
        said = await self.side_jobs.examine(STALLED, pid)
        return said, asyncio.get_running_loop().time() - began_s


@pytest.mark.parametrize(
    ("guards", "said", "took_s"),
    [
        ((), None, 0.0),
        ((3.0,), "", 3.0),
        ((3.0, 0.5), "", 3.0),
        ((3.0, None), "a guard said nothing for 10.5 s", COMMAND_S_MAX + COMMAND_ANSWER_S),
    ],
)
def test_an_agent_waits_for_every_guard_for_so_long(
    guards: tuple[float | None, ...], said: str | None, took_s: float
) -> None:
    """Without a guard that has a command, not at all."""

    async def examined() -> None:
        assert await Guards(*guards).examine() == (said, took_s)

    run(examined())


@pytest.mark.parametrize(("pid", "told"), [(77, 77), (None, 0), (10**10 - 1, 0)])
def test_a_process_id_that_fits_no_line_is_none(pid: int | None, told: int) -> None:
    """A progress file may say up to ten digits."""

    async def examined() -> None:
        guards = Guards(0.1)
        await guards.examine(pid)
        assert (guards.told, guards.told_all) == ([(0, Examine(told, 10))], [])

    run(examined())


def test_a_guard_that_leaves_is_not_waited_for() -> None:
    """Its end is news of its own."""

    async def examined() -> None:
        guards = Guards(None)
        asyncio.get_running_loop().call_later(2.0, guards.side_jobs.left, 0)
        assert await guards.examine() == ("", 2.0)

    run(examined())
