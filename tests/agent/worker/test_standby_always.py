"""`--standby=always`: a Pod that waits without a worker, as a spare does, holds a process; it trains in no epoch."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from inplace.agent.worker.standby import LIFT_S
from inplace.common.protocol.members import Members
from inplace.common.wire.run_tail import tail_file
from tests.agent.scripted_server import ScriptedServer, Views, jobset
from tests.agent.supervisor_rig import RUN, status_of, supervised, until
from tests.agent.test_guard import Guarded, agent_at, guarded
from tests.agent.test_members import NOTES, OF_MANIFEST, OF_SLOT, TRAINS, VERSION, Answers, Pod, group, pod

pytestmark = pytest.mark.asyncio

ALWAYS = "--standby=always"
EARLY = "'INPLACE_EPOCH' not in os.environ"


async def said(guard: Guarded, event: str) -> dict[str, Any]:
    """Return the guard's next line with this event."""
    assert guard.child.stderr is not None
    while True:
        line = await guard.child.stderr.readline()
        assert line, f"expected {event!r}, saw the end"
        if line.startswith(b"{") and (found := json.loads(line))["event"] == event:
            return dict(found)


async def is_spare(one: Pod, *, synced: int = 1) -> None:
    """Let an epoch lift in which slot 2 plays no rank."""
    one.show(synced, synced - 1, Members(synced, 2, seen=VERSION + synced - 1))
    await one.announced(synced + 1)


@pytest.mark.parametrize("depth", ["process", "containers"])
async def test_a_spare_that_never_trained_has_one_and_it_learns_its_rank(tmp_path: Path, depth: str) -> None:
    """It waits, stopped, in no epoch; the lift releases it with the variables of a fresh worker."""
    script = f"{TRAINS}print('words of', os.environ['INPLACE_EPOCH'], flush=True)\n{RUN}"
    async with pod(tmp_path, script, ALWAYS, depth=depth) as one:
        await one.announced(1)
        await is_spare(one)
        standby = (await said(one.guard, "standby_ready"))["pid"]
        await until(lambda: status_of(standby, "State").startswith("T"), "a standby that is stopped")
        assert one.guard.tree() == [standby]
        assert [path.name for path in (tmp_path / "notes").iterdir()] == ["started"]
        one.show(2, 1, Members(2, 2, ((0, 2),), seen=VERSION + 1))
        assert await one.guard.noted("epoch-2") == "0 2 train-w-0-2.train 0 0 2"
        assert (await said(one.guard, "standby_released"))["pid"] == standby
        tails = [path / tail_file(0) for path in (tmp_path, tmp_path / "progress")]
        await until(
            lambda: any(b"words of 2\n" in file.read_bytes() for file in tails if file.exists()),
            "its words in the tail",
        )


async def test_a_member_that_becomes_a_spare_has_one(tmp_path: Path) -> None:
    """Its own was not ready when the worker ended, and was killed with it."""
    async with pod(tmp_path, f"import inplace\ninplace.ready()\n{NOTES}{RUN}", ALWAYS) as one:
        await one.announced(1)
        one.show(1, 0, Members(1, 3, seen=VERSION))
        await one.guard.noted("epoch-1")
        one.show(1, 1, None)
        await one.announced(2)
        assert one.guard.tree() == [], "nothing of the worker is left at the announcement"
        one.show(2, 1, Members(2, 2, seen=VERSION + 1))
        await one.announced(3)
        standby = (await said(one.guard, "standby_ready"))["pid"]
        one.show(3, 2, Members(3, 2, ((1, 2),), seen=VERSION + 2))
        assert await one.guard.noted("epoch-3") == "1 2 train-w-0-0.train 1 1 2"
        assert (await said(one.guard, "standby_released"))["pid"] == standby


async def test_without_the_promise_a_spare_has_none(tmp_path: Path) -> None:
    """Nobody saw its command call `ready`."""
    async with pod(tmp_path, TRAINS + RUN, "--standby") as one:
        await one.announced(1)
        await is_spare(one)
        await asyncio.sleep(LIFT_S + 0.5)
        assert one.guard.tree() == []


async def test_a_script_that_makes_a_step_first_is_told_and_trains_in_its_epoch_alone(tmp_path: Path) -> None:
    """Its first `inplace.progress` ends it; no other one starts, also not at the next barrier."""
    script = f"import inplace\nnote('start')\ninplace.progress(1)\n{NOTES}{RUN}"
    async with pod(tmp_path, script, ALWAYS) as one:
        await one.announced(1)
        await is_spare(one)
        ended = await said(one.guard, "standby_ended")
        assert ended["level"] == "warning"
        assert ended["then"].startswith("an ordinary start each time; --standby=always promises")
        one.show(2, 1, Members(2, 2, ((0, 2),), seen=VERSION + 1))
        await one.guard.noted("epoch-2")
        one.show(2, 2, None)
        await one.announced(3)
        await asyncio.sleep(LIFT_S + 0.5)
        assert len((tmp_path / "notes" / "start").read_text().split()) == 2


