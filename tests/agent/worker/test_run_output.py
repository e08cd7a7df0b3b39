"""What a worker writes reaches its container's log as ever, and its last 64 KiB stay in a file, however it ends."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import sys
import time
from pathlib import Path

import pytest

from inplace.agent.worker.run_output import TailFile
from inplace.common.wire.run_tail import FILES_MAX, TAIL_BYTES, RunTail, parse_tail, tail_file
from tests.agent.process import ROOT
from tests.agent.supervisor_rig import until
from tests.agent.test_guard import GUARD, agent_at, guarded, working

pytestmark = pytest.mark.asyncio
AT_ONCE_S = 5.0
OWN = re.compile(rb'\{"timestamp": [^\n]*\n')  # a line of the guard


def tail(folder: Path, number: int = 0) -> RunTail:
    """Return what a guard's file says."""
    found = parse_tail((folder / "progress" / tail_file(number)).read_bytes())
    assert found is not None
    return found


async def test_the_log_has_all_and_the_file_has_the_last_of_it(tmp_path: Path) -> None:
    """In the worker's order where output and error are one file, binary and without a line end."""
    worker = """
for number in range(40_000):
    os.write(1 + number % 2, b"%d \\xff\\x1b[31m\\0\\r" % number)
sys.exit(3)
"""
    written = b"".join(b"%d \xff\x1b[31m\0\r" % number for number in range(40_000))
    log = tmp_path / "log"
    async with agent_at(tmp_path / "link") as agent:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LINK_FILE": str(tmp_path / "link")}
        with log.open("wb") as file:
            child = await asyncio.create_subprocess_exec(
                *GUARD, "--", sys.executable, "-c", f"import os, sys{worker}", env=env, stdout=file, stderr=file
            )
        agent.lift(3)
        async with asyncio.timeout(20):
            assert await child.wait() == 3
    logged = log.read_bytes()
    assert OWN.sub(b"", logged) == written
    kept = tail(tmp_path)
    assert (kept.epoch, len(kept.text)) == (3, TAIL_BYTES)
    assert kept.text in logged


async def test_a_guard_that_is_killed_leaves_the_file(tmp_path: Path) -> None:
    """As when the kernel kills all of a container for its memory."""
    worker = "print('last words', flush=True)\nnote('main')\ntime.sleep(60)\n"
    async with working(tmp_path, worker) as (_, group):
        file = tmp_path / "progress" / tail_file(0)
        await until(lambda: b"last words" in file.read_bytes(), "the tail")
        group.child.kill()
        await group.child.wait()
        await until(lambda: not group.tree(), "the worker's end")
    assert b"last words\n" in tail(tmp_path).text


async def test_what_a_worker_leaves_behind_holds_nobody_up(tmp_path: Path) -> None:
    """A process that left the session and writes on has the pipe; the guard does not wait for it to close that."""
    worker = """
def write():
    while True:
        os.write(1, b"x" * 1000)
daemon(write)
sys.exit(3)
"""
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, worker) as group:
        agent.lift(3)
        assert (await group.finished())[0] == 3


async def test_a_log_that_nobody_reads_holds_no_end_up(tmp_path: Path) -> None:
    """The worker waits for it, as it does without a guard; the guard ends the worker at once when its agent leaves."""
    async with working(tmp_path, "note('main')\nwhile True: os.write(1, b'x' * 1000)\n", "--grace", "0") as (
        agent,
        group,
    ):
        await asyncio.sleep(0.5)  # the pipes are full by now
        began_s = time.monotonic()
        agent.leave()
        await until(lambda: not group.tree(), "the worker's end")
        assert time.monotonic() - began_s < AT_ONCE_S


async def test_a_worker_may_close_its_output(tmp_path: Path) -> None:
    """Nothing waits for more, and the next line of the guard is in the log."""
    worker = "print('said', flush=True)\nos.close(1)\nos.close(2)\nos._exit(3)\n"
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, worker) as group:
        agent.lift(3)
        code, said = await group.finished()
    assert code == 3
    assert "worker_exited" in said


async def test_a_terminal_stays_the_workers(tmp_path: Path) -> None:
    """A container with `tty: true`: the worker sees a terminal, and nothing is kept."""
    ours, theirs = pty.openpty()
    worker = f"import os; open({str(tmp_path / 'seen')!r}, 'w').write(str(os.isatty(1)))"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LINK_FILE": str(tmp_path / "link")}
    async with agent_at(tmp_path / "link") as agent:
        child = await asyncio.create_subprocess_exec(
            *GUARD, "--", sys.executable, "-c", worker, env=env, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        agent.lift(3)
        async with asyncio.timeout(20):
            assert await child.wait() == 0
    os.close(ours)
    assert (tmp_path / "seen").read_text() == "True"
    assert tail(tmp_path).text == b""


async def test_each_guard_of_a_pod_has_a_file(tmp_path: Path) -> None:
    """And a later run takes the place of the one before it."""
    first, second = TailFile(str(tmp_path)), TailFile(str(tmp_path))
    for number in (1, 2):
        for file, word in ((first, b"first"), (second, b"second")):
            file.begin(number)
            file.append(word)
            file.end()
            file.append(b"late")
    kept = [parse_tail((tmp_path / tail_file(number)).read_bytes()) for number in (0, 1)]
    assert [(one.epoch, one.text) for one in kept if one is not None] == [(2, b"first"), (2, b"second")]


@pytest.mark.attack
async def test_nothing_but_an_own_file_is_written(tmp_path: Path) -> None:
    """A worker puts links, pipes and folders in the files' places: no file of another name is touched."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    for number in range(FILES_MAX - 1):
        place = tmp_path / tail_file(number)
        if number % 3 == 0:
            place.symlink_to(victim)
        elif number % 3 == 1:
            os.mkfifo(place)
        else:
            place.mkdir()
    kept = TailFile(str(tmp_path))
    kept.begin(1)
    kept.append(b"text")
    assert kept.problem == ""
    found = parse_tail((tmp_path / tail_file(FILES_MAX - 1)).read_bytes())
    assert found is not None
    assert found.text == b"text"
    other = TailFile(str(tmp_path))
    other.begin(1)
    other.append(b"text")
    assert other.problem
    assert victim.read_text() == "untouched"
