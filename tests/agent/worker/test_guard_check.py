"""`--before-announce` of a guard: the agent announces when the check is over, in both depths."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from inplace.agent.link.side_jobs import CHECK_ANSWER_S, SideJobs
from inplace.agent.settings.exit_code import ExitCode
from inplace.common.kube.clock import LoopClock
from inplace.common.protocol.link import Checking, Fit, Unfit
from inplace.simulator.cluster.virtual_time import run
from tests.agent.process import environment, process
from tests.agent.rig import NotedGuards, NotedLog
from tests.agent.scripted_server import ScriptedServer, jobset
from tests.agent.supervisor_rig import RUN, number_in, until
from tests.agent.test_guard import agent_at, guarded
from tests.agent.test_process_depth import pod
from tests.agent.worker.test_on_stall import until_gone


@pytest.mark.asyncio
async def test_the_agent_waits_for_the_check(tmp_path: Path) -> None:
    """And for no process of it: what left its session is gone when the Pod may announce."""
    command = f"setsid sleep 1250 & echo $! > {tmp_path}/left; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    async with (
        agent_at(tmp_path / "link", checks=1) as link,
        guarded(tmp_path, RUN, "--before-announce", command) as group,
    ):
        left = await number_in(tmp_path / "left")
        waiting = asyncio.create_task(link.until_fit())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        (tmp_path / "go").touch()
        await asyncio.wait_for(waiting, 20)
        await until_gone(left)
        link.lift(1)
        await group.noted("main")
        link.leave()
        await group.finished()


@pytest.mark.asyncio
async def test_a_failed_check_ends_the_container(tmp_path: Path) -> None:
    """With its code and its words, and the agent lets the Pod's other guards end theirs; it never announces."""
    slow, bad_check = "sleep 1251", "sleep 0.2; echo GPU 3; exit 9"
    (tmp_path / "other").mkdir()
    async with (
        agent_at(tmp_path / "link", checks=2) as link,
        guarded(tmp_path, RUN, "--before-announce", slow) as group,
        guarded(tmp_path / "other", RUN, "--before-announce", bad_check, LINK_FILE=f"{tmp_path}/link") as bad,
    ):
        waiting = asyncio.create_task(link.until_fit())
        code, said = await bad.finished()
        assert code == ExitCode.UNFIT
        assert "it ended with exit code 9: GPU 3" in said
        code, said = await group.finished()
        assert code == ExitCode.UNFIT
        assert "the check of another container of this Pod failed" in said
        assert not waiting.done()
        assert len(link.log.of("check_failed")) == 1
        waiting.cancel()


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("command", "problem"),
    [("sleep 1252", "it did not end within 0.5 s, and was killed"), ("no-such-program", "exit code 127")],
)
async def test_a_check_without_an_answer_leaves_it_to_the_setting(tmp_path: Path, command: str, problem: str) -> None:
    """The Pod joins and says so, or ends."""
    options = ("--before-announce", command, "--before-announce-timeout", "0.5")
    async with agent_at(tmp_path / "link", checks=1) as link, guarded(tmp_path, RUN, *options) as group:
        await asyncio.wait_for(link.until_fit(), 20)
        link.lift(1)
        await group.noted("main")
        link.leave()
        _, said = await group.finished()
        assert problem in said
        assert "the Pod joins its group unchecked" in said
    async with (
        agent_at(tmp_path / "link", checks=1),
        guarded(tmp_path, RUN, *options, "--before-announce-unanswered", "leave") as group,
    ):
        code, said = await group.finished()
        assert code == ExitCode.UNFIT
        assert problem in said


@pytest.mark.slow
@pytest.mark.asyncio
async def test_each_epoch_of_depth_process_begins_with_a_check(tmp_path: Path) -> None:
    """Also of a guard that stays: before the first announcement, and again once the worker is gone."""
    command = f"echo x >> {tmp_path}/checks; sleep 0.3"
    worker = "note('epoch-' + os.environ['INPLACE_EPOCH'])\n" + RUN
    options = ("--before-announce", command)
    async with pod(tmp_path, worker, *options, env={"CHECKS_BEFORE_ANNOUNCE": "1"}) as group:
        for epoch in (1, 2, 3):
            annotations = await group.annotations()
            assert annotations["jobset.sigs.k8s.io/epoch"] == str(epoch)
            assert (tmp_path / "checks").read_text() == "x\n" * epoch
            group.views.show(epoch, epoch - 1)
            await group.guard.noted(f"epoch-{epoch}")
            await group.dies()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_an_agent_of_depth_containers_announces_after_the_check(tmp_path: Path) -> None:
    """A real agent beside a real guard."""
    command = f"echo x > {tmp_path}/began; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    async with ScriptedServer(lists=[jobset(0)]) as server:
        env = environment(tmp_path, server, LINK_FILE=str(tmp_path / "link"), CHECKS_BEFORE_ANNOUNCE="1")
        async with process(env), guarded(tmp_path, RUN, "--before-announce", command):
            await until((tmp_path / "began").exists, "the check")
            await asyncio.sleep(0.5)
            assert not server.requests("PATCH")
            (tmp_path / "go").touch()
            await server.until(lambda: bool(server.requests("PATCH")))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_lift_and_an_end_cut_the_check_short(tmp_path: Path) -> None:
    """An agent that asked for no check lifts before it is over; kubelet's SIGTERM ends it too."""
    command = f"sleep 1253 & echo $! > {tmp_path}/child; wait"
    async with agent_at(tmp_path / "link") as link, guarded(tmp_path, RUN, "--before-announce", command) as group:
        child = await number_in(tmp_path / "child")
        link.lift(1)
        await group.noted("main")
        await until_gone(child)
        link.leave()
        assert '"check_killed", "why": "the barrier is lifted"' in (await group.finished())[1]
    (tmp_path / "child").unlink()
    async with guarded(tmp_path, RUN, "--before-announce", command) as group:
        child = await number_in(tmp_path / "child")
        os.kill(group.child.pid, signal.SIGTERM)
        assert (await group.finished())[0] == ExitCode.TERMINATED
        await until_gone(child)


def test_a_guard_that_says_nothing_holds_the_pod_up_for_a_bounded_time() -> None:
    """And a guard that went, or checks again, does not count; without checks nothing waits."""

    async def waits() -> None:
        loop, log, guards = asyncio.get_running_loop(), NotedLog(), NotedGuards()
        checks = SideJobs(guards, checks=2, clock=LoopClock(), log=log)
        checks.heard(1, Fit())
        checks.heard(2, Checking(30_000))
        checks.heard(3, Fit())
        checks.left(3)
        began_s = loop.time()
        await checks.until_fit()
        assert loop.time() - began_s == pytest.approx(30 + CHECK_ANSWER_S)
        assert len(log.of("check_unanswered")) == 1
        assert len(log.of("checks_awaited")) == 1
        checks.heard(1, Checking(1000))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await checks.until_fit()
        checks.heard(1, Unfit())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await checks.until_fit()
        await SideJobs(guards, checks=0, clock=LoopClock(), log=log).until_fit()
        assert guards.told == []

    run(waits())