@pytest.mark.parametrize(
    "early",
    [
        pytest.param("daemon(linger); linger()", id="it trains and tells no steps"),
        pytest.param("if os.fork() == 0: import inplace; inplace.ready()\n    linger()", id="a launcher"),
    ],
)
async def test_one_that_does_not_wait_is_gone_before_the_worker_starts(tmp_path: Path, early: str) -> None:
    """With all that it started; the worker is started anew."""
    script = f"if {EARLY}:\n    {early}\n"
    script += "early = open(os.environ['NOTES'] + '/lingering').read().split()\n"
    script += "left = [pid for pid in early if os.path.exists(f'/proc/{pid}')]\n"
    script += f"note('left', ' '.join(left) or 'none')\n{NOTES}{RUN}"
    async with pod(tmp_path, script, ALWAYS) as one:
        await one.announced(1)
        await is_spare(one)
        await one.guard.noted("lingering")
        one.show(2, 1, Members(2, 2, ((0, 2),), seen=VERSION + 1))
        await one.guard.noted("epoch-2")
        assert await one.guard.noted("left") == "none"
        assert (await said(one.guard, "standby_ended"))["message"] == "the barrier lifted before it was ready"


async def test_it_starts_after_the_check(tmp_path: Path) -> None:
    """What a check leaves is killed, so nothing is held while one runs."""
    check = "sleep 1.5; date +%s%N >$NOTES/checked"
    async with agent_at(tmp_path / "link", checks=1) as agent:
        options = (ALWAYS, "--before-announce", check)
        async with guarded(
            tmp_path, f"note('began', time.time_ns())\nimport inplace\ninplace.ready()\n{RUN}", *options
        ) as guard:
            await said(guard, "standby_ready")
            assert int(await guard.noted("checked")) < int(await guard.noted("began"))
            agent.lift(3)
            await guard.noted("main")
            guard.child.terminate()
            assert (await guard.finished())[0] == 143


@pytest.mark.parametrize("completes", [True, False])
async def test_it_ends_with_its_spare(tmp_path: Path, completes: bool) -> None:
    """The group has completed, or the Pod is deleted: it never trains."""
    async with pod(tmp_path, TRAINS + RUN, ALWAYS) as one:
        await one.announced(1)
        await is_spare(one)
        await said(one.guard, "standby_ready")
        if completes:
            one.show(1, 0, Members(1, 2, seen=VERSION), ended="Completed")
        else:
            one.guard.child.terminate()
        assert (await one.guard.finished())[0] == (0 if completes else 143)
        assert not (tmp_path / "notes" / "main").exists()


async def test_one_that_is_killed_while_it_waits_is_replaced_at_the_lift(tmp_path: Path) -> None:
    """It had kept its promise, so the next barrier has one again."""
    async with pod(tmp_path, TRAINS + RUN, ALWAYS) as one:
        await one.announced(1)
        await is_spare(one)
        standby = (await said(one.guard, "standby_ready"))["pid"]
        os.kill(standby, signal.SIGKILL)
        assert (await said(one.guard, "standby_ended"))["then"] == "an ordinary start"
        one.show(2, 1, Members(2, 2, ((0, 2),), seen=VERSION + 1))
        await one.guard.noted("epoch-2")
        assert standby not in one.guard.tree()


async def test_a_spare_with_an_agent_of_its_own_has_one(tmp_path: Path) -> None:
    """The guard of `inplace-agent run` does the same."""
    views = Views()
    server = ScriptedServer(lists=[jobset(scopes=group())], watches=[(views.follow,)], answer=Answers())
    async with supervised(tmp_path, TRAINS + RUN, ALWAYS, server=server, **OF_SLOT | OF_MANIFEST) as one:
        assert await one.announced() == 1
        views.show(0, 0, scopes=group(1, 0, Members(1, 2, seen=VERSION)))
        assert await one.announced() == 2
        standby = (await one.said("standby_ready"))[0]["pid"]
        views.show(0, 0, scopes=group(2, 1, Members(2, 2, ((0, 2),), seen=VERSION + 1)))
        assert int((await one.noted("main"))[0]) == standby
