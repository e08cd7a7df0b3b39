"""An agent of depth `process`, as kubelet runs it, beside a real guard with a worker that is a real process tree."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from inplace.common.wire.names import PHASES, WORKER_FAILED
from inplace.common.wire.phases import exit_code_of
from inplace.common.wire.worker_failure import parse_failure
from testbed.ports import free_ports
from tests.agent.process import COMMAND, environment, process
from tests.agent.scripted_server import ScriptedServer, Views, jobset
from tests.agent.supervisor_rig import DEAF, RUN, until
from tests.agent.test_guard import Guarded, guarded

pytestmark = pytest.mark.asyncio


@dataclass
class Pod:
    """One agent, its server, and its guard."""

    server: ScriptedServer
    agent: asyncio.subprocess.Process
    guard: Guarded
    views: Views
    patched: int = 0

    async def annotations(self) -> dict[str, str]:
        """Return what the next PATCH writes."""
        self.patched += 1
        await self.server.until(lambda: len(self.server.requests("PATCH")) >= self.patched)
        return self.server.annotations[self.patched - 1]

    async def runs(self, epoch: int) -> int | None:
        """Let the group sync at the next epoch, and wait for its worker; return what was told of the one before it."""
        announced = await self.annotations()
        assert announced["jobset.sigs.k8s.io/epoch"] == str(epoch)
        self.views.show(epoch, epoch - 1)
        await self.guard.noted(f"epoch-{epoch}")
        return exit_code_of(announced[PHASES])

    async def dies(self) -> None:
        """Kill the worker's whole tree."""
        await until(lambda: bool(self.guard.tree()), "the worker")
        for pid in self.guard.tree():
            os.kill(pid, signal.SIGKILL)

    async def left(self) -> tuple[int, str]:
        """Return the agent's exit code, and its log."""
        async with asyncio.timeout(20):
            _, errors = await self.agent.communicate()
        return self.agent.returncode or 0, errors.decode()


@asynccontextmanager
async def pod(
    folder: Path,
    worker: str | list[str] = "note('epoch-' + os.environ['INPLACE_EPOCH'])\n" + RUN,
    *options: str,
    env: Mapping[str, str] | None = None,
    starter: Sequence[str] = (),
) -> AsyncIterator[Pod]:
    """Run both containers; the options are the guard's, the variables the agent's but for the time to save.

    `starter` is a command that turns into each of them.
    """
    views = Views()
    async with ScriptedServer(lists=[jobset(0, rv=10), jobset(1, rv=20)], watches=[(views.follow,)]) as server:
        settings = {
            "LINK_FILE": str(folder / "link"),
            "CLEAN_AFTER_FAILURES": "0",  # tests kill workers faster than these could make progress
            "BARRIER_PORT": str(free_ports(1)[0]),
        }
        async with (
            process(environment(folder, server, **(settings | dict(env or {}))), *starter, *COMMAND) as agent,
            guarded(
                folder, worker, *options, starter=starter, SAVE_WITHIN_S=(env or {}).get("SAVE_WITHIN_S", "")
            ) as guard,
        ):
            yield Pod(server, agent, guard, views)


async def test_an_agent_that_starts_again_alone_says_nothing_beside_an_old_worker(tmp_path: Path) -> None:
    """As kubelet starts it where no rule restarts the Pod: the guard of before still ends a worker that is deaf."""
    worker = "note('epoch-' + os.environ['INPLACE_EPOCH'])\n" + DEAF
    async with pod(tmp_path, worker, "--grace", "3", env={"CHECKS_BEFORE_ANNOUNCE": "1"}) as group:
        await group.runs(1)
        group.agent.kill()
        again = environment(
            tmp_path,
            group.server,
            LINK_FILE=str(tmp_path / "link"),
            CHECKS_BEFORE_ANNOUNCE="1",
            BARRIER_PORT=str(free_ports(1)[0]),
        )
        async with process(again, *COMMAND):
            await until(lambda: not group.guard.tree(), "the end of the worker")
            assert len(group.server.requests("PATCH")) == 1


