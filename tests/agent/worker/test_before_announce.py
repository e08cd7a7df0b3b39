"""`--before-announce` of a supervisor: a real check as a process tree, before a real announcement."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from inplace.agent.settings.exit_code import ExitCode
from tests.agent.supervisor_rig import RUN, main_of, number_in, running, supervised, through_the_barrier
from tests.agent.test_start_path import rss_mb
from tests.agent.worker.test_on_stall import is_running, until_gone

pytestmark = pytest.mark.asyncio


def options(command: str, timeout_s: float = 20.0, unanswered: str = "join") -> tuple[str, ...]:
    """Return a supervisor's options with a check."""
    return (
        *("--before-announce", command, "--before-announce-timeout", str(timeout_s)),
        *("--before-announce-unanswered", unanswered),
    )


async def test_a_pod_that_fails_its_check_announces_nothing(tmp_path: Path) -> None:
    """It ends with the code for that, and the log has the last of the output."""
    command = "echo GPU 3: ECC error >&2; exit 1"
    async with supervised(tmp_path, RUN, *options(command)) as group:
        assert await group.finished() == ExitCode.UNFIT
        assert group.epochs() == []
        (line,) = group.logged("check_failed")
        assert line["message"].endswith("it ended with exit code 1: GPU 3: ECC error")
        assert line["then"] == "exit 6"


@pytest.mark.slow
async def test_a_check_runs_before_each_announcement(tmp_path: Path) -> None:
    """Of the first start too; it is told the epoch, and nothing of it is left when the announcement leaves."""
    seen = tmp_path / "seen"
    command = f"echo $INPLACE_EPOCH >> {seen}; setsid sleep 1240 & echo $! > {tmp_path}/left"
    async with supervised(tmp_path, RUN, *options(command)) as group:
        assert await group.announced() == 1
        await until_gone(await number_in(tmp_path / "left"))
        assert seen.read_text() == "1\n"
        group.show(1, 0)
        await group.noted("main")
        os.kill(main_of(group), signal.SIGKILL)
        await through_the_barrier(group, 2)
        assert seen.read_text() == "1\n2\n"
        await group.terminated()
        assert len(group.logged("check_passed")) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo so far; sleep 1241", "it did not end within 0.5 s, and was killed"),
        ("no-such-program", "it cannot be run: exit code 127"),
        ("/dev/null", "it cannot be run: exit code 126"),
    ],
)
async def test_a_check_that_gives_no_answer_leaves_it_to_the_setting(
    tmp_path: Path, command: str, message: str
) -> None:
    """The Pod joins and says so, or it leaves."""
    async with running(tmp_path, RUN, *options(command, 0.5)) as group:
        await group.terminated()
        (line,) = group.logged("check_unanswered")
        assert line["message"] == message
        assert line["then"] == "the Pod joins its group unchecked"
    (tmp_path / "other").mkdir()
    async with supervised(tmp_path / "other", RUN, *options(command, 0.5, "leave")) as group:
        assert await group.finished() == ExitCode.UNFIT
        assert group.epochs() == []
        assert message in group.logged("check_failed")[0]["message"]


@pytest.mark.slow
async def test_a_gigabyte_of_output_is_read_and_dropped(tmp_path: Path) -> None:
    """The agent's memory does not grow, and the end of it is in the log."""
    command = f"echo $$ > {tmp_path}/pid; head -c 1000000000 /dev/zero; echo the end; sleep 0.5; exit 3"
    async with supervised(tmp_path, RUN, *options(command)) as group:
        check = await number_in(tmp_path / "pid")
        sizes_mb = []
        while is_running(check):
            sizes_mb.append(rss_mb(group.child.pid))
            await asyncio.sleep(0.05)
        assert await group.finished() == ExitCode.UNFIT
        assert max(sizes_mb) < 60
        message = group.logged("check_failed")[0]["message"]
        assert message.endswith("the end")
        assert len(message) < 5000


@pytest.mark.slow
async def test_a_pod_that_is_told_to_end_does_not_join(tmp_path: Path) -> None:
    """Though its check would pass: no announcement leaves, and nothing of the check is left."""
    command = f"trap 'exit 0' TERM; sleep 1242 & echo $! > {tmp_path}/child; wait"
    async with supervised(tmp_path, RUN, *options(command)) as group:
        child = await number_in(tmp_path / "child")
        assert await group.terminated() == ExitCode.TERMINATED
        await until_gone(child)
        assert group.epochs() == []


@pytest.mark.slow
async def test_forks_without_end_are_ended(tmp_path: Path) -> None:
    """A check that forks on in sessions of their own is swept away at its limit."""
    fork = f"{tmp_path}/fork"
    Path(fork).write_text(f"#!/bin/sh\necho x >> {tmp_path}/forked\nsleep 0.05\nsetsid {fork} &\nsleep 1243\n")
    os.chmod(fork, 0o755)  # noqa: PTH101, S103
    async with supervised(tmp_path, RUN, *options(fork, 1.0)) as group:
        assert await group.announced() == 1
        assert group.tree() == []
        before = (tmp_path / "forked").read_text()
        group.show(1, 0)
        await group.noted("main")
        assert (tmp_path / "forked").read_text() == before
        await group.terminated()
