"""The command of --on-stall: what it is told, and that it never holds a restart up for long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inplace.agent.worker.stall_command import COMMAND_S_MAX, kill_tree, pid_to_examine
from tests.agent.progress.test_watchdog import STEPS, end, failures, next_epoch, steps, told, watched
from tests.agent.supervisor_rig import KILLED_S_MAX, Supervised, main_of, number_in, until

pytestmark = pytest.mark.asyncio

WORDS = "$INPLACE_STALL_PID $INPLACE_STALL_SILENT_S"


def options(command: str) -> tuple[str, ...]:
    """Return a supervisor's options with a command, and a grace that would be noticed."""
    return "--grace", "60", "--on-stall", command


def problems(group: Supervised) -> list[str]:
    """Return what went wrong with the command, as its guard tells; the agent tells of its end."""
    return [line["message"] for line in group.logged("stall_examined") if line["message"]]


async def stopped(group: Supervised, folder: Path) -> int:
    """Let the worker step, then stop it; return its process id."""
    await steps(group, folder)
    pid = main_of(group)
    os.kill(pid, signal.SIGSTOP)
    return pid


async def test_the_command_sees_the_worker_before_it_is_told(tmp_path: Path) -> None:
    """Process id and silence; the worker still stands there stopped."""
    seen = tmp_path / "seen"
    command = f'echo "{WORDS} $(cut -d" " -f3 /proc/$INPLACE_STALL_PID/stat)" > {seen}'
    async with watched(tmp_path, STEPS, *options(command), RANK="0") as group:
        pid = await stopped(group, tmp_path)
        failure = await told(group)
        assert seen.read_text().split() == [str(pid), str(failure.stalled_s), "T"]
        await next_epoch(group, 2)
        await end(group)
        (line,) = group.logged("stall_examined")
        assert line["message"] is None


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("exit 7", "it ended with exit code 7"),
        ("no-such-program", "it ended with exit code 127"),
        ("kill -9 $$", "it ended with exit code 137"),
    ],
)
@pytest.mark.slow
async def test_a_command_that_fails_holds_nothing_up(tmp_path: Path, command: str, message: str) -> None:
    """The group restarts, and the log says how the command ended."""
    async with watched(tmp_path, STEPS, *options(command), RANK="0") as group:
        await stopped(group, tmp_path)
        assert (await told(group)).epoch == 1
        await next_epoch(group, 2)
        await end(group)
        assert problems(group) == [message]


@pytest.mark.slow
async def test_a_command_that_hangs_is_killed_with_all_below_it(tmp_path: Path) -> None:
    """After ten seconds, also what left its process group."""
    command = f"setsid sleep 1234 & echo $! > {tmp_path}/child; trap '' TERM; sleep 1235"
    async with watched(tmp_path, STEPS, *options(command), RANK="0") as group:
        await stopped(group, tmp_path)
        child = await number_in(tmp_path / "child")
        began_s = time.monotonic()
        await until(lambda: bool(failures(group.server)), "the PATCH that tells")
        assert COMMAND_S_MAX - 2 < time.monotonic() - began_s < COMMAND_S_MAX + 2
        await next_epoch(group, 2)
        await until_gone(child)
        await end(group)
        assert problems(group) == ["it did not end within 10 s, and was killed"]


@pytest.mark.slow
async def test_a_restart_that_others_order_cuts_the_command_short(tmp_path: Path) -> None:
    """Another Pod told first: nothing waits for this command, and nothing is left of it."""
    command = f"sleep 1236 & echo $! > {tmp_path}/child; wait"
    async with watched(tmp_path, STEPS, *options(command), RANK="0") as group:
        await stopped(group, tmp_path)
        child = await number_in(tmp_path / "child")
        began_s = time.monotonic()
        group.show(1, 1)
        await next_epoch(group, 2)
        assert time.monotonic() - began_s < COMMAND_S_MAX / 2
        await until_gone(child)
        await end(group)


@pytest.mark.slow
async def test_a_process_id_that_is_not_the_worker_s_is_not_looked_at(tmp_path: Path) -> None:
    """The file may say anything: the main process is taken, and the log says so."""
    worker = """
note('main')
path = os.environ['INPLACE_PROGRESS_DIR'] + '/rank-0'
for step in range(1, 30):
    open(path, 'w').write(f'v1 1 {step} 1\\n')
    time.sleep(0.1)
time.sleep(3600)
"""
    seen = tmp_path / "seen"
    async with watched(tmp_path, worker, *options(f'echo "$INPLACE_STALL_PID" > {seen}')) as group:
        pid = main_of(group)
        await told(group)
        assert seen.read_text().split() == [str(pid)]
        await next_epoch(group, 2)
        await end(group)
        assert problems(group) == [
            "expected a process of the worker, saw 1 in the progress file; the main process is taken"
        ]


async def test_a_rank_below_the_worker_is_looked_at() -> None:
    """A process id counts if it is below this process, as launchers' ranks are; without one the main process does."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])  # noqa: ASYNC220
    try:
        assert pid_to_examine(child.pid, 77) == (child.pid, "")
        assert pid_to_examine(None, 77) == (77, "")
        assert pid_to_examine(0, 77) == (77, "")
        assert pid_to_examine(77, 77) == (77, "")
        assert pid_to_examine(os.getpid(), 77)[0] == 77
        assert pid_to_examine(10**9, 77)[0] == 77
    finally:
        child.kill()
        child.wait()


async def test_nothing_is_left_of_a_tree_that_is_killed() -> None:
    """Nor is it an error when it is gone."""
    say = "os.write(1, b'%d\\n' % os.getpid())"  # in one piece: both write to one pipe
    script = f"import os, time\npid = os.fork()\nif not pid: os.setsid()\n{say}\ntime.sleep(60)"
    child = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", script], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        below = [int(child.stdout.readline()), int(child.stdout.readline())]
    kill_tree(child.pid)
    child.wait(10)
    await until(lambda: not any(map(is_running, below)), "the end of the tree")
    kill_tree(child.pid)


async def until_gone(pid: int) -> None:
    """Wait for the end of a process that was killed."""
    await until(lambda: not is_running(pid), f"the end of process {pid}", KILLED_S_MAX)


def is_running(pid: int) -> bool:
    """Say whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