async def test_neither_process_ends_with_the_worker(tmp_path: Path) -> None:
    """Each of its deaths is one announcement, with its exit code, by the same agent; the same guard starts the next."""
    async with pod(tmp_path) as group:
        for epoch in (1, 2, 3):
            assert await group.runs(epoch) == (137 if epoch > 1 else None)
            await group.dies()
        assert await group.runs(4) == 137
        assert len(group.server.requests("GET")) == 2  # one list, one watch
        assert (group.agent.returncode, group.guard.child.returncode) == (None, None)


async def test_a_group_restart_ends_and_starts_the_worker(tmp_path: Path) -> None:
    """Somebody else's worker died: nothing of the old epoch is left when the next one is announced."""
    async with pod(tmp_path) as group:
        await group.runs(1)
        old = group.guard.tree()
        group.views.show(1, 1)
        assert await group.runs(2) is None, "it did not end by itself"
        assert set(group.guard.tree()).isdisjoint(old)


async def test_a_worker_that_keeps_failing_gets_clean_containers(tmp_path: Path) -> None:
    """A restart of its process did not help: the agent tells so, then both leave for kubelet to start them."""
    async with pod(tmp_path, env={"CLEAN_AFTER_FAILURES": ""}) as group:
        for epoch in (1, 2):
            await group.runs(epoch)
            await group.dies()
        told = parse_failure((await group.annotations())[WORKER_FAILED])
        assert (told.epoch, told.code, told.in_vain) == (2, 137, 1)
        code, log = await group.left()
        assert code == 88
        assert "the worker failed 2 times in a row without progress" in log
        assert (await group.guard.finished())[0] == 143


async def test_a_completion_is_told_by_the_next_announcement(tmp_path: Path) -> None:
    """A container that completed restarts with the others, and the agent's next process says that it had."""
    program = "note('epoch-' + os.environ['INPLACE_EPOCH'])\nsys.exit(0)"
    async with pod(tmp_path, program, env={"EPOCH_FILE": str(tmp_path / "epoch")}) as group:
        await group.runs(1)
        assert (await group.guard.finished())[0] == 0
        group.views.show(1, 1)
        assert (await group.left())[0] == 88
    assert b",code=0" in (tmp_path / "epoch.phases").read_bytes()


async def test_a_guard_that_is_killed_gets_clean_containers(tmp_path: Path) -> None:
    """The agent tells of it before kubelet can, then leaves; it announces nothing."""
    async with pod(tmp_path) as group:
        await group.runs(1)
        group.guard.child.kill()
        told = parse_failure((await group.annotations())[WORKER_FAILED])
        assert (told.epoch, told.code, told.in_vain) == (1, None, 0)
        code, log = await group.left()
        assert code == 88
        assert "a container of a worker is gone" in log
        await until(lambda: group.guard.tree() == [], "the worker's end")


async def test_a_worker_whose_guard_never_came_gets_new_containers(tmp_path: Path) -> None:
    """Of two workers that start behind the startup probe one has no guard: nobody here can end it, and kubelet does."""
    async with pod(tmp_path, env={"GUARDS_AWAITED": "2"}) as group:
        await group.runs(1)
        group.views.show(1, 1)
        code, log = await group.left()
        assert code == 88
        assert "or no guard came from it" in log
        assert len(group.server.requests("PATCH")) == 1, "nothing was announced beside that worker"


async def test_a_worker_whose_awaited_guard_came_restarts_as_a_process(tmp_path: Path) -> None:
    """As every other guarded worker does."""
    async with pod(tmp_path, env={"GUARDS_AWAITED": "1"}) as group:
        await group.runs(1)
        group.views.show(1, 1)
        await group.runs(2)


async def test_an_agent_that_is_killed_takes_worker_and_guard_along(tmp_path: Path) -> None:
    """So kubelet finds both containers ended at one look, and the next agent announces beside no old worker."""
    async with pod(tmp_path) as group:
        await group.runs(1)
        group.agent.kill()
        assert (await group.guard.finished())[0] == 143


async def test_sigterm_ends_the_worker_first(tmp_path: Path) -> None:
    """As a supervisor does."""
    async with pod(tmp_path) as group:
        await group.runs(1)
        group.agent.send_signal(signal.SIGTERM)
        assert (await group.left())[0] == 143
        await group.guard.finished()
