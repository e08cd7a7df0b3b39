"""A supervisor whose container kubelet starts anew after one exit code: when it asks for that, with real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.agent.progress.test_watchdog import failures
from tests.agent.scripted_server import ScriptedServer, jobset, until_patched
from tests.agent.supervisor_rig import RUN, Supervised, main_of, running, supervised, through_the_barrier

pytestmark = pytest.mark.asyncio

CLEAN = 88
DAEMON = "daemon(linger)\n" + RUN  # it leaves a process that no signal to its group reaches
STEPS = "from inplace.rank_file import progress\nprogress(int(os.environ['INPLACE_EPOCH']))\n" + RUN


def fail(group: Supervised) -> None:
    """Let the worker's main process fail."""
    os.kill(main_of(group), signal.SIGKILL)


async def test_a_second_failure_in_a_row_ends_the_container(tmp_path: Path) -> None:
    """It is told, nothing of the worker is left, and the exit code is the one after which kubelet starts it anew."""
    async with running(tmp_path, DAEMON, CONTAINER_RESTART_EXIT_CODE=str(CLEAN)) as group:
        fail(group)
        await through_the_barrier(group, 2)
        await group.noted("main", 2)
        fail(group)
        assert await group.finished() == CLEAN
        told = failures(group.server)
        assert [(one.epoch, one.code, one.in_vain) for one in told] == [(2, 137, 1)]
        (wanted,) = group.logged("clean_containers_wanted")
        assert wanted["why"] == "the worker failed 2 times in a row without progress"
        assert len(group.server.requests("PATCH")) == 3  # two announcements, and the failure


async def test_without_the_code_the_process_begins_again(tmp_path: Path) -> None:
    """Nobody said that kubelet starts the container anew: its end could be the Pod's."""
    async with running(tmp_path, RUN) as group:
        for epoch in (2, 3, 4):
            fail(group)
            await through_the_barrier(group, epoch)
            await group.noted("main", epoch)


async def test_a_new_container_remembers_the_failures(tmp_path: Path) -> None:
    """The worker fails in the new container at once: that was in vain as well, and there is another one."""
    (tmp_path / "epoch").write_text("2")
    (tmp_path / "epoch.failures").write_text("2 70")
    server = ScriptedServer(lists=[jobset(2, 2, rv=10)], watches=[(until_patched(1), jobset(3, 2, rv=20))])
    kept, code = str(tmp_path / "epoch"), str(CLEAN)
    async with supervised(
        tmp_path, "sys.exit(7)", server=server, EPOCH_FILE=kept, CONTAINER_RESTART_EXIT_CODE=code
    ) as group:
        assert await group.finished() == CLEAN
        assert [(one.epoch, one.code, one.in_vain) for one in failures(server)] == [(3, 7, 2)]
        assert (tmp_path / "epoch.failures").read_text() == "3 70"
        methods = [request.method for request in server.received]
        assert methods == ["GET", "PATCH", "GET", "PATCH"]  # list, announcement, watch, failure


@pytest.mark.parametrize("content", ["2", "-1 -", "2 -1", "2 " + 70 * "1", "x" * 4096])
async def test_a_spoilt_memory_counts_for_nothing(tmp_path: Path, content: str) -> None:
    """The worker's user can write the file: what is no count and no step is told, and the next failure is the first."""
    (tmp_path / "epoch.failures").write_text(content)
    kept = str(tmp_path / "epoch")
    async with running(tmp_path, RUN, EPOCH_FILE=kept, CONTAINER_RESTART_EXIT_CODE=str(CLEAN)) as group:
        fail(group)
        await through_the_barrier(group, 2)
        assert (tmp_path / "epoch.failures").read_text() == "1 -"
        (line,) = await group.said("failures_not_recalled")
        assert str(tmp_path / "epoch.failures") in line["message"]


async def test_progress_makes_a_failure_the_first_one(tmp_path: Path) -> None:
    """Each worker gets one step further than the one before: none was started in vain."""
    kept, code = str(tmp_path / "epoch"), str(CLEAN)
    async with running(
        tmp_path, STEPS, EPOCH_FILE=kept, CONTAINER_RESTART_EXIT_CODE=code, STALL_AFTER_S="600"
    ) as group:
        for epoch in (2, 3, 4):
            fail(group)
            await through_the_barrier(group, epoch)
            await group.noted("main", epoch)
        assert (tmp_path / "epoch.failures").read_text() == "1 3"
