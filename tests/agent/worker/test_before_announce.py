"""`--before-announce` of a supervisor: a real check as a process tree, before a real announcement."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from inplace.agent.settings.exit_code import ExitCode
from tests.agent.supervisor_rig import RUN, Supervised, number_in, supervised
from tests.agent.test_start_path import rss_mb
from tests.agent.worker.test_on_stall import is_running, until_gone

pytestmark = pytest.mark.asyncio


def options(command: str, timeout_s: float = 20.0, unanswered: str = "join") -> tuple[str, ...]:
    """Return a supervisor's options with a check."""
    return (
        *("--before-announce", command, "--before-announce-timeout", str(timeout_s)),
        *("--before-announce-unanswered", unanswered),
    )


def failure(group: Supervised) -> str:
    """Return what the guard says of the check; its agent may say that it heard of it."""
    (line,) = (line for line in group.logged("check_failed") if "it ended with" in line["message"])
    return str(line["message"])


async def test_a_pod_that_fails_its_check_announces_nothing(tmp_path: Path) -> None:
    """It ends with the code for that, and the log has the last of the output."""
    command = "echo GPU 3: ECC error >&2; exit 1"
    async with supervised(tmp_path, RUN, *options(command)) as group:
        assert await group.finished() == ExitCode.UNFIT
        assert group.epochs() == []
        assert "it ended with exit code 1: GPU 3: ECC error" in failure(group)


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
        message = failure(group)
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
