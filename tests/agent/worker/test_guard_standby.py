"""A standby below a guard of depth `process`: it gets ready beside the worker, serves one epoch, and does no harm."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from inplace.common.wire.run_tail import tail_file
from tests.agent.supervisor_rig import RUN, marked, until
from tests.agent.test_guard import Guarded, agent_at, guarded
from tests.agent.test_process_depth import Pod, pod

pytestmark = pytest.mark.asyncio

FIRST = "os.environ.get('INPLACE_STANDBY', '').startswith('tell')"  # in the worker itself
IMPORTED = "import inplace\nnote('imported')\n"
TRAINS = "inplace.ready()\nnote('epoch-' + os.environ['INPLACE_EPOCH'])\nfor step in range(3): inplace.progress(step)\n"
SCRIPT = IMPORTED + TRAINS + RUN


async def said(guard: Guarded, words: str) -> str:
    """Return the guard's next line with these words."""
    assert guard.child.stderr is not None
    while words not in (line := (await guard.child.stderr.readline()).decode()):
        assert line, f"expected {words!r}, saw the end"
    return line


async def is_ready(guard: Guarded) -> int:
    """Wait until the next standby waits; return its process."""
    line = await said(guard, "standby_ready")
    return int(json.loads(line)["pid"])


async def main_of(group: Pod, epoch: int) -> int:
    """Wait for the worker of an epoch; return its process."""
    await group.runs(epoch)
    return int(await group.guard.noted(f"epoch-{epoch}"))


async def test_the_next_worker_was_there_before_its_lift(tmp_path: Path) -> None:
    """Each death is one announcement, and the process that waited is the next epoch's worker."""
    async with pod(tmp_path, SCRIPT, "--standby") as group:
        worker = await main_of(group, 1)
        for epoch in (2, 3):
            standby = await is_ready(group.guard)
            os.kill(worker, signal.SIGKILL)
            worker = await main_of(group, epoch)
            assert worker == standby
        await is_ready(group.guard)
        group.guard.child.terminate()
        assert (await group.guard.finished())[0] == 143


async def test_what_it_writes_is_of_the_run_that_it_becomes(tmp_path: Path) -> None:
    """Its output goes the way of every worker's, and its epoch's tail has it."""
    script = f"{IMPORTED}{TRAINS}print('words of', os.environ['INPLACE_EPOCH'], flush=True)\n{RUN}"
    async with pod(tmp_path, script, "--standby") as group:
        worker = await main_of(group, 1)
        standby = await is_ready(group.guard)
        os.kill(worker, signal.SIGKILL)
        assert await main_of(group, 2) == standby
        file = tmp_path / "progress" / tail_file(0)
        await until(lambda: b"words of 2\n" in file.read_bytes(), "its words in the tail")
        assert b"words of 1\n" not in file.read_bytes()


async def test_a_group_restart_releases_it_too(tmp_path: Path) -> None:
    """Somebody else's worker died: the worker is ended by order, and its standby is not."""
    async with pod(tmp_path, SCRIPT, "--standby") as group:
        await main_of(group, 1)
        standby = await is_ready(group.guard)
        group.views.show(1, 1)
        assert await main_of(group, 2) == standby


@pytest.mark.parametrize("fault", ["time.sleep(60)", "os.kill(os.getpid(), signal.SIGSTOP)"], ids=["hangs", "stopped"])
async def test_one_that_is_not_ready_dies_with_the_worker(tmp_path: Path, fault: str) -> None:
    """Nothing of it is left at the announcement, and the next start is an ordinary one."""
    script = f"{IMPORTED}if not {FIRST}:\n    note('early')\n    {fault}\n" + TRAINS + RUN
    async with pod(tmp_path, script, "--standby") as group:
        worker = await main_of(group, 1)
        early = int(await group.guard.noted("early"))
        os.kill(worker, signal.SIGKILL)
        assert await main_of(group, 2) != early
        assert early not in group.guard.tree()
        await said(group.guard, "the worker ended before it was ready")


async def test_one_that_died_is_replaced_at_the_lift(tmp_path: Path) -> None:
    """The guard says so, and the start is an ordinary one."""
    async with pod(tmp_path, SCRIPT, "--standby") as group:
        worker = await main_of(group, 1)
        standby = await is_ready(group.guard)
        os.kill(standby, signal.SIGKILL)
        assert json.loads(await said(group.guard, "standby_ended"))["message"] == "it ended by itself"
        os.kill(worker, signal.SIGKILL)
        assert await main_of(group, 2) not in (worker, standby)


async def test_a_check_before_the_announcement_leaves_it_alone(tmp_path: Path) -> None:
    """What the check leaves is killed, and the process that waits is not."""
    check = "sleep 60 & echo $! >$NOTES/left"
    options = ("--standby", "--before-announce", check)
    async with pod(tmp_path, SCRIPT, *options, env={"CHECKS_BEFORE_ANNOUNCE": "1"}) as group:
        worker = await main_of(group, 1)
        standby = await is_ready(group.guard)
        os.kill(worker, signal.SIGKILL)
        assert await main_of(group, 2) == standby
        assert int(await group.guard.noted("left")) not in group.guard.tree()


async def test_an_agent_that_leaves_takes_it_along(tmp_path: Path) -> None:
    """Kubelet gives clean containers then: the guard ends with all that it has started."""
    async with pod(tmp_path, SCRIPT, "--standby") as group:
        await main_of(group, 1)
        standby = await is_ready(group.guard)
        group.agent.kill()
        await group.guard.finished()
        await until(lambda: standby not in marked(str(tmp_path)), "the standby's end")


async def test_a_container_that_ends_with_its_worker_has_none(tmp_path: Path) -> None:
    """Depth `containers`: the guard says once what a standby needs."""
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, SCRIPT, "--standby") as group:
        agent.lift(1)
        assert "inplace.dev/restart: process" in await said(group, "standby_unavailable")
        await group.noted("main")
        group.child.terminate()
        assert (await group.finished())[0] == 143
